"""Compares a disturbed run with the one that nobody disturbed; reads run folders only."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.armed import stand_still
from letter_family import LETTERS

NUMBERS = ("loss/", "batch/", "pack/", "reward/", "rollout/reward/", "rollout/num_valid", "rollout/staleness/")
"""Metrics that an exact run has bit for bit."""
SECONDS = ("time/", "rollout/generate_s", "rollout/environment_s", "rollout/score_s")
LONGEST_S = 900.0
"""No phase of these runs takes longer; a clock that is set must not seem to be time that passed."""
TRAINABLE = ("finished", "truncated", "policy_failure")
OWN_ENDS = ("", "turn limit", "token limit of a turn", "token limit of the rollout")
"""Reasons with which a rollout may end and have a reward: the policy's doing."""
ROUNDING = 1e-5
LEFT_OUT = ("rollout/dropped_groups/count", "rollout/stale_groups/count")
"""Metrics that count groups of the stream which were not trained."""
WORKERS = ("policy 0", "engine 0", "environment 0", "reward 0")
UNTIMED = ("score_s", "generate_s", "environment_s")


@dataclass(slots=True)
class Record:
    """What a run folder says."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    """Lines of training steps, in the order of the file."""
    rollouts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """By step, in the order in which they were trained."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    stalls: dict[int, list[str]] = field(default_factory=dict)
    """By step: what the watchdog wrote of each."""
    unfinished: list[str] = field(default_factory=list)
    """Files that were being written when the run ended."""

    @classmethod
    def read(cls, run: Path) -> "Record":
        """Read a run folder."""
        steps = {
            int(path.stem.rpartition("_")[2]): _lines(path) for path in sorted((run / "rollouts").glob("train_*.jsonl"))
        }
        return cls(
            metrics=[line for line in _lines(run / "metrics.jsonl") if "loss/policy" in line],
            rollouts=steps,
            evaluations=_lines(run / "evaluations.jsonl"),
            stalls=_stalls(run / "stalls"),
            unfinished=[path.name for path in sorted(run.rglob("*.part"))],
        )

    def of_step(self, step: int) -> list[dict[str, Any]]:
        """Return the metrics lines of a step: one, unless it is missing or there twice."""
        return [line for line in self.metrics if line["step"] == step]


def complaints(
    run: Record,
    undisturbed: Record,
    steps: range,
    *,
    is_exact: bool,
    staleness: int = 0,
) -> list[str]:
    """Return what is wrong with some steps of a run.

    Args:
        run: The disturbed one.
        undisturbed: The same run without faults.
        steps: Which; all must be trained.
        is_exact: Everything but seconds must be equal; otherwise ids of tasks and rollouts, learning rates and
            versions, save for groups and steps that the run itself counts as lost.
        staleness: Versions that a token may be behind.
    """
    found = []
    for step in steps:
        lines, expected = run.of_step(step), undisturbed.of_step(step)
        if len(lines) != 1 or len(expected) != 1:
            found.append(f"step {step} must be in metrics.jsonl once, it is {len(lines)} times")
            continue
        found += _wrong_rates(lines[0], undisturbed)
        found += _wrong_seconds(lines[0])
        found += _wrong_rewards(run.rollouts.get(step, []), step)
        if is_exact:
            found += _differences(lines[0], expected[0])
            found += _other_rollouts(run.rollouts.get(step, []), undisturbed.rollouts.get(step, []), step)
        found += _wrong_versions(run.rollouts.get(step, []), step, staleness)
    found += _wrong_evaluations(run, undisturbed, steps, is_exact=is_exact)
    return list(dict.fromkeys(found))


def complaints_of_whole(run: Record) -> list[str]:
    """Return what is wrong with a run as a whole: order of steps, and each rollout trained once or counted as lost."""
    found = []
    steps = [line["step"] for line in run.metrics]
    if steps != list(range(1, len(steps) + 1)):
        found.append(f"steps must be 1, 2, 3, …, found {_first_break(steps)}")
    names = Counter(record["rollout_id"] for _, records in run.rollouts.items() for record in records)
    twice = [name for name, number in names.items() if number > 1]
    if twice:
        found.append(f"no rollout may be trained twice, found {', '.join(sorted(twice)[:4])}")
    dropped = {line["step"]: sum(line.get(name, 0.0) for name in LEFT_OUT) for line in run.metrics}
    position = 0
    for step in steps:
        indices = list(dict.fromkeys(record["index"] for record in run.rollouts.get(step, [])))
        lost = (indices[-1] + 1 if indices else position) - position - len(indices)
        if not indices or indices != sorted(indices) or lost != dropped[step]:
            found.append(
                f"groups of step {step} must follow on {position - 1} with {dropped[step]:g} dropped, found {indices}"
            )
        position = indices[-1] + 1 if indices else position
    if run.unfinished:
        found.append(f"nothing unfinished may be left, found {', '.join(run.unfinished[:4])}")
    return found


def complaints_of_stall(run: Record, step: int, role: str, method: str, staleness: int = 0) -> list[str]:
    """Return what is wrong with how the watchdog told of a worker that hung: once, with its name and its stack.

    Args:
        run: The disturbed one.
        step: That was being made.
        role: Of the worker.
        method: That it hung in.
        staleness: Steps that the trainer may go on for until it waits for that call; others may wait with it then.
    """
    texts = [text for later in range(staleness + 1) for text in run.stalls.get(step + later, [])]
    if len(texts) != 1:
        return [f"one stall must be told of in step {step}, found {len(texts)}"]
    diagnosis, _, rest = texts[0].partition("\n")
    stacks = dict(re.findall(r"^== (\w+ \d+): (.*?)(?=^== |\Z)", rest, re.MULTILINE | re.DOTALL))
    found = [f"the stacks of {name} must be told in step {step}" for name in WORKERS if name not in stacks]
    hanging = [name for name, text in stacks.items() if f"in {stand_still.__name__}\n" in text]
    if [name.split()[0] for name in hanging] != [role]:
        found.append(f"one {role} must be seen to hang in step {step}, found {hanging or 'nobody'}")
    elif f"{'' if staleness else ': the controller waits for '}{hanging[0]} in `{method}` since " not in diagnosis:
        found.append(f"the diagnosis of step {step} must name {hanging[0]} in `{method}`, found: {diagnosis}")
    return found


def _stalls(folder: Path) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for path in sorted(folder.glob("step_*.txt")):
        found.setdefault(int(path.stem.split("_")[1]), []).append(path.read_text(encoding="utf-8"))
    return found


def _wrong_rates(line: dict[str, Any], undisturbed: Record) -> list[str]:
    """The learning rate is a function of the optimizer steps that were applied."""
    skipped_now = line["loss/skipped"]
    applied = int(line["step"] - line["loss/num_skipped"] + skipped_now)
    (expected,) = undisturbed.of_step(applied) or [{"loss/lr": math.nan}]
    if line["loss/lr"] == expected["loss/lr"]:
        return []
    return [f"the learning rate of step {line['step']} must be {expected['loss/lr']!r}, found {line['loss/lr']!r}"]


def _wrong_seconds(line: dict[str, Any]) -> list[str]:
    wrong = {name: value for name, value in line.items() if name.startswith(SECONDS) and not 0 <= value <= LONGEST_S}
    return [f"{name} of step {line['step']} cannot be {value:g}" for name, value in wrong.items()]


def _wrong_rewards(records: list[dict[str, Any]], step: int) -> list[str]:
    """Return rewards that are not what the rollout's own words earn, or that a failure of the machine got."""
    found = []
    for record in records:
        name = f"{record['rollout_id']} of step {step}"
        if record["reward"] is None:
            if record["outcome"] in TRAINABLE:
                found.append(f"{name} is {record['outcome']} and must have a reward")
            continue
        if record["outcome"] not in TRAINABLE or record["reason"] not in OWN_ENDS:
            found.append(f"{name} ended with {record['outcome']} ({record['reason']}) and must have no reward")
        said = "".join(turn["completion"] for turn in record["turns"])
        earned = sum(character in LETTERS for character in said) / max(1, len(said))
        if not record["turns"] or not math.isclose(record["reward"], earned, abs_tol=1e-9):
            found.append(f"{name} has reward {record['reward']!r}, its words earn {earned!r}")
    return found


def _wrong_versions(records: list[dict[str, Any]], step: int, staleness: int) -> list[str]:
    allowed = range(max(0, step - 1 - staleness), step)
    found = {version for record in records for version, _ in record["token_versions"]} - set(allowed)
    return [f"tokens of step {step} must be of versions {list(allowed)}, found {sorted(found)}"] if found else []


def _differences(line: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    names = [name for name in {**line, **expected} if name.startswith(NUMBERS)]
    wrong = [name for name in names if not _same(name, line.get(name), expected.get(name))]
    if not wrong:
        return []
    first = wrong[0]
    return [
        f"step {line['step']} must be the undisturbed one, {len(wrong)} of {len(names)} figures differ: {first} is "
        f"{line.get(first)!r}, not {expected.get(first)!r}"
    ]


def _other_rollouts(records: list[dict[str, Any]], expected: list[dict[str, Any]], step: int) -> list[str]:
    found, wanted = [_untimed(record) for record in records], [_untimed(record) for record in expected]
    if found == wanted:
        return []
    if [record["rollout_id"] for record in found] != [record["rollout_id"] for record in wanted]:
        return [f"the rollouts of step {step} must be {_ids(wanted)}, found {_ids(found)}"]
    for record, other in zip(found, wanted, strict=True):
        for name in record:
            if not _same(name, record[name], other.get(name)):
                text = f"{record['rollout_id']} of step {step} must be the undisturbed one, its {name} is another"
                return [f"{text}: {record[name]!r:.60}, not {other.get(name)!r:.60}"]
    return []


def _same(name: str, value: Any, other: Any) -> bool:
    """Return whether two values are the same; those of the engine's log-probs but for their rounding.

    An engine that gets its weights again after a fault computes the KV of what it had begun in one pass.
    """
    if not any(part in name for part in ("rollout_logprob", "first_logprob_diff")) or value is None or other is None:
        return value == other
    values, others = (one if isinstance(one, list) else [one] for one in (value, other))
    return len(values) == len(others) and all(map(_nearly, values, others))


def _nearly(value: float, other: float) -> bool:
    return math.isclose(value, other, abs_tol=ROUNDING)


def _wrong_evaluations(run: Record, undisturbed: Record, steps: range, *, is_exact: bool) -> list[str]:
    expected = {entry["step"]: entry for entry in undisturbed.evaluations if entry["step"] in steps}
    found = [entry for entry in run.evaluations if entry["step"] in steps]
    numbers = [entry["step"] for entry in found]
    wrong = []
    if numbers != sorted(expected):
        wrong.append(f"evaluations must be of steps {sorted(expected)}, found {numbers}")
    for entry in found:
        other = expected.get(entry["step"], entry)
        same = all(entry[name] == other[name] for name in ("success", "reward", "parts"))
        if entry["num_without_verdict"] or (is_exact and not same):
            wrong.append(f"the evaluation of step {entry['step']} must be the undisturbed one, found {entry['reward']}")
    return wrong


def _untimed(record: dict[str, Any]) -> dict[str, Any]:
    clean = {name: value for name, value in record.items() if name not in UNTIMED}
    clean["turns"] = [{name: v for name, v in turn.items() if name not in UNTIMED} for turn in record["turns"]]
    clean["metrics"] = {name: value for name, value in record["metrics"].items() if name != "retries"}
    return clean


def _ids(records: list[dict[str, Any]]) -> str:
    return ", ".join(record["rollout_id"] for record in records) or "none"


def _first_break(steps: list[int]) -> str:
    place = next((i for i, step in enumerate(steps) if step != i + 1), len(steps))
    return str(steps[max(0, place - 1) : place + 2])


def _lines(path: Path) -> list[dict[str, Any]]:
    return list(_parsed(path)) if path.exists() else []


def _parsed(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
