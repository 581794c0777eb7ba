"""A rollout is one trace, whoever works on it; random numbers stay what they were."""

import asyncio
import json
import logging
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyrl_nat.monitoring import spans


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    spans.trace_to(str(tmp_path / "traces"), "controller")
    yield tmp_path / "traces"
    spans.end_traces()


def written(folder: Path) -> dict[str, dict]:
    spans.flush_traces()
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    return {line["name"]: line for line in lines}


def test_what_happens_within_a_rollout_is_its_child_and_rollouts_at_once_are_traces_of_their_own(folder) -> None:
    async def rollout(name: str) -> None:
        with spans.span("rollout", rollout=name) as known:
            await asyncio.sleep(0.01)
            with spans.span(f"turn of {name}", turn=0):
                await asyncio.sleep(0.01)
            known["outcome"] = "finished"

    async def both() -> None:
        await asyncio.gather(rollout("a"), rollout("b"))

    asyncio.run(both())
    spans.flush_traces()
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    roots = {one["attributes"]["rollout"]: one for one in lines if one["name"] == "rollout"}
    assert {one["attributes"]["outcome"] for one in roots.values()} == {"finished"}
    for name in "ab":
        [turn] = [one for one in lines if one["name"] == f"turn of {name}"]
        assert turn["parent_id"] == roots[name]["context"]["span_id"]
        assert turn["context"]["trace_id"] == roots[name]["context"]["trace_id"]
    assert roots["a"]["context"]["trace_id"] != roots["b"]["context"]["trace_id"]


def test_a_span_that_travelled_is_the_parent_where_there_is_no_other(folder) -> None:
    with spans.span("rollout"):
        carried = spans.carried()
    assert carried is not None
    assert spans.carried() is None
    with (
        spans.span("from outside", parent=carried),
        spans.span("within", parent="00-" + "1" * 32 + "-" + "1" * 16 + "-01"),
    ):
        pass
    found = written(folder)
    assert found["from outside"]["parent_id"] == found["rollout"]["context"]["span_id"]
    assert found["within"]["parent_id"] == found["from outside"]["context"]["span_id"]


def test_a_span_that_failed_says_so_and_its_error_goes_on(folder) -> None:
    with pytest.raises(ValueError, match="gone"), spans.span("turn"):
        raise ValueError("gone")
    turn = written(folder)["turn"]
    assert turn["status"]["status_code"] == "ERROR"


def test_a_share_of_rollouts_is_traced_whole_or_not_at_all(tmp_path) -> None:
    spans.trace_to(str(tmp_path), "controller", share=0.25)
    try:
        carried = []
        for _ in range(400):
            with spans.span("rollout"), spans.span("turn"):
                carried.append(spans.carried())
        spans.flush_traces()
    finally:
        spans.end_traces()
    lines = [json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    names = [line["name"] for line in lines]
    assert names.count("rollout") == names.count("turn") == sum(one is not None for one in carried)
    assert 60 <= names.count("turn") <= 140  # 100 expected, standard deviation 8.7


def test_tracing_draws_no_number_from_the_generator_that_runs_are_repeated_with(folder) -> None:
    random.seed(7)
    expected = [random.random() for _ in range(3)]
    random.seed(7)
    found = []
    for _ in range(3):
        with spans.span("rollout"):
            found.append(random.random())
    assert found == expected


def test_without_traces_nothing_is_carried_written_or_imported_and_a_span_costs_next_to_nothing(tmp_path) -> None:
    assert spans.environment() == {}
    with spans.span("rollout", kind="train"):
        assert spans.carried() is None
    started = time.perf_counter()
    for _ in range(100_000):
        with spans.span("generate", parent=None, turn=1, prompt_tokens=100):
            pass
    per_span_s = (time.perf_counter() - started) / 100_000
    print(f"a span that nobody measures: {1e9 * per_span_s:.0f} ns")
    assert per_span_s < 20e-6  # a turn takes milliseconds at least


def test_a_collector_that_is_away_is_told_of_once_and_holds_nobody_up(monkeypatch, caplog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    spans.trace_to("otlp", "controller")
    try:
        with caplog.at_level(logging.WARNING):
            started = time.monotonic()
            for _ in range(3):
                with spans.span("rollout"):
                    pass
                time.sleep(1.2)
            assert time.monotonic() - started < 5
    finally:
        started = time.monotonic()
        spans.end_traces()
    took_s = time.monotonic() - started
    print(f"the end took {took_s:.1f} s")
    assert took_s < 20
    assert len([one for one in caplog.records if one.name.startswith("opentelemetry")]) == 1
