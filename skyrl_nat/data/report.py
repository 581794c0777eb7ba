"""What a data set holds and how far it can be trusted, from its files alone."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skyrl_nat.data.making.build import mutants_of
from skyrl_nat.data.near_duplicates import fingerprint, function_names, near_duplicates, same_code
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.data.synthesis.library import OTHER_FAMILIES
from skyrl_nat.environments.nat_agent.compare import is_same
from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import HiddenSpec, parse_hidden
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

SPLITS = ("train", "validation")


def describe(folder: Path) -> dict[str, Any]:
    """Return counts, leaks across the split and the hash of a data set; runs no code.

    Raises:
        DataError: A file is missing or broken.
    """
    files = {split: folder / f"{split}.parquet" for split in splits_of(folder)}
    missing = [str(path) for path in files.values() if not path.is_file()]
    if missing:
        raise DataError(
            f"a data set must have train.parquet and validation.parquet, no {', '.join(missing)}. Make it anew"
        )
    tasks = {split: load_tasks([str(path)]) for split, path in files.items()}
    total = sum(map(len, tasks.values()))
    return {
        "rows": total,
        "split": {split: len(found) for split, found in tasks.items()},
        "validation_share": len(tasks["validation"]) / sum(len(tasks[split]) for split in SPLITS),
        "families": _families(folder),
        "difficulty": {split: _count(str(task.difficulty) for task in found) for split, found in tasks.items()},
        "workflows": {
            split: _count(task.payload["workflow"]["type"] for task in found) for split, found in tasks.items()
        },
        "leaks": leaks(tasks),
        **({"leaks_of_other_families": leaks(tasks, OTHER_FAMILIES)} if OTHER_FAMILIES in tasks else {}),
        "hash": content_hash(files.values()),
    }


def splits_of(folder: Path) -> list[str]:
    """Return the splits of a data set: the two that each has, and that of other families where there is one."""
    return [*SPLITS, *([OTHER_FAMILIES] if (folder / f"{OTHER_FAMILIES}.parquet").is_file() else [])]


def leaks(tasks: Mapping[str, Sequence[Task]], held_out: str = "validation") -> dict[str, Any]:
    """Return what two splits share: ids, tool names, equal tasks, near duplicates; and duplicates within a split."""
    train, validation = tasks["train"], tasks[held_out]
    names = [{name for task in found for name in function_names(task)} for found in (train, validation)]
    prints = [Counter(map(fingerprint, found)) for found in (train, validation)]
    near = near_duplicates(validation, train)
    return {
        "shared_ids": len({task.task_id for task in train} & {task.task_id for task in validation}),
        "shared_tools": sorted(names[0] & names[1]),
        "shared_tasks": len(set(prints[0]) & set(prints[1])),
        "same_code": len(same_code(validation, train)),
        "near_duplicates": len(near),
        "nearest": [list(pair) for pair in sorted(near, key=lambda pair: -pair[2])[:5]],
        "duplicates_within": sum(count - 1 for found in prints for count in found.values()),
    }


def examine(
    folder: Path,
    validator: NatAgentValidator,
    oracle: ReferenceOracle,
    *,
    limit: int = 0,
    num_workers: int = 1,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Return what running says: are recorded outputs right, do solutions earn 1.0, are mutants killed.

    Args:
        folder: Of the data set.
        validator: Judges the solutions.
        oracle: Runs references and mutants.
        limit: Tasks of each split to look at, evenly spread; 0 for all.
        num_workers: Tasks looked at at once.
        watch: Is told how many are done, of how many.
    """
    tasks: list[Task] = []
    for split in splits_of(folder):
        found = load_tasks([str(folder / f"{split}.parquet")])
        tasks += found[:: max(1, len(found) // limit) if limit else 1]
    scores: list[float] = []
    wrong_vectors: list[str] = []
    killed: dict[str, float] = {}
    with ThreadPoolExecutor(num_workers) as pool:
        seen = pool.map(lambda task: _run_task(task, validator, oracle), tasks)
        for number, (task, (score, wrong, shares)) in enumerate(zip(tasks, seen, strict=True), 1):
            scores.append(score)
            wrong_vectors += [f"{task.task_id}: {text}" for text in wrong]
            killed |= {f"{task.task_id}/{tool}": share for tool, share in shares.items()}
            watch(number, len(tasks))
    return {
        "examined": len(scores),
        "solutions_with_1": sum(score == 1.0 for score in scores),
        "lowest_solution": min(scores, default=None),
        "wrong_vectors": len(wrong_vectors),
        "tools": len(killed),
        "lowest_mutants_killed": min(killed.values(), default=None),
        "mean_mutants_killed": sum(killed.values()) / len(killed) if killed else None,
        "tools_below_0.8": sorted(tool for tool, share in killed.items() if share < 0.8),
        "examples": wrong_vectors[:5],
    }


def content_hash(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the files' bytes, in order."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def to_markdown(report: Mapping[str, Any]) -> str:
    """Return a report as a page to read."""
    lines = ["# Data set", ""]
    for name, value in report.items():
        shown = json.dumps(value) if isinstance(value, (dict, list)) else value
        lines.append(f"* **{name.replace('_', ' ')}**: {shown}")
    return "\n".join(lines) + "\n"


def _run_task(
    task: Task, validator: NatAgentValidator, oracle: ReferenceOracle
) -> tuple[float, list[str], dict[str, float]]:
    """Return the solution's reward, the recorded outputs that are wrong, and tool -> share of mutants killed."""
    hidden = parse_hidden(task.hidden)
    score = validator.validate(task, {"files": hidden.solution}).total
    return score, _wrong_vectors(hidden, oracle), _killed(hidden, oracle)


def _wrong_vectors(hidden: HiddenSpec, oracle: ReferenceOracle) -> list[str]:
    cases = [*hidden.vectors, *hidden.errors]
    [answers] = oracle.answers(hidden, [Call(chain=(case.tool,), input=case.input) for case in cases])
    return [
        f"{case.tool}({json.dumps(case.input)[:80]})"
        for case, answer in zip(cases, answers, strict=True)
        if answer.raises != case.raises or not (answer.raises or is_same(case.output, answer.output))
    ]


def _killed(hidden: HiddenSpec, oracle: ReferenceOracle) -> dict[str, float]:
    """Return for every tool the share of fresh mutants of its reference that its recorded inputs notice."""
    found: dict[str, float] = {}
    for tool in hidden.reference:
        changed = mutants_of(hidden, tool)
        calls = [
            Call(chain=(tool,), input=case.input) for case in (*hidden.vectors, *hidden.errors) if case.tool == tool
        ]
        right, *wrong = oracle.answers(hidden, calls, [{}, *({tool: text} for text in changed)])
        if changed:
            found[tool] = sum(_said(row) != _said(right) for row in wrong) / len(changed)
    return found


def _said(answers: Sequence[Answer]) -> list[tuple[str, str]]:
    return [(json.dumps(answer.output), answer.raises) for answer in answers]


def _families(folder: Path) -> dict[str, Any]:
    """Return the families of each split as the data set's manifest names them."""
    path = folder / "manifest.json"
    if not path.is_file():
        return {}
    return json.loads(path.read_text(encoding="utf-8")).get("families", {})


def _count(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
