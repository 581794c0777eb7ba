"""The commands for recorded traces, as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat import cli
from skyrl_nat.data.traces import label_page
from skyrl_nat.data.traces.dataset_files import read_rows
from skyrl_nat.data.traces.datasets import GROUP_SCHEMA, KTO_SCHEMA
from skyrl_nat.data.traces.labels import LabelFile, Mark
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.record_json import to_json
from skyrl_nat.data.traces.store import TraceStore

SAMPLES = Path(__file__).parent / "samples"
GOOD, BAD = "```python\nprint(6 * 7)\n```", "```python\nprint(6 *\n```"


def trace(name: str, text: str = "done", **fields: Any) -> Trace:
    said = TraceStep(kind=StepKind.message, text=text)
    return Trace(**{"trace_id": name, "source": "hook", "request": f"Do {name}", "steps": (said,)} | fields)


def run(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> str:
    """Run a command and return what it printed; where it fails, what it said."""
    capsys.readouterr()
    assert cli.main([str(argument) for argument in arguments]) == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


def chat_row(number: int, secret: str = "") -> dict[str, Any]:
    messages = [{"role": "user", "content": f"say {number}"}, {"role": "assistant", "content": f"{number} {secret}"}]
    return {"messages": messages, "reward": number / 4}


def test_label_serves_a_store_with_suggestions_and_the_marks_so_far(monkeypatch, tmp_path):
    store = TraceStore(tmp_path)
    outcomes = {"a": TraceOutcome.success, "b": TraceOutcome.failure, "c": TraceOutcome.success}
    said = TraceStep(kind=StepKind.message, text="done")
    store.append(Trace(trace_id=i, source="hook", request="x", steps=(said,), outcome=o) for i, o in outcomes.items())
    LabelFile(tmp_path / "labels.jsonl").add("c", Mark.bad, by="me")
    seen = {}
    monkeypatch.setattr(
        label_page, "serve_labels", lambda traces, file, **where: seen.update(t=traces, f=file, **where)
    )
    assert cli.main(["label", str(tmp_path), "--port", "0"]) == 0
    assert (seen["f"], seen["host"], seen["port"]) == (tmp_path / "labels.jsonl", "127.0.0.1", 0)
    assert {trace.trace_id: trace.labels.get("suggested_label") for trace in seen["t"]} == {
        "a": True,
        "b": False,
        "c": None,
    }
    assert seen["t"][-1].labels == {"label": False}


def test_label_of_a_folder_that_is_no_store_is_one_sentence(capsys, tmp_path):
    assert cli.main(["label", str(tmp_path / "missing")]) == 2
    assert "A trace store must be a folder" in capsys.readouterr().err


def test_chat_logs_are_collected_without_secrets_and_form_the_group_of_their_task(capsys, tmp_path):
    log, store = tmp_path / "log.jsonl", tmp_path / "store"
    rows = [chat_row(0), chat_row(1, "sk-" + "a1B2" * 12), chat_row(4)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no json\n")
    told = json.loads(run(capsys, "traces", "collect", store, log, "--from", "chat", "--task", "t/1"))
    assert (told["traces"], told["left_out"], sum(told["secrets_taken_out"].values())) == (
        3,
        {"line that is no JSON": 1},
        1,
    )
    assert "a1B2" not in "".join(path.read_text() for path in store.rglob("*.jsonl"))
    groups = tmp_path / "groups.jsonl"
    told = json.loads(run(capsys, "traces", "export", store, groups, "--as", "grpo", "--no-execution"))
    assert (told["rows"], told["num_traces"], told["left_out"], told["num_equal_groups"]) == (1, 3, {}, 0)
    [group] = read_rows(groups, GROUP_SCHEMA)
    assert group["task_id"] == "t/1"
    assert [member["reward"] for member in group["members"]] == [0.0, 0.25, 1.0]


def test_nat_steps_and_conversations_and_checkpoints_come_from_their_own_files(capsys, tmp_path):
    store = tmp_path / "store"
    for kind, path, count in (("nat", SAMPLES / "nat_steps.jsonl", 3), ("openhands", SAMPLES / "openhands", 1)):
        told = json.loads(run(capsys, "traces", "collect", store, path, "--from", kind))
        assert told["traces"] >= count, kind
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (1, 2):
        (folder / f"step_{step}.jsonl").write_text("".join(to_json(trace(str(n))) + "\n" for n in range(step + 1)))
    told = json.loads(run(capsys, "traces", "collect", store, folder, "--from", "checkpoints"))
    assert told["traces"] == 3
    by_source = json.loads(run(capsys, "traces", "report", store, "--json"))["by_source"]
    assert {"nat", "openhands", "hook"} <= set(by_source)
    assert "# Traces" in run(capsys, "traces", "report", store)


@pytest.mark.parametrize(("suffix", "marks"), [(".parquet", 0), (".jsonl", 2)])
def test_preferences_follow_marks_and_else_the_code_that_really_ran(capsys, tmp_path, suffix, marks):
    TraceStore(tmp_path / "store").append([trace("a", GOOD), trace("b", BAD), trace("c", GOOD), trace("d", BAD)])
    for name in "ad"[:marks]:
        mark = Mark.bad if name == "a" else Mark.good
        LabelFile(tmp_path / "store" / "labels.jsonl").add(name, mark, by="me")
    out = tmp_path / f"kto{suffix}"
    options = ("--as", "kto", "--weights", "executes=1,syntax=0,completion=0,efficiency=0,format=0,tool_success=0")
    told = json.loads(run(capsys, "traces", "export", tmp_path / "store", out, *options))
    labels = {row["trace_id"]: row["label"] for row in read_rows(out, KTO_SCHEMA)}
    assert labels == {"a": marks == 0, "b": False, "c": True, "d": marks > 0}
    assert told["by_source"] == ({"reward": 4} if not marks else {"label": 2, "reward": 2})


def test_a_hugging_face_data_set_is_a_folder(capsys, tmp_path):
    from datasets import load_from_disk

    TraceStore(tmp_path / "store").append([trace("a", reward=1.0), trace("b", reward=0.0)])
    run(capsys, "traces", "export", tmp_path / "store", tmp_path / "kto", "--as", "kto", "--no-execution")
    assert load_from_disk(tmp_path / "kto")["label"] == [True, False]


def test_a_reward_is_learned_of_marks_and_used_in_an_export(capsys, tmp_path):
    store, reward = tmp_path / "store", tmp_path / "reward.json"
    outcomes = [TraceOutcome.success, TraceOutcome.failure] * 15
    long_or_short = ["short", "word " * 80]
    TraceStore(store).append(
        trace(f"{n:02d}", long_or_short[n % 2], outcome=outcome, request=f"r{n}") for n, outcome in enumerate(outcomes)
    )
    told = run(capsys, "traces", "learn", store, reward, code=2)
    assert "must have at least" in told
    assert not reward.exists()
    for number in range(30):
        mark = Mark.bad if number % 2 else Mark.good
        LabelFile(store / "labels.jsonl").add(f"{number:02d}", mark, by="me")
    quality = json.loads(run(capsys, "traces", "learn", store, reward))
    assert quality["auc"] == 1.0
    TraceStore(store).append([trace("new good"), trace("new bad", "word " * 80)])
    options = ("--as", "kto", "--no-execution", "--learned", reward, "--weights", "learned=1,efficiency=0")
    run(capsys, "traces", "export", store, tmp_path / "kto.jsonl", *options, "--labels", tmp_path / "none.jsonl")
    labels = {row["trace_id"]: row["label"] for row in read_rows(tmp_path / "kto.jsonl", KTO_SCHEMA)}
    assert (labels["new good"], labels["new bad"]) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("collect", "store", "missing.jsonl", "--from", "chat"), "must be a file that can be read"),
        (("collect", "store", "a", "b", "--from", "openhands"), "must be given one folder"),
        (("export", "missing", "x.parquet", "--as", "kto", "--no-execution"), "A trace store must be a folder"),
        (("export", "full", "x.csv", "--as", "kto", "--no-execution"), "must be a .jsonl or .parquet file"),
        (("export", "full", "x.parquet", "--as", "kto", "--weights", "syntax"), "weights must be written as"),
        (("export", "full", "x.parquet", "--as", "kto", "--weights", "magic=1"), "weights.magic must be one of"),
        (("export", "full", "x.parquet", "--as", "grpo", "--no-execution"), "A data set must have a row"),
        (("export", "full", "x.parquet", "--as", "kto", "--learned", "no.json"), "must be a learned reward"),
    ],
)
def test_bad_input_is_one_sentence(capsys, monkeypatch, tmp_path, arguments, text):
    monkeypatch.chdir(tmp_path)
    TraceStore(tmp_path / "full").append([trace("a", reward=1.0), trace("b", reward=0.0)])
    said = run(capsys, "traces", *arguments, code=2)
    assert text in said
    assert said.count("skyrl-nat:") == 1
