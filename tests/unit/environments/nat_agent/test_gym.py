"""The environment as skyrl-gym and SkyRL see it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skyrl_gym
from omegaconf import DictConfig, OmegaConf
from skyrl_gym.envs.base_text_env import BaseTextEnv
from unit.environments.nat_agent import spec_v2

from skyrl_nat.config.environment import Form
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent import gym
from skyrl_nat.environments.nat_agent.env import NATAgentCreationEnv
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import RewardResult


class FakeValidator:
    """Gives 0.5."""

    def validate(self, *args: Any, **kwargs: Any) -> RewardResult:
        return RewardResult(total=0.5, parts={}, is_success=False)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def validators(monkeypatch: pytest.MonkeyPatch) -> list[FakeValidator]:
    made: list[FakeValidator] = []
    monkeypatch.setattr(gym, "NatAgentValidator", lambda config: made.append(FakeValidator()) or made[-1])
    for shared in (gym._validator, gym._workbench):
        shared.cache_clear()
    return made


def test_importing_registers_and_registering_twice_is_fine() -> None:
    gym.register()
    assert skyrl_gym.spec("nat_agent_creation").entry_point == f"{gym.__name__}:make_environment"


def test_a_fresh_process_finds_the_id_after_one_import_and_without_torch() -> None:
    code = (
        "import sys, skyrl_gym, skyrl_nat.environments.nat_agent.gym as gym\n"
        "from skyrl_gym.envs.registration import registry\n"
        "assert gym.ENVIRONMENT_ID in registry and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("make_config", [dict, DictConfig])
@pytest.mark.parametrize("wrap", [dict, OmegaConf.create])
def test_make_takes_dicts_and_omegaconf_nodes(make_config: Any, wrap: Any) -> None:
    config = make_config({"form": "multi_turn", "max_observation_chars": 300, "sandbox": {"num_servers": 1}})
    extras = wrap({"payload": spec_v2.TRIP, "max_turns": 5})
    env = skyrl_gym.make("nat_agent_creation", env_config=config, extras=extras)
    assert isinstance(env, BaseTextEnv)
    assert isinstance(env, NATAgentCreationEnv)
    prompt, metadata = env.init([])
    assert "You have 5 turns" in prompt[-1]["content"]
    assert metadata == {}
    assert env.step("")["observations"][0]["content"].startswith("error: a message must hold one function call")


def test_make_works_without_any_config() -> None:
    env = skyrl_gym.make("nat_agent_creation", env_config={}, extras={"payload": json.dumps(spec_v2.DOUBLE)})
    assert env.max_turns == 8


@pytest.mark.parametrize("config", [{"formm": "one_shot"}, {"sandbox": {"servers": 2}}])
def test_unknown_settings_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="env_config must hold keys of section environment only"):
        skyrl_gym.make("nat_agent_creation", env_config=config, extras={"payload": spec_v2.DOUBLE})


def test_rows_survive_parquet_and_play_as_skyrl_plays_them(tmp_path: Path, validators: list[FakeValidator]) -> None:
    """Columns other than prompt and env_class are the extras; max_turns comes from SkyRL's generator."""
    tasks = load_tasks(["builtin:nat_agent/train"])[:3]
    pq.write_table(pa.Table.from_pylist(gym.to_skyrl_rows(tasks, max_turns=6)), tmp_path / "rows.parquet")
    rewards = []
    for task, row in zip(tasks, pq.read_table(tmp_path / "rows.parquet").to_pylist(), strict=True):
        prompt, env_class = row.pop("prompt"), row.pop("env_class")
        row["max_turns"] = 6
        env = skyrl_gym.make(env_class, env_config={}, extras=row)
        assert env.init(prompt)[0] == prompt
        assert "You have 6 turns" in prompt[-1]["content"]
        assert json.dumps(task.hidden) not in json.dumps(prompt)
        assert env.step("no call")["reward"] == 0.0
        rewards.append(env.step("<function=finish></function>")["reward"])
        assert env.get_metrics()["is_finished"] == 1
        env.close()
    assert rewards == [0.5, 0.5, 0.5]
    assert len(validators) == 1


def test_rows_without_a_hidden_part_make_no_validator(validators: list[FakeValidator]) -> None:
    env = skyrl_gym.make("nat_agent_creation", env_config={}, extras={"payload": spec_v2.DOUBLE})
    assert env.step("<function=finish></function>")["reward"] == 0.0
    assert validators == []


def test_metrics_are_averaged_by_skyrl_gym() -> None:
    env = skyrl_gym.make("nat_agent_creation", env_config={}, extras={"payload": spec_v2.DOUBLE})
    env.step("<function=finish></function>")
    assert NATAgentCreationEnv.aggregate_metrics([env.get_metrics()] * 2)["num_turns"] == 1


def test_rows_say_their_form() -> None:
    tasks = load_tasks(["builtin:nat_agent/train"])[:1]
    [row] = gym.to_skyrl_rows(tasks, form=Form.one_shot)
    assert row["form"] == "one_shot"
    assert [message["role"] for message in row["prompt"]] == ["system", "user", "assistant", "user"]
