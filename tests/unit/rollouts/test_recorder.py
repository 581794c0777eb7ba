"""Rollouts as JSON lines."""

import errno
import json
import math
from pathlib import Path

import numpy as np
import pytest

from skyrl_nat.monitoring.metrics import group_metrics
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.rollouts.recorder import RolloutRecorder, encode_group, shortest_floats, without_seconds
from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, RolloutGroup, Task, Turn

TASK = Task(task_id="t", family="f", payload={}, hidden={"secret": "s3cret"})


def group(text: str, seconds: float = 0.5) -> RolloutGroup:
    turn = Turn(
        completion_text=text,
        observations=[{"role": "user", "content": "seen"}],
        num_prompt_tokens=2,
        num_completion_tokens=1,
        finish_reason=FinishReason.STOP,
        generate_s=seconds,
        environment_s=seconds / 2,
    )
    rollout = Rollout(
        rollout_id="r-0",
        task=TASK.visible(),
        token_ids=[1, 2, 3, 4],
        loss_mask=[False, False, True, True],
        rollout_logprobs=[0.0, 0.0, -0.5, 0.0],
        token_versions=[-1, -1, 4, 5],
        turns=[turn],
        prompt=[{"role": "user", "content": "do"}],
        outcome=Outcome.FINISHED,
        reward=RewardResult(total=0.5, parts={"p": 1.0}, is_success=False, findings=["f"]),
    )
    return RolloutGroup(task=TASK, index=3, rollouts=[rollout], score_s=seconds)


def test_every_turn_part_and_outcome_is_written_and_nothing_hidden(tmp_path):
    path = RolloutRecorder(tmp_path).write(7, [group("answer")])
    assert path.name == "train_000007.jsonl"
    record = json.loads(path.read_text())
    assert record["turns"][0]["completion"] == "answer"
    assert record["turns"][0]["observations"] == [{"role": "user", "content": "seen"}]
    assert (record["reward"], record["reward_parts"], record["outcome"]) == (0.5, {"p": 1.0}, "finished")
    assert (record["oldest_version"], record["newest_version"], record["loss_mask"]) == (4, 5, "0011")
    assert record["rollout_logprobs"] == [-0.5, 0.0]
    assert record["token_versions"] == [[4, 1], [5, 1]]
    assert "s3cret" not in path.read_text()


def test_lone_surrogates_and_controls_do_not_lose_the_batch(tmp_path):
    """DS-10."""
    text = "a\ud800b\x00c \u202e \U0001f600 e\u0301"
    path = RolloutRecorder(tmp_path).write(1, [group("fine"), group(text)])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines[0]["turns"][0]["completion"] == "fine"
    assert lines[1]["turns"][0]["completion"] == text.replace("\ud800", "\ufffd")


def test_a_step_played_again_replaces_its_file(tmp_path):
    recorder = RolloutRecorder(tmp_path)
    recorder.write(1, [group("old")])
    path = recorder.write(1, [group("new")])
    assert [json.loads(line)["turns"][0]["completion"] for line in path.open()] == ["new"]


def test_files_of_later_steps_are_set_aside_and_no_others(tmp_path):
    recorder = RolloutRecorder(tmp_path)
    for step in (2, 3, 11):
        recorder.write(step, [group(f"old {step}")])
    recorder.write(2, [group("judged")], label="eval")
    recorder.write(3, [group("judged")], label="eval")
    for step in (2, 3):
        recorder.write_trained(step, {"sizes": np.array([step])})
    (tmp_path / "notes.jsonl").touch()
    (tmp_path / "train_000003.abandoned").write_text("from an earlier start")
    recorder.set_aside(2)
    recorder.write(3, [group("new")])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "eval_000002.jsonl",
        "eval_000003.abandoned",
        "notes.jsonl",
        "train_000002.jsonl",
        "train_000003.abandoned",
        "train_000003.jsonl",
        "train_000011.abandoned",
        "trained_000002.npz",
        "trained_000003.abandoned",
    ]
    assert "old 3" in (tmp_path / "train_000003.abandoned").read_text()
    assert "new" in (tmp_path / "train_000003.jsonl").read_text()


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch: pytest.MonkeyPatch):
    recorder = RolloutRecorder(tmp_path)
    recorder.write(7, [group("answer")])
    before = (tmp_path / "train_000007.jsonl").read_text()

    def write_half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="No space left"):
        recorder.write(7, [group("answer")])
    assert [path.name for path in tmp_path.iterdir()] == ["train_000007.jsonl"]
    assert (tmp_path / "train_000007.jsonl").read_text() == before


def test_what_training_said_of_a_step_replaces_what_was_there_or_leaves_nothing(tmp_path, monkeypatch):
    """A full disk in the middle included."""
    recorder = RolloutRecorder(tmp_path)
    columns = {"sample_ids": np.array(["a", "b#1"]), "logprobs": np.array([-0.5, -1.5], dtype=np.float32)}
    for _ in range(2):
        path = recorder.write_trained(4, columns)
    assert path.name == "trained_000004.npz"
    with np.load(path, allow_pickle=False) as file:
        assert {name: file[name].tolist() for name in file} == {name: value.tolist() for name, value in columns.items()}
    before = path.read_bytes()

    def write_half(file, **_) -> None:
        file.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", write_half)
    with pytest.raises(OSError, match="No space left"):
        recorder.write_trained(4, columns)
    assert [one.name for one in tmp_path.iterdir()] == ["trained_000004.npz"]
    assert path.read_bytes() == before


def test_a_group_without_its_seconds_is_the_same_bytes_whenever_it_was_played(tmp_path):
    """And is read back as what it is: seconds that are not known."""
    groups = [group("answer", seconds=seconds) for seconds in (1.5, 2.5)]
    quick, slow = (encode_group(without_seconds(one)) for one in groups)
    assert quick == slow != encode_group(groups[0])
    (tmp_path / "eval.jsonl").write_bytes(quick)
    (read,) = read_groups(tmp_path / "eval.jsonl")
    assert math.isnan(read.score_s) and math.isnan(read.rollouts[0].turns[0].generate_s)
    assert "rollout/generate_s/mean" not in group_metrics([read])


def test_log_probs_are_written_short_and_keep_every_bit():
    """Any fp32 pattern, subnormal and negative zero included; a double in between goes to the nearest."""
    assert json.dumps(shortest_floats([float(np.float32(-0.1)), -0.1, -12.5])) == "[-0.1, -0.1, -12.5]"
    patterns = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    values = np.concatenate([patterns.view(np.float32), np.array([-0.0, 1e-45, -3.4028235e38], dtype=np.float32)])
    values = values[np.isfinite(values)]
    read = np.array(json.loads(json.dumps(shortest_floats(values.tolist()))), dtype=np.float32)
    assert (read.view(np.uint32) == values.view(np.uint32)).all()
    some = [*values[:2000].tolist(), *np.log(np.random.default_rng(1).random(2000)).tolist()]
    fewest = [float(str(value)) for value in np.array(some, dtype=np.float32)]
    assert shortest_floats(some) == fewest
