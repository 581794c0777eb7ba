"""The Gymnasium environments against Gymnasium's, Stable-Baselines3's and our own rules."""

import dataclasses
import hashlib
import random
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.env_checker import check_env as check_env_sb3
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from skyrl_nat.environments.jira import env as env_module
from skyrl_nat.environments.jira import machine as machine_module
from skyrl_nat.environments.jira.catalogue import load_issues, workflow_of
from skyrl_nat.environments.jira.env import ENVIRONMENT_IDS, JiraEnv
from skyrl_nat.errors import DataError

RESOLUTION = ENVIRONMENT_IDS[0]
NUM_TOOLS = {"JiraIssueResolution-v0": 7, "JiraStatusUpdate-v0": 10, "JiraCommentManagement-v0": 7}


def make(environment_id: str = RESOLUTION, **kwargs: Any) -> JiraEnv:
    environment = gymnasium.make(environment_id, **kwargs).unwrapped
    assert isinstance(environment, JiraEnv)
    return environment


def plan_numbers(environment: JiraEnv) -> list[int]:
    plan = machine_module.Machine(environment.issues[0]).plan
    return [environment.action_names.index(name) for name in plan]


def trace(environment: Any, resets: list[int | None]) -> str:
    """Return a digest of all that three episodes show, played with a fixed stream of actions."""
    rng, digest = random.Random(1), hashlib.sha256()
    for seed in resets:
        observation, info = environment.reset(seed=seed)
        digest.update(observation.tobytes() + str(info).encode())
        is_over = False
        while not is_over:
            action = rng.randrange(int(environment.action_space.n))
            observation, reward, terminated, truncated, info = environment.step(action)
            digest.update(observation.tobytes() + str((reward, terminated, truncated, info)).encode())
            is_over = terminated or truncated
    return digest.hexdigest()


@pytest.mark.parametrize("environment_id", ENVIRONMENT_IDS)
def test_both_checkers_pass_with_warnings_as_errors(environment_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(environment_id))
        check_env_sb3(gymnasium.make(environment_id))


def test_registering_twice_is_fine() -> None:
    env_module.register()
    assert all(name in gymnasium.registry for name in ENVIRONMENT_IDS)


def test_same_seed_gives_the_same_episodes_and_later_resets_go_on() -> None:
    """GY-01: no global random state; later resets are others, and reproducible."""
    first, second = make(), make()
    random.seed(1)
    np.random.seed(1)
    seen = trace(first, [5, None, None])
    random.seed(2)
    np.random.seed(2)
    before = (random.getstate(), np.random.get_state()[1].tolist())
    assert trace(second, [5, None, None]) == seen
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert trace(first, [6, None, None]) != seen


def test_resets_without_a_seed_draw_other_issues() -> None:
    """GY-01: an environment that is seeded anew at every reset would repeat one issue."""
    environment = make()
    keys = [environment.reset(seed=5)[1]["issue"], *(environment.reset()[1]["issue"] for _ in range(30))]
    assert set(keys) == {issue.key for issue in environment.issues}
    again = [environment.reset(seed=5)[1]["issue"], *(environment.reset()[1]["issue"] for _ in range(30))]
    assert again == keys


def test_environments_side_by_side_do_not_disturb_each_other() -> None:
    """GY-01: two streams, interleaved."""
    alone = make()
    keys = [alone.reset(seed=5)[1]["issue"], *(alone.reset()[1]["issue"] for _ in range(5))]
    one, two = make(), make()
    one.reset(seed=5), two.reset(seed=9)
    mixed = []
    for _ in range(5):
        mixed.append(one.reset()[1]["issue"])
        two.reset()
    assert mixed == keys[1:]


def test_options_choose_the_issue() -> None:
    environment = make()
    assert environment.reset(options={"issue": "PAY-31"})[1]["issue"] == "PAY-31"
    with pytest.raises(ValueError, match="must be the key of an issue of this environment, got 'NONE-1'"):
        environment.reset(options={"issue": "NONE-1"})


@pytest.mark.parametrize("environment_id", ENVIRONMENT_IDS)
def test_thousand_random_steps_stay_in_the_space_with_exact_types(environment_id: str) -> None:
    """GY-02 and GY-07: every observation is contained; reset and step return exactly what they must."""
    environment = make(environment_id)
    num_tools = NUM_TOOLS[environment_id.rpartition("/")[2]]
    assert environment.observation_space.shape == (num_tools + 4,)
    environment.action_space.seed(0)
    is_over = True
    for _ in range(1000):
        if is_over:
            result = environment.reset()
            assert type(result) is tuple and len(result) == 2 and type(result[1]) is dict
            observation, is_over = result[0], False
        else:
            result = environment.step(environment.action_space.sample())
            assert type(result) is tuple and len(result) == 5
            observation, reward, terminated, truncated, info = result
            assert (type(reward), type(terminated), type(truncated), type(info)) == (float, bool, bool, dict)
            assert np.isfinite(reward)
            is_over = terminated or truncated
        assert type(observation) is np.ndarray
        assert (observation.dtype, observation.shape) == (np.dtype(np.float32), (num_tools + 4,))
        assert environment.observation_space.contains(observation)


@pytest.mark.parametrize("summary", ["", " ", "Größe naïve 価格", "x" * 10_000, "two\nlines"])
def test_issue_texts_of_any_kind_leave_the_observation_in_its_space(summary: str) -> None:
    """GY-02: blanks, accents, no text, 10,000 letters."""
    issue = dataclasses.replace(load_issues("issue_resolution")[0], summary=summary)
    environment = JiraEnv("issue_resolution", issues=[issue])
    observation, _ = environment.reset(seed=0)
    assert environment.observation_space.contains(observation)


def test_observation_says_what_the_docs_say() -> None:
    """By hand: 1 of 12 steps, not ended, tool 0, possible; then tool 4, which is not."""
    environment = make()
    assert environment.reset(seed=0)[0].tolist() == [0, 0, *[0] * 7, 1, 0]
    observation, reward, *_ = environment.step(0)
    assert observation.tolist() == pytest.approx([1 / 12, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0])
    assert reward == pytest.approx(0.5 / 6 - 0.01)
    observation, reward, *_ = environment.step(4)
    assert observation.tolist() == pytest.approx([2 / 12, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    assert reward == pytest.approx(-0.06)


def test_closing_terminates_with_done_and_resolved() -> None:
    """GY-04: the ticket is closed: terminated, not truncated."""
    environment = make()
    environment.reset(seed=0)
    steps = [environment.step(number) for number in plan_numbers(environment)]
    observation, reward, terminated, truncated, info = steps[-1]
    assert (terminated, truncated) == (True, False)
    assert [step[2] or step[3] for step in steps[:-1]] == [False] * 5
    assert (observation[1], observation[-1]) == (1, 1)
    assert reward == pytest.approx(0.5 / 6 - 0.01 + 0.5)
    assert (info["is_success"], info["findings"], info["status"]) == (True, "", "Closed")


def test_step_limit_truncates_and_does_not_terminate() -> None:
    """GY-04: the limit is reached: truncated, not terminated, and the observation does not say done."""
    environment = make(max_steps=3)
    environment.reset(seed=0)
    flags = [environment.step(0)[2:4] for _ in range(2)]
    observation, _, terminated, truncated, info = environment.step(0)
    assert flags == [(False, False)] * 2
    assert (terminated, truncated) == (False, True)
    assert (observation[0], observation[1]) == (1, 0)
    assert not info["is_success"]
    assert "the work was not ended" in info["findings"]


def test_closing_in_the_last_step_is_both() -> None:
    """GY-04: both in one step give True, True."""
    environment = make(max_steps=6)
    environment.reset(seed=0)
    *_, last = [environment.step(number) for number in plan_numbers(environment)]
    assert last[2:4] == (True, True)
    assert last[4]["is_success"]


def test_wrappers_keep_the_two_ends_apart() -> None:
    """GY-04: TimeLimit and Monitor."""
    environment = Monitor(TimeLimit(make(), 2))
    environment.reset(seed=0)
    environment.step(0)
    _, _, terminated, truncated, info = environment.step(0)
    assert (terminated, truncated, info["episode"]["l"]) == (False, True, 2)
    environment.reset(seed=0)
    _, _, terminated, truncated, info = environment.step(5)
    assert (terminated, truncated, info["episode"]["l"]) == (True, False, 1)


def test_vector_of_stable_baselines_bootstraps_only_at_the_limit() -> None:
    """GY-04: the terminal observation is there, and only the limit counts as a time limit."""
    vector = DummyVecEnv([lambda: make(max_steps=2)] * 2)
    vector.reset()
    vector.step(np.array([0, 5]))
    _, _, dones, infos = vector.step(np.array([0, 0]))
    assert dones.tolist() == [True, False]
    assert infos[0]["TimeLimit.truncated"]
    assert infos[0]["terminal_observation"][0] == 1.0
    vector.reset()
    _, _, dones, infos = vector.step(np.array([5, 0]))
    assert dones.tolist() == [True, False]
    assert not infos[0]["TimeLimit.truncated"]
    assert infos[0]["terminal_observation"][1] == 1.0


@pytest.mark.parametrize("action", [0, np.int64(0), np.int32(0), np.uint8(0), np.array(0)])
def test_integers_of_every_make_are_actions(action: Any) -> None:
    """GY-05: 0, np.int64(0) and an array without dimensions, as Stable-Baselines3 predicts."""
    environment = make()
    environment.reset(seed=0)
    assert environment.step(action)[4]["is_valid"]


@pytest.mark.parametrize(
    "action",
    [7, -1, 1.0, True, np.True_, "1", None, np.float64(1.0), np.array([1]), np.array(1.0), [1], np.int64(7), 10**30],
    ids=repr,
)
def test_everything_else_raises_and_changes_nothing(action: Any) -> None:
    """GY-05: out of range and wrong types."""
    environment, untouched = make(), make()
    for each in (environment, untouched):
        each.reset(seed=0)
        each.step(0)
    with pytest.raises(ValueError, match=r"an action must be an integer in 0\.\.6, got .*Take one of action_names"):
        environment.step(action)
    assert str(environment.step(1)) == str(untouched.step(1))


def test_step_before_reset_and_after_the_end_is_refused() -> None:
    environment = make()
    with pytest.raises(gymnasium.error.ResetNeeded, match="this one never began"):
        environment.step(0)
    environment.reset(seed=0)
    environment.step(5)
    with pytest.raises(gymnasium.error.ResetNeeded, match="this one is over"):
        environment.step(0)
    assert make().action_masks().tolist() == [False] * 7


@pytest.mark.parametrize(
    "kwargs",
    [{"issues": []}, {"max_steps": 0}, {"issues": load_issues("status_update")}],
    ids=["no issues", "no steps", "other issues"],
)
def test_impossible_settings_are_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must have issues of issue_resolution and max_steps >= 1"):
        JiraEnv("issue_resolution", **kwargs)
    with pytest.raises(DataError, match="workflow must be one of"):
        JiraEnv("cooking")


@pytest.mark.parametrize("environment_id", ENVIRONMENT_IDS)
def test_mask_is_what_the_next_step_allows(environment_id: str) -> None:
    """GY-08: 500 states; masks belong to the state after the step, and only the end has no action."""
    environment = make(environment_id)
    rng = random.Random(0)
    num_states, is_over = 0, True
    while num_states < 500:
        if is_over:
            _, info = environment.reset()
        mask = environment.action_masks()
        assert (mask.dtype, mask.shape) == (np.dtype(np.bool_), (int(environment.action_space.n),))
        assert info["action_mask"].tolist() == mask.astype(int).tolist()
        assert mask.any()
        action = rng.randrange(int(environment.action_space.n))
        _, _, terminated, truncated, info = environment.step(action)
        assert info["is_valid"] == mask[action]
        is_over = terminated or truncated
        if terminated:
            assert not environment.action_masks().any()
        num_states += 1


def test_masked_action_is_never_sampled() -> None:
    """GY-08: the info's mask is one that the action space takes."""
    environment = make()
    _, info = environment.reset(seed=0)
    environment.action_space.seed(0)
    is_over = False
    for _ in range(200):
        if is_over:
            _, info = environment.reset()
        _, _, terminated, truncated, info = environment.step(environment.action_space.sample(mask=info["action_mask"]))
        assert info["is_valid"]
        is_over = terminated or truncated


def test_vector_masks_are_those_of_its_environments_in_order() -> None:
    """GY-08: 4 environments, one of them just reset."""
    vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(RESOLUTION)] * 4)
    vector.reset(seed=0)
    for actions in ([0, 5, 0, 3], [1, 0, 5, 0], [2, 0, 0, 1]):
        _, _, _, _, infos = vector.step(np.array(actions))
        masks = np.stack(vector.call("action_masks"))
        singles = np.stack([environment.unwrapped.action_masks() for environment in vector.envs])
        assert masks.shape == (4, 7)
        assert masks.tolist() == singles.tolist() == infos["action_mask"].astype(bool).tolist()
    fresh = make()
    fresh.reset(seed=0)
    assert masks[2].tolist() == fresh.action_masks().tolist()
    assert masks[0].tolist() != masks[2].tolist()


def test_environment_with_one_and_with_all_actions_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """GY-08: states with 1 and all actions allowed."""
    workflow = workflow_of("issue_resolution")
    free = [dataclasses.replace(tool, sources=frozenset({"Open"}), needs=(), to=None) for tool in workflow.tools]
    rest = [dataclasses.replace(tool, needs=("read",)) for tool in free[1:]]
    changed = dataclasses.replace(workflow, tools=(free[0], *rest))
    for module in (env_module, machine_module):
        monkeypatch.setattr(module, "workflow_of", lambda name: changed)
    environment = JiraEnv("issue_resolution")
    environment.reset(seed=0)
    assert environment.action_masks().tolist() == [True] + [False] * 6
    environment.step(0)
    assert environment.action_masks().tolist() == [True] * 7
