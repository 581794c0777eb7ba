"""KTO examples and GRPO groups from traces, and their files."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from skyrl_nat.data.traces.dataset_files import read_rows, to_hf_dataset, write_rows
from skyrl_nat.data.traces.datasets import GROUP_SCHEMA, KTO_SCHEMA, Balance, KtoSet, grpo_groups, kto_examples
from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.data.traces.verdicts import parse_label, parse_reward
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.rollouts.tool_calls import split_tool_calls


def says(text: str, role: str = "assistant") -> TraceStep:
    return TraceStep(kind=StepKind.message, role=role, text=text)


def calls(tool: str, answer: str = "ok", **arguments: Any) -> TraceStep:
    return TraceStep(kind=StepKind.tool, tool=tool, arguments=arguments, text=answer)


def trace(name: str, *steps: TraceStep, **fields: Any) -> Trace:
    return Trace(
        **{"trace_id": name, "source": "chat", "request": f"Do {name}", "steps": steps or (says("Done"),)} | fields
    )


def labelled(*labels: Any) -> list[Trace]:
    return [trace(f"t{index:02d}", labels={"label": label}) for index, label in enumerate(labels)]


def rewarded(*rewards: Any) -> list[Trace]:
    return [trace(f"t{index:02d}", reward=reward) for index, reward in enumerate(rewards)]


def adds_up(found: KtoSet) -> bool:
    counted = found.num_good + found.num_bad
    return len(found.examples) == counted and counted + sum(found.left_out.values()) == found.num_traces


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        *((value, True) for value in (True, 1, "True", "true", " YES ", "1", "good")),
        *((value, False) for value in (False, 0, "False", "0", "no", "No", "bad")),
    ],
)
def test_ds_13_labels_are_read_by_what_they_say(value: Any, is_good: bool) -> None:
    assert parse_label(value) is is_good


@pytest.mark.parametrize("value", [None, "", "null", "None", "maybe", 2, -1, 0.0, 1.0, math.nan, [], ["True"], {}])
def test_ds_13_what_is_no_label_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match="A label must be true or false"):
        parse_label(value)


def test_ds_13_text_labels_reach_the_right_class() -> None:
    found = kto_examples(labelled("True", "False", "0", 1, "no", True), balance=Balance.weights)
    assert [row["label"] for row in found.examples] == [True, False, False, True, False, True]


def test_ds_13_null_is_refused_with_the_trace() -> None:
    with pytest.raises(DataError, match=r"Trace t01, label: A label must be .* got None"):
        kto_examples(labelled(True, None, False))


@pytest.mark.parametrize(("label", "counts"), [(True, "20 good and 0 bad"), (False, "0 good and 20 bad")])
def test_ds_13_one_class_is_refused_with_the_consequence(label: bool, counts: str) -> None:
    with pytest.raises(DataError, match=f"got {counts}: with one class nothing holds the other way"):
        kto_examples(labelled(*[label] * 20))


def test_ds_13_weights_reflect_the_counts() -> None:
    found = kto_examples(labelled(*[True] * 6, *[False] * 2), balance=Balance.weights)
    assert (found.num_good, found.num_bad) == (6, 2)
    assert (found.desirable_weight, found.undesirable_weight) == (1.0, 3.0)
    other = kto_examples(labelled(True, *[False] * 5), balance=Balance.weights)
    assert (other.desirable_weight, other.undesirable_weight) == (5.0, 1.0)
    assert adds_up(found)
    assert adds_up(other)


def test_ds_13_the_larger_class_is_drawn_down_by_the_seed_alone() -> None:
    traces = labelled(*[True] * 12, *[False] * 3)
    found = kto_examples(traces, seed=7)
    assert (found.num_good, found.num_bad, found.left_out) == (3, 3, {"down-sampled": 9})
    assert (found.desirable_weight, found.undesirable_weight) == (1.0, 1.0)
    assert adds_up(found)
    names = {row["trace_id"] for row in found.examples}
    assert {row["trace_id"] for row in kto_examples(traces[::-1], seed=7).examples} == names
    assert len({frozenset(r["trace_id"] for r in kto_examples(traces, seed=s).examples) for s in range(8)}) > 1


def test_ds_14_odd_rewards_are_converted_by_rule_or_left_out_and_counted() -> None:
    rewards = [0.7, "0.7", None, math.nan, math.inf, -math.inf, 0.5, 0.49999, "nan", "0,7", True, 1.5, 0, 1]
    found = kto_examples(rewarded(*rewards), threshold=0.5, balance=Balance.weights)
    assert {row["trace_id"]: row["label"] for row in found.examples} == {
        "t00": True,
        "t01": True,
        "t06": True,
        "t07": False,
        "t12": False,
        "t13": True,
    }
    assert found.left_out == {
        "no reward": 1,
        "the reward is NaN": 1,
        "the reward is infinite": 2,
        "the reward is no number": 3,
        "the reward is outside [0, 1]": 1,
    }
    assert (found.num_traces, found.num_good, found.num_bad) == (14, 4, 2)
    assert adds_up(found)


@pytest.mark.parametrize("text", ["0.7", " 0.7\n", "+.7", "7e-1", "0.70"])
def test_ds_14_text_that_is_a_whole_decimal_number_is_converted(text: str) -> None:
    assert parse_reward(text) == (0.7, "")


@pytest.mark.parametrize("text", ["", "nan", "inf", "70%", "0,7", "0x1", "1_0", "\u0660.\u0667", "0.7 good", "1e"])
def test_ds_14_other_text_is_no_reward(text: str) -> None:
    assert parse_reward(text) == (None, "the reward is no number")


def test_ds_14_text_too_large_for_a_number_is_infinite() -> None:
    assert parse_reward("1e999") == (None, "the reward is infinite")


@pytest.mark.parametrize(("threshold", "num_good"), [(0.25, 3), (0.5, 2), (0.75, 1)])
def test_ds_14_a_reward_at_the_threshold_is_good(threshold: float, num_good: int) -> None:
    found = kto_examples(rewarded(0.0, 0.25, 0.5, 0.75), threshold=threshold, balance=Balance.weights)
    assert (found.num_good, found.num_bad) == (num_good, 4 - num_good)


@pytest.mark.parametrize("threshold", [0, -0.1, 1.1, math.nan, math.inf])
def test_ds_14_a_threshold_that_empties_a_class_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match=r"threshold must be in \(0, 1\]"):
        kto_examples(rewarded(0.0, 1.0), threshold=threshold)


def test_a_manual_label_stands_above_the_reward() -> None:
    traces = [trace("a", reward=1.0, labels={"label": False}), trace("b", reward=math.nan, labels={"label": True})]
    found = kto_examples([*traces, trace("c", reward=0.9), trace("d", reward=0.1)], balance=Balance.weights)
    assert {row["trace_id"]: row["label"] for row in found.examples} == {"a": False, "b": True, "c": True, "d": False}
    assert found.by_source == {"label": 2, "reward": 2}


def test_the_prompt_is_all_before_the_last_thing_that_the_agent_did() -> None:
    steps = (
        says("You are an agent", "system"),
        says("List files", "user"),
        TraceStep(kind=StepKind.reasoning, text="hm"),
        calls("bash", "a.py", command="ls", n=1),
        says("There is a.py"),
        says("Thanks", "user"),
    )
    row = kto_examples([trace("a", *steps, reward=1, task_id="k"), *rewarded(0)]).examples[0]
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls", "n": 1}'}}
    assert row == {
        "prompt": [
            {"role": "system", "content": "You are an agent", "tool_calls": [], "tool_call_id": ""},
            {"role": "user", "content": "List files", "tool_calls": [], "tool_call_id": ""},
            {"role": "assistant", "content": "", "tool_calls": [call], "tool_call_id": ""},
            {"role": "tool", "content": "a.py", "tool_calls": [], "tool_call_id": "call_1"},
        ],
        "completion": "There is a.py",
        "label": True,
        "trace_id": "a",
        "task_id": "k",
    }


def test_a_trace_that_ends_with_a_call_is_completed_by_it_as_this_project_reads_calls() -> None:
    traces = [trace("a", says("First"), calls("finish", message='say "ö"'), reward=1), *rewarded(0)]
    row = kto_examples(traces).examples[0]
    _, (call,) = split_tool_calls(row["completion"])
    assert (call.name, call.arguments) == ("finish", {"message": 'say "ö"'})
    assert [message["content"] for message in row["prompt"]] == ["Do a", "First"]


def test_traces_that_make_no_example_are_counted_by_reason() -> None:
    traces = [
        *rewarded(1.0, 0.0),
        trace("t00", reward=0.0),
        trace("silent", says("Hello", "user"), reward=1.0),
        trace("blank", says(" \n"), reward=1.0),
        trace("unasked", request=" ", reward=1.0),
        trace("broken", says("\ud800"), reward=1.0),
        trace("nan", calls("bash", n=math.nan), says("Done"), reward=1.0),
        trace("object", calls("bash", n={1}), says("Done"), reward=1.0),
    ]
    found = kto_examples(traces)
    assert found.left_out == {
        "the trace came before": 1,
        "the agent neither said nor did anything": 2,
        "nothing was asked": 1,
        "it holds what is neither UTF-8 nor JSON": 3,
    }
    assert adds_up(found)


def test_groups_hold_the_rewarded_traces_of_one_task() -> None:
    rewards = {"a": [1.0, 0.0, None], "b": [0.5, "0.5"], "c": [0.3], "": [0.1, 0.2], "d": [0.2, math.nan, 0.4]}
    traces = [
        trace(f"{task}{index}", reward=reward, task_id=task)
        for task, found in rewards.items()
        for index, reward in enumerate(found)
    ]
    found = grpo_groups([*traces, traces[0]])
    members = {row["task_id"]: [(m["trace_id"], m["reward"]) for m in row["members"]] for row in found.groups}
    assert members == {"a": [("a0", 1.0), ("a1", 0.0)], "d": [("d0", 0.2), ("d2", 0.4)]}
    assert [[m["trace_id"] for m in row["members"]] for row in found.equal_groups] == [["b0", "b1"]]
    assert found.left_out == {
        "no reward": 1,
        "alone with its task": 1,
        "no task": 2,
        "the reward is NaN": 1,
        "the trace came before": 1,
    }
    num_members = sum(len(row["members"]) for row in found.groups + found.equal_groups)
    assert num_members + sum(found.left_out.values()) == found.num_traces == 12
    assert found.num_mixed_prompts == 3  # every request of these traces is another one


def test_members_of_a_group_keep_their_whole_way() -> None:
    steps = (says("Go", "user"), calls("bash", "x", command="ls"), says("Done"))
    found = grpo_groups([trace(name, *steps, reward=r, task_id="k") for name, r in (("a", 0.0), ("b", 1.0))])
    member = found.groups[0]["members"][0]
    assert [message["role"] for message in member["prompt"]] == ["user"]
    assert [message["role"] for message in member["messages"]] == ["assistant", "tool", "assistant"]
    assert found.num_mixed_prompts == 0


ODD_TEXT = 'a\r\nb\x85c \u2028 \x00 "q" ö 😀'


def rich_rows() -> tuple[list[dict], list[dict]]:
    steps = (
        says(ODD_TEXT, "user"),
        calls("edit", ODD_TEXT, path="ö", deep={"n": [1, 2.5, None, True]}),
        says(ODD_TEXT),
    )
    traces = [trace("a", *steps, reward=1, task_id="k"), trace("b", reward=0.1 + 0.2, task_id="k")]
    return kto_examples(traces).examples, grpo_groups(traces).groups


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_files_come_back_exactly(tmp_path: Path, ending: str) -> None:
    for rows, schema in zip(rich_rows(), (KTO_SCHEMA, GROUP_SCHEMA), strict=True):
        path = tmp_path / "new" / f"rows.{ending}"
        write_rows(rows, path, schema)
        assert read_rows(path, schema) == rows
        assert [found.name for found in path.parent.iterdir()] == [path.name]
        assert rows


def test_arguments_are_json_text_in_the_file(tmp_path: Path) -> None:
    rows, _ = rich_rows()
    write_rows(rows, tmp_path / "rows.parquet", KTO_SCHEMA)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.equals(KTO_SCHEMA)
    arguments = table.column("prompt")[0].as_py()[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"path": "ö", "deep": {"n": [1, 2.5, None, True]}}


def test_the_hugging_face_data_set_holds_exactly_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from datasets import Features, load_dataset

    for rows, schema in zip(rich_rows(), (KTO_SCHEMA, GROUP_SCHEMA), strict=True):
        assert to_hf_dataset(rows, schema).to_list() == rows
        write_rows(rows, tmp_path / "rows.parquet", schema)
        write_rows(rows, tmp_path / "rows.jsonl", schema)
        for kind, name in (("parquet", "rows.parquet"), ("json", "rows.jsonl")):
            loaded = load_dataset(
                kind,
                data_files=str(tmp_path / name),
                split="train",
                features=Features.from_arrow_schema(schema),
                cache_dir=str(tmp_path / f"cache-{kind}-{len(schema)}"),
            )
            assert loaded.to_list() == rows


def test_without_the_library_the_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match="pip install datasets"):
        to_hf_dataset([], KTO_SCHEMA)


def test_an_empty_data_set_comes_back_empty(tmp_path: Path) -> None:
    for name in ("rows.jsonl", "rows.parquet"):
        write_rows([], tmp_path / name, KTO_SCHEMA)
        assert read_rows(tmp_path / name, KTO_SCHEMA) == []


def test_rows_that_do_not_fit_are_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    rows, groups = rich_rows()
    path = tmp_path / "rows.jsonl"
    write_rows(rows, path, KTO_SCHEMA)
    before = path.read_bytes()
    odd = [rows[0] | {"label": "yes"}, rows[0] | {"more": 1}, {"prompt": []}, rows[0] | {"completion": "\ud800"}]
    for row in [*odd, groups[0]]:
        with pytest.raises(DataError, match="Every row must have"):
            write_rows([rows[0], row], path, KTO_SCHEMA)
    assert path.read_bytes() == before
    with pytest.raises(DataError, match=r"must be a .jsonl or .parquet file, got rows.csv"):
        write_rows(rows, tmp_path / "rows.csv", KTO_SCHEMA)
    assert [found.name for found in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_files_of_something_else_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(DataError, match="Export it again"):
        read_rows(path, KTO_SCHEMA)
    path.write_text('{"a": 1}\n')
    with pytest.raises(DataError, match="Export it again"):
        read_rows(path, KTO_SCHEMA)
    write_rows(rich_rows()[1], path, GROUP_SCHEMA)
    with pytest.raises(DataError, match="Export it again"):
        read_rows(path, KTO_SCHEMA)
