"""From requests to proved tasks through a service that speaks HTTP, with all that services do wrong."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from planner_model import PlannerModel
from planner_server import KEY, KEY_NAME, PlannerServer
from toy_run import free_port

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.making.maker import MadeStore, Maker
from skyrl_nat.data.planner.ask import Planner
from skyrl_nat.data.planner.pipeline import Planned, plan_tasks, read_requests
from skyrl_nat.errors import StoppedError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FAULTS = {
    "ambiguous": 7, "wrong_example": 11, "blocked": 13, "broken_json": 3, "outside_schema": 5, "unavailable": 4,
    "rate_limited": 6,
}  # fmt: skip


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)


def plan(
    folder: Path, model: PlannerModel, counts: dict[str, int], *, backend: str = "gemini", port: int = 0, **limits: Any
) -> tuple[Planned, PlannerServer, Planner]:
    async def scenario() -> tuple[Planned, PlannerServer, Planner]:
        async with PlannerServer(of_prompt=model, port=port) as server:
            maker = Maker(EnvironmentConfig(), MadeStore(folder / "made.jsonl"), num_workers=2)
            try:
                async with Planner(server.config(backend, concurrency=8, **limits), folder) as planner:
                    mix = {1: 1.0, 2: 1.0}
                    planned = await plan_tasks(planner, maker, read_requests(), counts, seed=1, mix=mix)
                    return planned, server, planner
            finally:
                maker.close()

    return asyncio.run(scenario())


@pytest.mark.parametrize("backend", ["gemini", "openai"])
def test_exactly_as_many_proved_tasks_as_asked_for_whatever_the_service_does(tmp_path: Path, backend: str) -> None:
    planned, server, planner = plan(tmp_path, PlannerModel(FAULTS), {"train": 18, "validation": 2}, backend=backend)
    assert {split: len(tasks) for split, tasks in planned.tasks.items()} == {"train": 18, "validation": 2}
    assert not set(planned.requests["train"]) & set(planned.requests["validation"])
    assert planned.rejected["unsound"] > 0
    assert any("ambiguous" in reason or "example" in reason for reason in planned.examples)
    totals = planner.ledger.totals
    assert totals.calls == len(server.calls)
    assert sum(totals.results.values()) == totals.calls
    assert max(Counter(call.prompt for call in server.calls).values()) <= 8


def test_killed_run_goes_on_without_paying_or_making_anything_twice(tmp_path: Path) -> None:
    model = PlannerModel({"ambiguous": 7})
    counts, port = {"train": 9, "validation": 1}, free_port()
    with pytest.raises(StoppedError, match=r"at most planner\.max_calls = 20 calls"):
        plan(tmp_path / "cut", model, counts, port=port, max_calls=20)
    planned, server, planner = plan(tmp_path / "cut", model, counts, port=port)
    whole, whole_server, _ = plan(tmp_path / "whole", PlannerModel({"ambiguous": 7}), counts)
    assert planned.tasks == whole.tasks
    assert planner.num_replayed > 0
    assert len(server.calls) + 20 == len(whole_server.calls)


def test_service_that_repeats_itself_is_stopped_with_what_was_reached_pl_08(tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match=r"10 different tasks for train, got 1 of 10 from 60 specs.*'duplicate': 59"):
        plan(tmp_path, PlannerModel({"duplicate": 1}), {"train": 10})
