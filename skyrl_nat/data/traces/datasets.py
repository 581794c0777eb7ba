"""Traces as data to train on: KTO examples, and groups for GRPO.

Everything that is not used is counted by reason; the classes and what is left out add up to the traces given.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from skyrl_nat.data.traces.messages import MESSAGE, is_agent, messages_of, said, split_request
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.verdicts import Verdict, parse_reward, verdict_of
from skyrl_nat.errors import ConfigError, DataError

KTO_SCHEMA = pa.schema(
    [
        ("prompt", pa.list_(MESSAGE)),
        ("completion", pa.string()),
        ("label", pa.bool_()),
        ("trace_id", pa.string()),
        ("task_id", pa.string()),
    ]
)
_MEMBER = pa.struct(
    [
        ("trace_id", pa.string()),
        ("prompt", pa.list_(MESSAGE)),
        ("messages", pa.list_(MESSAGE)),
        ("reward", pa.float64()),
    ]
)
GROUP_SCHEMA = pa.schema([("task_id", pa.string()), ("members", pa.list_(_MEMBER))])
EQUAL_WITHIN = 1e-9
"""Rewards of a group that differ by no more teach nothing: every advantage is 0."""
TWICE = "the trace came before"
NO_ANSWER = "the agent neither said nor did anything"
NO_REQUEST = "nothing was asked"
NO_TEXT = "it holds what is neither UTF-8 nor JSON"
NO_TASK = "no task"
ALONE = "alone with its task"
DOWN_SAMPLED = "down-sampled"
Row = dict[str, Any]


class Balance(StrEnum):
    """What is done about classes of different size."""

    down_sample = "down_sample"
    """As many of the larger class are kept, drawn by the seed, as the smaller one has."""
    weights = "weights"
    """All are kept; the weights of the classes make up for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KtoSet:
    """Examples and the account of how they came about."""

    examples: list[Row]
    """`{"prompt", "completion", "label", "trace_id", "task_id"}` in the order of the traces."""
    num_traces: int
    """`num_good + num_bad + sum(left_out.values())`."""
    num_good: int
    num_bad: int
    left_out: dict[str, int]
    """Reason -> traces."""
    desirable_weight: float
    """`algorithm.desirable_weight` with which, and with the other weight, both classes count alike."""
    undesirable_weight: float
    by_source: dict[str, int]
    """`label` or `reward` -> examples that it decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSet:
    """Groups with something to learn from, and the account of the rest."""

    groups: list[Row]
    """`{"task_id", "members": [{"trace_id", "prompt", "messages", "reward"}]}`, at least 2 members of unlike reward."""
    equal_groups: list[Row]
    """Groups whose rewards are all the same: kept apart, since every advantage in them is 0."""
    num_traces: int
    """Members of both kinds of groups and what is left out add up to it."""
    num_mixed_prompts: int
    """Groups of both kinds whose members were not asked in the same words."""
    left_out: dict[str, int]


def kto_examples(
    traces: Sequence[Trace], *, threshold: float = 0.5, balance: Balance = Balance.down_sample, seed: int = 0
) -> KtoSet:
    """Return KTO examples.

    A trace is good or bad by its manual label, else by its reward (`>= threshold` is good). The completion is the last
    thing that the agent said or called, the prompt is all before it; what came after belongs to neither.

    Args:
        traces: Of several with one id the first that can be used counts.
        threshold: In (0, 1].
        balance: What is done about classes of different size.
        seed: Of the drawing; the order of the traces does not change who is drawn.

    Raises:
        ConfigError: The threshold is outside (0, 1].
        DataError: A label is no label, or only one class is left.
    """
    if not 0 < threshold <= 1:
        raise ConfigError(f"threshold must be in (0, 1], got {threshold!r}. Use 0.5: else a class is empty")
    left_out, by_id, sources = Counter[str](), dict[str, Row](), dict[str, str]()
    for trace in traces:
        verdict = verdict_of(trace, threshold=threshold)
        row = TWICE if trace.trace_id in by_id else _kto_row(trace, verdict)
        if isinstance(row, str):
            left_out[row] += 1
        else:
            by_id[trace.trace_id], sources[trace.trace_id] = row, verdict.reason
    chosen = _balanced(by_id, balance, seed)
    left_out[DOWN_SAMPLED] += len(by_id) - len(chosen)
    num_good = sum(row["label"] for row in chosen)
    num_bad = len(chosen) - num_good
    return KtoSet(
        examples=chosen,
        num_traces=len(traces),
        num_good=num_good,
        num_bad=num_bad,
        left_out=dict(+left_out),
        desirable_weight=max(1.0, num_bad / num_good),
        undesirable_weight=max(1.0, num_good / num_bad),
        by_source=dict(Counter(sources[row["trace_id"]] for row in chosen)),
    )


def grpo_groups(traces: Sequence[Trace]) -> GroupSet:
    """Return the traces of each task that have a reward, as groups in the order in which tasks first came."""
    left_out, groups, seen = Counter[str](), dict[str, list[Row]](), set[str]()
    for trace in traces:
        reward, fault = parse_reward(trace.reward)
        found = TWICE if trace.trace_id in seen else NO_TASK if not trace.task_id else fault
        member = found or _member(trace, reward)
        if isinstance(member, str):
            left_out[member] += 1
        else:
            seen.add(trace.trace_id)
            groups.setdefault(trace.task_id, []).append(member)
    left_out[ALONE] += sum(len(members) == 1 for members in groups.values())
    rows = [{"task_id": task_id, "members": members} for task_id, members in groups.items() if len(members) > 1]
    return GroupSet(
        groups=[row for row in rows if not _is_equal(row)],
        equal_groups=[row for row in rows if _is_equal(row)],
        num_traces=len(traces),
        num_mixed_prompts=sum(len({json.dumps(m["prompt"]) for m in row["members"]}) > 1 for row in rows),
        left_out=dict(+left_out),
    )


def _kto_row(trace: Trace, verdict: Verdict) -> Row | str:
    """Return the example of a trace, or why there is none."""
    asked, steps = split_request(trace)
    last = next((index for index in reversed(range(len(steps))) if is_agent(steps[index])), None)
    if verdict.is_good is None:
        return verdict.reason
    if last is None or not said(steps[last]).strip():
        return NO_ANSWER
    return _whole(
        lambda: {
            "prompt": asked + messages_of(steps[:last]),
            "completion": said(steps[last]),
            "label": verdict.is_good,
            "trace_id": trace.trace_id,
            "task_id": trace.task_id,
        }
    )


def _member(trace: Trace, reward: float | None) -> Row | str:
    """Return a trace as a member of its group, or why it is none."""
    asked, steps = split_request(trace)
    if not steps:
        return NO_ANSWER
    return _whole(
        lambda: {"trace_id": trace.trace_id, "prompt": asked, "messages": messages_of(steps), "reward": reward}
    )


def _whole(make: Callable[[], Row]) -> Row | str:
    """Return a row that has a prompt and can be written everywhere, or why it cannot be used."""
    try:
        row = make()
        json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError):
        return NO_TEXT
    return row if row["prompt"] else NO_REQUEST


def _balanced(by_id: dict[str, Row], balance: Balance, seed: int) -> list[Row]:
    """Return the examples to keep, in their order.

    Raises:
        DataError: There is only one class.
    """
    classes = {label: sorted(name for name, row in by_id.items() if row["label"] is label) for label in (True, False)}
    num_good, num_bad = len(classes[True]), len(classes[False])
    if not num_good or not num_bad:
        raise DataError(
            f"KTO must see good and bad examples, got {num_good} good and {num_bad} bad: with one class nothing holds "
            "the other way, and all completions only become more likely, or all less. Add traces of the other class, "
            "or choose a threshold between their rewards"
        )
    if balance is Balance.down_sample:
        size = min(num_good, num_bad)
        kept = {name for names in classes.values() for name in random.Random(seed).sample(names, size)}
        return [row for name, row in by_id.items() if name in kept]
    return list(by_id.values())


def _is_equal(row: Row) -> bool:
    rewards = [member["reward"] for member in row["members"]]
    return max(rewards) - min(rewards) <= EQUAL_WITHIN
