"""Recorded rollouts come back as they were."""

import asyncio
import dataclasses
import itertools
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from groups import make_group
from hypothesis import given, settings
from hypothesis import strategies as st

from skyrl_nat.batching.advantages import group_advantages
from skyrl_nat.batching.samples import build_samples
from skyrl_nat.config.algorithm import Advantage, AlgorithmConfig
from skyrl_nat.errors import DataError
from skyrl_nat.rollouts.recorded import RecordedGroups, read_groups
from skyrl_nat.rollouts.recorder import RolloutRecorder, write_groups
from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, RolloutGroup, StageReport, Task, Turn

TEXT = st.text(st.characters(exclude_categories=[]), max_size=8)
"""Lone surrogates, controls and line separators included."""
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
FP32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
MESSAGES = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXT}), max_size=2)
STAGES = st.builds(StageReport, name=TEXT, is_ok=st.booleans(), seconds=FLOATS, evidence=TEXT)


@st.composite
def rollouts(draw: st.DrawFn, rollout_id: str, task: Task) -> Rollout:
    """Return a rollout whose contexts each begin with a token that was not sampled; it may have none at all."""
    segments = draw(st.lists(st.lists(st.booleans(), max_size=6), max_size=3))
    mask = [bit for segment in segments for bit in (False, *segment)]
    starts = [sum(len(before) + 1 for before in segments[:number]) for number in range(len(segments))] or [0]
    counts = draw(st.lists(st.integers(0, sum(mask)), max_size=2))
    borders = [0, *sorted(counts), sum(mask)]
    turns = [
        draw(
            st.builds(
                Turn,
                completion_text=TEXT,
                observations=MESSAGES,
                num_prompt_tokens=st.integers(0, 9),
                num_completion_tokens=st.just(end - start),
                finish_reason=st.sampled_from(FinishReason),
                generate_s=FLOATS,
                environment_s=FLOATS,
                reward=FLOATS,
            )
        )
        for start, end in itertools.pairwise(borders)
    ]
    rewards = st.builds(
        RewardResult,
        total=st.floats(-1e6, 1e6),
        parts=st.dictionaries(TEXT, FLOATS, max_size=2),
        is_success=st.booleans(),
        findings=st.lists(TEXT, max_size=2),
        suspicions=st.lists(TEXT, max_size=2),
        stages=st.lists(STAGES, max_size=2),
        is_by_turn=st.booleans(),
    )
    return Rollout(
        rollout_id=rollout_id,
        task=task,
        token_ids=draw(st.lists(st.integers(0, 200_000), min_size=len(mask), max_size=len(mask))),
        loss_mask=mask,
        rollout_logprobs=[draw(FP32) if bit else 0.0 for bit in mask],
        token_versions=[draw(st.integers(-1, 3)) if bit else -1 for bit in mask],
        turns=turns,
        prompt=draw(MESSAGES),
        outcome=draw(st.sampled_from(Outcome)),
        reason=draw(TEXT),
        reward=draw(st.none() | rewards),
        metrics=draw(st.dictionaries(TEXT, FLOATS, max_size=2)),
        segment_starts=starts,
    )


@st.composite
def batches(draw: st.DrawFn) -> list[RolloutGroup]:
    """Return groups in no order of their places, with members that failed."""
    groups = []
    for index in draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=3, unique=True)):
        task = Task(task_id=f"t{index}", family="f", payload={}, difficulty=draw(st.integers(1, 5)))
        members = [draw(rollouts(f"train-{index}-{number}", task)) for number in range(draw(st.integers(1, 3)))]
        groups.append(RolloutGroup(task=task, index=index, rollouts=members, score_s=draw(FLOATS)))
    return groups


def readable(value: Any) -> Any:
    """Return a record with what UTF-8 has no word for replaced, as the file has it."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {readable(name): readable(item) for name, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value


def samples_of(groups: list[RolloutGroup], algorithm: AlgorithmConfig) -> list[dict[str, Any]]:
    samples = []
    for group in groups:
        advantages = group_advantages(group, algorithm, max_total_tokens=64)
        samples += [dataclasses.asdict(sample) for sample in build_samples(group, advantages, mask_truncated=False)]
    for sample in samples:
        for name in ("rollout_logprobs", "advantages"):
            sample[name] = struct.pack(f"{len(sample[name])}d", *sample[name])
    return samples


@settings(max_examples=200)
@given(batches())
def test_what_was_trained_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, groups: list[RolloutGroup]):
    """Groups and their order, members that were left out, rewards by turn, segments, and so every training sample."""
    path = tmp_path_factory.mktemp("groups") / "groups.jsonl"
    write_groups(path, groups)
    found = read_groups(path)
    assert [dataclasses.asdict(group) for group in found] == [readable(dataclasses.asdict(group)) for group in groups]
    for advantage in (Advantage.grpo, Advantage.reinforce):
        algorithm = AlgorithmConfig(advantage=advantage, overlong_buffer=8)
        assert samples_of(found, algorithm) == samples_of(groups, algorithm)


def test_a_group_of_a_recorded_task_keeps_both_names(tmp_path: Path) -> None:
    """Played from a file, the group's task is named by the file and the rollouts keep their own."""
    group = make_group(3, [1.0, None])
    renamed = dataclasses.replace(group, task=dataclasses.replace(group.task, task_id="0/train_000001/3"))
    write_groups(tmp_path / "groups.jsonl", [renamed])
    assert read_groups(tmp_path / "groups.jsonl") == [renamed]


@pytest.mark.parametrize(
    "change", [{"rollout_logprobs": [-1.0]}, {"token_versions": [[0, 3]]}, {"outcome": "lost"}, {"stages": [{"n": 1}]}]
)
def test_a_line_that_contradicts_itself_is_refused_by_file_and_line(tmp_path: Path, change: dict[str, Any]) -> None:
    path = RolloutRecorder(tmp_path).write(1, [make_group(3, [1.0])])
    path.write_text(path.read_text() + json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(DataError, match=r"train_000001.jsonl, line 2 must be a recorded rollout"):
        read_groups(path)


def test_groups_come_back_from_their_file(tmp_path: Path) -> None:
    groups = [make_group(3, [1.0, 0.25, None]), make_group(4, [0.0, 0.5], num_sampled=5)]
    path = RolloutRecorder(tmp_path).write(1, groups)
    recorded = RecordedGroups.read([path])
    assert recorded is not None
    assert [task.task_id for task in recorded.tasks] == ["0/train_000001/3", "0/train_000001/4"]
    for task, group in zip(recorded.tasks, groups, strict=True):
        found = asyncio.run(recorded.play(task, 17))
        assert found.index == 17
        for mine, theirs in zip(found.rollouts, group.rollouts, strict=True):
            same = dataclasses.replace(
                theirs,
                rollout_id=f"17/{theirs.rollout_id}",
                task=mine.task,
                token_versions=[-1] * len(theirs.token_ids),
            )
            assert mine == same
        assert found.oldest_version == -1


def test_no_files_mean_no_recorded_groups() -> None:
    assert RecordedGroups.read([]) is None


@pytest.mark.parametrize("text", ["", "\n", "{}", "nonsense", '{"index": 1}', "[1]"])
def test_files_without_rollouts_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r\u00e9sum\u00e9.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(path.name)):
        RecordedGroups.read([path])
    with pytest.raises(DataError, match="must be readable text"):
        RecordedGroups.read([tmp_path / "missing.jsonl"])


def test_files_of_two_runs_with_one_name_lose_nothing(tmp_path: Path) -> None:
    """Groups and rollouts that are named alike in both runs stay apart, and so does one group at two places."""
    rewards = ([1.0, 0.0], [0.25, 0.5])
    paths = [RolloutRecorder(tmp_path / str(run)).write(1, [make_group(3, rewards[run])]) for run in (0, 1)]
    recorded = RecordedGroups.read(paths)
    assert recorded is not None
    groups = [asyncio.run(recorded.play(recorded.tasks[run], place)) for place, run in enumerate((0, 1, 0))]
    found = [[rollout.reward.total for rollout in group.rollouts if rollout.reward] for group in groups]
    assert found == [rewards[0], rewards[1], rewards[0]]
    assert len({rollout.rollout_id for group in groups for rollout in group.rollouts}) == 6


def test_line_separators_inside_a_text_do_not_end_the_line(tmp_path: Path) -> None:
    """The recorder writes them as they are, and Python's `splitlines` would break there."""
    group = make_group(3, [1.0])
    odd = "one\u2028two\u0085three\x0bfour"
    group = dataclasses.replace(group, rollouts=[dataclasses.replace(group.rollouts[0], reason=odd)])
    recorded = RecordedGroups.read([RolloutRecorder(tmp_path).write(1, [group])])
    assert recorded is not None
    [rollout] = asyncio.run(recorded.play(recorded.tasks[0], 0)).rollouts
    assert rollout.reason == odd
