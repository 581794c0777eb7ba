"""Runs, read only: config, metrics, rollouts, and two runs beside each other."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query

from skyrl_nat.service.rollout_files import Label, RolloutFilter, open_step, read_record, recorded_steps
from skyrl_nat.service.rollout_view import view_rollout
from skyrl_nat.service.routes.errors import ServiceError, documented
from skyrl_nat.service.run_folders import RunFolder, RunFolders
from skyrl_nat.service.run_metrics import MetricTable, read_metrics

MOST_KEYS = 200
COMPARED = (
    "rollout/reward/mean",
    "rollout/success/mean",
    "eval/rollout/reward/mean",
    "eval/rollout/success/mean",
    "loss/total",
    "loss/token_entropy",
    "loss/grad_norm",
    "time/step_s",
)
"""Series of a comparison for which nobody names keys."""


def runs_router(root_dir: Path) -> APIRouter:
    """Return the routes over the run folders of a root."""
    folders = RunFolders(root_dir)
    router = APIRouter(tags=["runs"], responses=documented(404, 409, 422))

    @router.get("/runs")
    def list_runs() -> list[dict[str, Any]]:
        """List the runs, the last written first."""
        return [_summary(run) for run in folders.all()]

    @router.get("/runs/{run_id}")
    def show_run(run_id: str) -> dict[str, Any]:
        """Show what a run is."""
        run = folders.find(run_id)
        about = {name: run.json(f"{name}.json") for name in ("versions", "batch_plan", "topology")}
        return {**_summary(run), "config": run.config(), **about, "rollout_steps": recorded_steps(run)}

    @router.get("/runs/{run_id}/keys")
    def list_keys(run_id: str) -> list[str]:
        """List the names of all metrics."""
        return read_metrics(folders.find(run_id)).names()

    @router.get("/runs/{run_id}/metrics")
    def show_metrics(
        run_id: str,
        keys: str | None = None,
        first: Annotated[int, Query(alias="from")] = 0,
    ) -> dict[str, Any]:
        """Show metrics from a step on, all or those that are named with commas between them."""
        table = read_metrics(folders.find(run_id))
        return _columns(table, _named(keys, table), first)

    _add_rollouts(router, folders)

    @router.get("/compare")
    def compare(a: str, b: str, keys: str | None = None) -> dict[str, Any]:
        """Show two runs beside each other."""
        runs = {"a": folders.find(a), "b": folders.find(b)}
        tables = {side: read_metrics(run) for side, run in runs.items()}
        known = sorted({key for table in tables.values() for key in table.names()})
        wanted = _split(keys) if keys else [key for key in COMPARED if key in known]
        sides = {side: _columns(table, wanted, 0) for side, table in tables.items()}
        return {
            **{
                side: {**(about := _summary(runs[side])), **sides[side], "planned_steps": about["steps"]}
                for side in runs
            },
            "keys": known,
            "final": _final(tables["a"].last(), tables["b"].last()),
            "config": _differences(runs["a"].config(), runs["b"].config()),
        }

    return router


def _add_rollouts(router: APIRouter, folders: RunFolders) -> None:
    @router.get("/runs/{run_id}/rollouts")
    def list_rollouts(run_id: str, wanted: Annotated[RolloutFilter, Query()]) -> dict[str, Any]:
        """List the rollouts of one step, the newest where none is named."""
        run, step, label = folders.find(run_id), wanted.step, wanted.label
        steps = recorded_steps(run)
        about: dict[str, Any] = {"steps": steps, "label": label, "step": step}
        if step is None:
            if not steps[label]:
                return {**about, "total": 0, "num_broken": 0, "outcomes": {}, "rollouts": []}
            step = steps[label][-1]
        file = open_step(run, step, label)
        rows = [row for row in file.rows if wanted.takes(row)]
        return {
            **about,
            "step": step,
            "total": len(rows),
            "num_broken": file.num_broken,
            "outcomes": file.outcomes(),
            "rollouts": rows[wanted.offset : wanted.offset + wanted.limit],
        }

    @router.get("/runs/{run_id}/rollouts/{step}/{label}/{group}/{index}")
    def show_rollout(run_id: str, step: int, label: Label, group: int, index: int) -> dict[str, Any]:
        """Show one rollout, token by token."""
        run = folders.find(run_id)
        record = read_record(open_step(run, step, label), group, index)
        return view_rollout(run, record, step=step, label=label) | {"group": group, "index": index}


def _summary(run: RunFolder) -> dict[str, Any]:
    config = run.config()
    steps = read_metrics(run).steps
    plan = run.json("batch_plan.json")
    planned = _section(config, "trainer").get("steps") or (plan.get("steps") if isinstance(plan, dict) else None)
    return {
        "id": run.id,
        "family": _section(config, "environment").get("family"),
        "algorithm": _section(config, "algorithm").get("name"),
        "steps": planned if isinstance(planned, int) else None,
        "last_step": steps[-1] if steps else None,
        "updated_at": run.updated_at(),
    }


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _columns(table: MetricTable, keys: list[str], first: int) -> dict[str, Any]:
    steps = [step for step in table.steps if step >= first]
    return {"steps": steps, "series": table.series(keys, steps), "not_finite": table.not_finite(keys)}


def _named(keys: str | None, table: MetricTable) -> list[str]:
    return table.names() if keys is None else _split(keys)


def _split(keys: str) -> list[str]:
    found = list(dict.fromkeys(key for key in keys.split(",") if key))
    if len(found) > MOST_KEYS:
        raise ServiceError(422, "invalid", f"keys must be {MOST_KEYS} at most, got {len(found)}. Ask for fewer", "keys")
    return found


def _final(a: dict[str, float], b: dict[str, float]) -> list[dict[str, Any]]:
    """Return the newest number of every metric of both, and b less a."""
    return [
        {"key": key, "a": a.get(key), "b": b.get(key), "difference": b[key] - a[key] if key in a and key in b else None}
        for key in sorted(a | b)
    ]


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings in which two runs differ."""
    flat_a, flat_b = _flat(a), _flat(b)
    return [
        {"key": key, "a": flat_a.get(key), "b": flat_b.get(key)}
        for key in sorted(flat_a | flat_b)
        if flat_a.get(key) != flat_b.get(key)
    ]


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return found
