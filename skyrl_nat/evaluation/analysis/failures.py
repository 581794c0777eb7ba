"""What validators found wrong, counted: findings that differ in names and numbers only are one cluster."""

import re
from collections import Counter
from dataclasses import dataclass, field

from skyrl_nat.evaluation.analysis.series import Series, Trend, trend_of
from skyrl_nat.types import RewardResult, Rollout

MAX_FINDING_CHARS = 300
MAX_TEXT_CHARS = 4000
"""Of an example's completion; the page holds one for every cluster that it shows."""
MAX_CLUSTERS = 500
"""Of a kind; what comes after them is counted as `OTHERS`, so that no model can fill the memory with findings."""
OTHERS = "(others)"
NOT_REACHED = "not reached"
"""Evidence of a stage that the checks before it kept from being made."""
_DETAIL = re.compile(
    r"""
    (?P<quoted> (?<!\w)'[^']*'(?!\w) | "[^"]*" | `[^`]*` )
    | (?P<path> [\w.~-]*/[\w./~-]+ )
    | (?P<name> [A-Za-z]*[_][\w.]* )
    | (?P<number> \b0x[0-9a-f]+\b | \d+(?:\.\d+)? )
    """,
    re.VERBOSE,
)
_UNSHOWABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_LIST = re.compile(r"NAME(?:, NAME)+")


@dataclass(frozen=True, slots=True)
class Example:
    """A rollout of a cluster, the last one seen."""

    rollout_id: str
    task_id: str
    step: int
    finding: str
    text: str
    """Of the last completion, cut off."""


@dataclass(slots=True)
class Cluster:
    """Rollouts with findings of one kind."""

    name: str
    by_step: Counter[int] = field(default_factory=Counter[int])
    example: Example | None = None

    @property
    def num_rollouts(self) -> int:
        """How many have one."""
        return self.by_step.total()


class Clusters:
    """Counts rollouts by the kinds of their findings."""

    def __init__(self) -> None:
        self._found: dict[str, Cluster] = {}
        self.judged: Counter[int] = Counter()
        """Rollouts with a verdict by step, with or without findings."""
        self.affected: Counter[int] = Counter()
        """Those with any finding."""

    def add(self, step: int, rollout: Rollout, findings: list[str]) -> None:
        """Take the findings of a rollout; several of one kind count once."""
        self.judged[step] += 1
        self.affected[step] += bool(findings)
        for name, finding in {kind_of(finding): finding for finding in reversed(findings)}.items():
            kept = name if name in self._found or len(self._found) < MAX_CLUSTERS else OTHERS
            cluster = self._found.setdefault(kept, Cluster(kept))
            cluster.by_step[step] += 1
            cluster.example = _example(step, rollout, finding)

    def most_frequent(self) -> list[Cluster]:
        """Return all clusters, the largest first."""
        return sorted(self._found.values(), key=lambda cluster: (-cluster.num_rollouts, cluster.name))

    def trend(self, cluster: Cluster, *, alpha: float) -> Trend:
        """Return how the share of a step's rollouts in a cluster changes."""
        return trend_of(share_by_step(cluster.by_step, self.judged), alpha=alpha)


@dataclass(slots=True)
class Stage:
    """One check of the validator over all rollouts."""

    wanted: Counter[int] = field(default_factory=Counter[int])
    """Rollouts by step of which it was to be made."""
    reached: Counter[int] = field(default_factory=Counter[int])
    passed: Counter[int] = field(default_factory=Counter[int])

    def add(self, step: int, *, is_ok: bool, is_reached: bool) -> None:
        """Take the check of one rollout."""
        self.wanted[step] += 1
        self.reached[step] += is_reached
        self.passed[step] += is_ok


def add_stages(stages: dict[str, Stage], step: int, reward: RewardResult) -> None:
    """Count the stages of one verdict."""
    for report in reward.stages:
        stage = stages.setdefault(plain(report.name), Stage())
        stage.add(step, is_ok=report.is_ok, is_reached=report.is_ok or report.evidence != NOT_REACHED)


def share_by_step(part: Counter[int], whole: Counter[int]) -> Series:
    """Return what share of the whole a part is, at steps that have any."""
    return Series.of({step: part[step] / number for step, number in whole.items() if number})


def kind_of(finding: str) -> str:
    """Return a finding with placeholders for what is quoted, for names, folders and numbers."""
    text = _DETAIL.sub(_placeholder, plain(finding[:MAX_FINDING_CHARS]))
    return _LIST.sub("NAME", " ".join(text.split())) or "(empty)"


def plain(text: str) -> str:
    """Return text without control characters and lone surrogates, which terminals obey and files refuse."""
    return _UNSHOWABLE.sub("\ufffd", text)


def _placeholder(found: re.Match[str]) -> str:
    if found.lastgroup == "path":
        return "…/" + _DETAIL.sub(_placeholder, found[0].rstrip("/").rpartition("/")[2])
    if found.lastgroup == "name":
        # The end of a file's name says what is wrong with what.
        name, dot, end = found[0].rpartition(".")
        return f"NAME.{end}" if dot and name and end else "NAME" + dot
    return {"quoted": "'…'", "number": "N"}[str(found.lastgroup)]


def _example(step: int, rollout: Rollout, finding: str) -> Example:
    text = rollout.turns[-1].completion_text if rollout.turns else ""
    rest = len(text) - MAX_TEXT_CHARS
    return Example(
        rollout_id=plain(rollout.rollout_id[:MAX_FINDING_CHARS]),
        task_id=plain(rollout.task.task_id[:MAX_FINDING_CHARS]),
        step=step,
        finding=plain(finding[:MAX_FINDING_CHARS]),
        text=plain(text[:MAX_TEXT_CHARS]) + (f"\n… ({rest} more characters)" if rest > 0 else ""),
    )
