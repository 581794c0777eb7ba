"""How good predicted probabilities are, measured on traces that the model has not seen."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

NUM_BINS = 5
"""Few, since a bin of a handful of labels says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Predictions of one fifth of [0, 1]."""

    low: float
    high: float
    count: int
    mean_predicted: float
    share_good: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Cross-validated quality: every prediction comes from a model that was trained without that fold."""

    num_good: int
    num_bad: int
    num_folds: int
    is_by_request: bool
    """Whether traces of one request were always in one fold. Where they are not, new requests may fare worse."""
    auc: float
    """Probability that a good trace is ranked above a bad one; 0.5 is chance."""
    brier: float
    """Mean squared error of the probabilities; lower is better."""
    base_brier: float
    """The same for always predicting the share of good ones in the training folds."""
    calibration_error: float
    """Mean |mean prediction - share of good ones| of the bins, weighted by their counts."""
    bins: tuple[Bin, ...]
    """Only those with predictions."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "bins": [asdict(found) for found in self.bins]}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Quality":
        """Return what `to_dict` gave."""
        return Quality(**{**values, "bins": tuple(Bin(**found) for found in values["bins"])})

    def to_markdown(self) -> str:
        """Return a sentence and the table of the bins."""
        split = "requests kept together" if self.is_by_request else "requests shared between folds"
        lines = [
            f"{self.num_folds} folds ({split}), {self.num_good} good and {self.num_bad} bad: AUC {self.auc:.3f}, Brier "
            f"{self.brier:.3f} (always the share of good ones: {self.base_brier:.3f}), calibration error "
            f"{self.calibration_error:.3f}",
            "",
            "| predicted | count | mean predicted | share good |",
            "|---|---|---|---|",
        ]
        for found in self.bins:
            span = f"{found.low:.1f} to {found.high:.1f}"
            lines.append(f"| {span} | {found.count} | {found.mean_predicted:.3f} | {found.share_good:.3f} |")
        return "\n".join(lines)


def calibration_bins(predicted: Sequence[float], is_good: Sequence[bool]) -> tuple[Bin, ...]:
    """Return predictions in fifths; 1.0 belongs to the last."""
    members: dict[int, list[tuple[float, bool]]] = {}
    for probability, good in zip(predicted, is_good, strict=True):
        members.setdefault(min(int(probability * NUM_BINS), NUM_BINS - 1), []).append((probability, good))
    return tuple(
        Bin(
            low=index / NUM_BINS,
            high=(index + 1) / NUM_BINS,
            count=len(found),
            mean_predicted=sum(probability for probability, _ in found) / len(found),
            share_good=sum(good for _, good in found) / len(found),
        )
        for index, found in sorted(members.items())
    )


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean gap of the bins, weighted by their counts."""
    total = sum(found.count for found in bins)
    return sum(found.count * abs(found.mean_predicted - found.share_good) for found in bins) / total
