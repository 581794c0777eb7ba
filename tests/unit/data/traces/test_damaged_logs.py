"""Logs with values of any kind in any place: collectors count them, and give whole traces or a clear refusal."""

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.chat_logs import read_chat_logs
from skyrl_nat.data.traces.checkpoints import read_checkpoints
from skyrl_nat.data.traces.collected import Collected
from skyrl_nat.data.traces.nat_steps import read_nat_steps
from skyrl_nat.data.traces.openhands import read_conversations
from skyrl_nat.data.traces.record_json import to_json, trace_of

SAMPLES = Path(__file__).parent / "samples"
ODD = [None, 5, -1, True, "", "x", [], {}, [1], {"a": 1}, 1e300, "\ud800", [[]], {"text": None}, [None], 10**400]
MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "q"}]},
    {
        "role": "assistant",
        "reasoning_content": "r",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "12"},
]
PAIR = {
    "request": {"model": "m", "messages": MESSAGES},
    "response": {
        "created": 1,
        "choices": [{"message": {"role": "assistant", "content": "x"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    },
    "reward": 0.5,
}
GOOD = {"messages": [{"role": "user", "content": "untouched"}]}


def damage(value: Any, rng: random.Random) -> Any:
    """A copy with one to three values replaced or removed, anywhere."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places: list[tuple[Any, Any]] = []
        rest = [value]
        while rest:
            found = rest.pop()
            items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
            for key, item in items:
                places.append((found, key))
                rest.append(item)
        if places:
            holder, key = rng.choice(places)
            if rng.random() < 0.3:
                del holder[key]
            else:
                holder[key] = rng.choice(ODD)
    return value


def check(found: Collected) -> None:
    """Every trace can be written and read back."""
    for trace in found.traces:
        assert trace_of(json.loads(to_json(trace)), "x") == trace


@pytest.mark.parametrize("seed", range(4))
def test_damaged_chat_logs_and_checkpoints_lose_no_good_row(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    path = tmp_path / "log.jsonl"
    rows = [damage(rng.choice([PAIR, {"messages": MESSAGES}]), rng) for _ in range(200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, GOOD]))
    for found in (read_chat_logs([path]), read_checkpoints([path, path])):
        check(found)
        assert "untouched" in [trace.request for trace in found.traces]
        assert found.left_out


@pytest.mark.parametrize("seed", range(4))
def test_damaged_steps_of_nat_lose_no_good_run(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    events = [json.loads(line) for line in (SAMPLES / "nat_steps.jsonl").read_text().splitlines()]
    ids = {event["payload"]["UUID"]: f"bad-{n}" for n, event in enumerate(events)}
    rows: list[str] = []
    for event in events:
        text = json.dumps(damage(event, rng) if rng.random() < 0.5 else event)
        for own, other in ids.items():
            text = text.replace(own, other)
        rows.append(text)
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join(rows) + "\n" + (SAMPLES / "nat_steps.jsonl").read_text())
    found = read_nat_steps([path])
    check(found)
    good = read_nat_steps([SAMPLES / "nat_steps.jsonl"]).traces
    assert len(good) == 3
    assert [trace for trace in found.traces if trace in good] == good


@pytest.mark.parametrize("seed", range(12))
def test_damaged_conversations_lose_no_good_one(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    shutil.copytree(SAMPLES / "openhands", tmp_path / "bad")
    shutil.copytree(SAMPLES / "openhands", tmp_path / "good")
    for path in sorted((tmp_path / "bad").rglob("*.json")):
        if rng.random() < 0.5:
            path.write_text(json.dumps(damage(json.loads(path.read_text()), rng)))
    found = read_conversations(tmp_path)
    check(found)
    assert found.traces[-1] == read_conversations(tmp_path / "good").traces[0]
