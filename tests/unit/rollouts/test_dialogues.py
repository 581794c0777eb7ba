"""Dialogues become rollouts: what is learned, how good it is, and what is refused."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_model import make_tiny_model

from skyrl_nat.config.load import load_config
from skyrl_nat.controller.opening import load_data
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.dialogues import rollout_of_dialogue
from skyrl_nat.rollouts.recorded import RecordedGroups
from skyrl_nat.types import Outcome, RolloutGroup

ASK = {"role": "user", "content": "write it"}
SAY = {"role": "assistant", "content": "here it is"}
THANK = {"role": "user", "content": "one more"}
AGAIN = {"role": "assistant", "content": "another"}


@pytest.fixture(scope="module")
def codec(tmp_path_factory: pytest.TempPathFactory) -> ChatCodec:
    return ChatCodec.from_folder(make_tiny_model(tmp_path_factory.mktemp("tiny")))


def read(path: Path, codec: ChatCodec) -> list[RolloutGroup]:
    recorded = RecordedGroups.read([path], lambda: codec)
    assert recorded is not None
    return [asyncio.run(recorded.play(task, index)) for index, task in enumerate(recorded.tasks)]


def learned(rollout: Any, codec: ChatCodec) -> str:
    return codec.show([token for token, is_in in zip(rollout.token_ids, rollout.loss_mask, strict=True) if is_in])


def test_every_assistant_message_of_an_episode_is_learned_and_nothing_else(codec: ChatCodec) -> None:
    rollout = rollout_of_dialogue({"messages": [ASK, SAY, THANK, AGAIN]}, "x", codec)
    prompt = codec.prompt_tokens([ASK])
    eos = codec.eos_token_id
    first = [*prompt, *codec.encode("here it is"), eos]
    assert rollout.token_ids == [*first, *codec.continuation_tokens([THANK]), *codec.encode("another"), eos]
    assert not any(rollout.loss_mask[: len(prompt)])
    assert [token for token, bit in zip(rollout.token_ids, rollout.loss_mask, strict=True) if bit] == [
        *codec.encode("here it is"), eos, *codec.encode("another"), eos,
    ]  # fmt: skip
    assert [turn.completion_text for turn in rollout.turns] == ["here it is", "another"]
    assert rollout.outcome is Outcome.FINISHED
    assert rollout.reward is not None
    assert (rollout.reward.total, rollout.reward.is_success) == (1.0, True)
    assert set(rollout.token_versions) == {-1}
    assert set(rollout.rollout_logprobs) == {0.0}


def test_of_a_prompt_and_what_follows_it_only_what_follows_is_learned(codec: ChatCodec) -> None:
    whole = rollout_of_dialogue({"messages": [ASK, SAY, THANK, AGAIN]}, "x", codec)
    for prompt, messages in (([ASK, SAY], [THANK, AGAIN]), ([ASK, SAY, THANK], [AGAIN])):
        rollout = rollout_of_dialogue({"prompt": prompt, "messages": messages}, "x", codec)
        assert rollout.token_ids == whole.token_ids
        assert [turn.completion_text for turn in rollout.turns] == ["another"]
        assert rollout.num_loss_tokens == len(codec.encode("another")) + 1


def test_of_prompt_and_completion_only_the_completion_is_learned(codec: ChatCodec) -> None:
    row = {"prompt": [ASK, SAY, THANK], "completion": "another", "label": False}
    rollout = rollout_of_dialogue(row, "x", codec)
    assert rollout.token_ids[: -rollout.num_loss_tokens] == codec.prompt_tokens([ASK, SAY, THANK])
    assert learned(rollout, codec).startswith("another")
    assert rollout.reward is not None
    assert (rollout.reward.total, rollout.reward.is_success) == (0.0, False)


@pytest.mark.parametrize(
    ("verdict", "total", "is_success"),
    [({"reward": 0.5}, 0.5, True), ({"reward": 0.49}, 0.49, False), ({"reward": 0.9, "label": False}, 0.9, False)],
)
def test_rewards_and_labels_are_kept(codec: ChatCodec, verdict: Any, total: float, is_success: bool) -> None:
    rollout = rollout_of_dialogue({"prompt": "hi", "completion": "ho"} | verdict, "x", codec)
    assert rollout.reward is not None
    assert (rollout.reward.total, rollout.reward.is_success) == (total, is_success)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_of_one_task_form_a_group(codec: ChatCodec, tmp_path: Path, suffix: str) -> None:
    rows = [
        {"prompt": [ASK], "completion": text, "label": text == "a", "task_id": task}
        for task, text in (("one", "a"), ("two", "b"), ("one", "c"))
    ]
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist([row | {"prompt": json.dumps(row["prompt"])} for row in rows]), path)
    groups = read(path, codec)
    texts = [[rollout.turns[0].completion_text for rollout in group.rollouts] for group in groups]
    assert texts == [["a", "c"], ["b"]]
    assert [group.task.task_id for group in groups] == ["0/rows/one", "0/rows/two"]
    assert len({rollout.rollout_id for group in groups for rollout in group.rollouts}) == 3


def test_rows_without_a_task_stand_alone(codec: ChatCodec, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"messages": [ASK, SAY]}) + "\n" for _ in range(3)))
    assert [len(group.rollouts) for group in read(path, codec)] == [1, 1, 1]


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [ASK]},
        {"messages": [SAY, ASK]},
        {"messages": []},
        {"messages": [ASK, SAY, AGAIN]},
        {"messages": [ASK, {"role": "robot", "content": "x"}, SAY]},
        {"messages": [ASK, {"role": "assistant", "content": None}]},
        {"prompt": [ASK, SAY], "messages": [THANK]},
        {"prompt": [ASK], "completion": 3},
        {"prompt": [ASK], "completion": "a", "label": "False"},
        {"prompt": [ASK], "completion": "a", "label": 1},
        {"prompt": [ASK], "completion": "a", "reward": "0.7"},
        {"prompt": [ASK], "completion": "a", "reward": float("nan")},
        {"completion": "a"},
    ],
)
def test_bad_rows_are_refused_with_file_and_line(codec: ChatCodec, tmp_path: Path, row: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [ASK, SAY]}) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(DataError, match=re.escape(f"{path}, line 2 must be")):
        read(path, codec)


def test_broken_parquet_file_is_refused(codec: ChatCodec, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_text("no parquet")
    with pytest.raises(DataError, match=r"rows\.parquet must be a readable parquet file"):
        read(path, codec)


def test_dialogues_have_no_logprobs_and_losses_that_need_them_are_refused(codec: ChatCodec, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": [ASK, SAY]}) + "\n")
    recorded = RecordedGroups.read([path], lambda: codec)
    assert recorded is not None
    assert not recorded.has_logprobs
    model = make_tiny_model(tmp_path / "model")
    given = [f"model.path={model}", f"environment.recorded_files=[{path}]", "trainer.tasks_per_step=1"]
    with pytest.raises(ConfigError, match="Use algorithm=kto, sft or offline_grpo"):
        load_data(load_config([*given, "algorithm=grpo", "algorithm.old_logprobs=rollout"]))
    for name in ("kto", "sft", "offline_grpo"):
        assert load_data(load_config([*given, f"algorithm={name}"])).recorded is not None
