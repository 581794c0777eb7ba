"""Fitting and cross-validating the learned reward; the only module that needs scikit-learn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skyrl_nat.data.traces.calibration import Quality, calibration_bins, calibration_error
from skyrl_nat.errors import ConfigError

try:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import brier_score_loss, roc_auc_score
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits
except ImportError as missing:
    raise ConfigError(
        "A learned reward must be fitted with scikit-learn, which is not installed. pip install scikit-learn"
    ) from missing

MAX_FOLDS = 5
REGULARIZATION = 1.0
"""C of the logistic regression."""
NO_REGULARIZATION = 1e6
MAX_ITERATIONS = 1000
Folds = list[tuple[Any, Any]]
_one_thread = threadpool_limits.wrap(limits=1)
"""The matrices are tiny: more threads only wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The numbers of a calibrated logistic regression."""

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    slope: float
    offset: float

    def predict(self, rows: Any) -> Any:
        """Return the probability of good for each row."""
        scores = ((rows - np.array(self.means)) / np.array(self.scales)) @ np.array(self.weights) + self.bias
        return 1 / (1 + np.exp(-(self.slope * scores + self.offset)))


@_one_thread
def fit(rows: Any, is_good: Any, requests: Sequence[str], *, seed: int) -> Fitted:
    """Fit on all rows; the calibration is fitted on scores of models that had not seen the row."""
    features, targets = np.array(rows, dtype=float), np.array(is_good, dtype=int)
    folds, _ = make_folds(targets, requests, seed=seed, min_left=1)
    scores = np.empty(len(targets))
    for train, test in folds:
        scaler, model = _fit_uncalibrated(features[train], targets[train])
        scores[test] = model.decision_function(scaler.transform(features[test]))
    slope, offset = fit_calibration(scores, targets)
    scaler, model = _fit_uncalibrated(features, targets)
    return Fitted(
        means=tuple(map(float, scaler.mean_)),
        scales=tuple(map(float, scaler.scale_)),
        weights=tuple(map(float, model.coef_[0])),
        bias=float(model.intercept_[0]),
        slope=slope,
        offset=offset,
    )


@_one_thread
def cross_validate(rows: Any, is_good: Any, requests: Sequence[str], *, seed: int) -> Quality:
    """Measure the whole procedure, calibration included, on folds that it has not seen."""
    features, targets = np.array(rows, dtype=float), np.array(is_good, dtype=int)
    folds, is_by_request = make_folds(targets, requests, seed=seed, min_left=2)
    predicted, base = np.empty(len(targets)), np.empty(len(targets))
    for train, test in folds:
        fitted = fit(features[train], targets[train], np.array(requests)[train].tolist(), seed=seed)
        predicted[test] = fitted.predict(features[test])
        base[test] = targets[train].mean()
    bins = calibration_bins(predicted.tolist(), [bool(target) for target in targets])
    return Quality(
        num_good=int(targets.sum()),
        num_bad=int(len(targets) - targets.sum()),
        num_folds=len(folds),
        is_by_request=is_by_request,
        auc=float(roc_auc_score(targets, predicted)),
        brier=float(brier_score_loss(targets, predicted)),
        base_brier=float(brier_score_loss(targets, base)),
        calibration_error=calibration_error(bins),
        bins=bins,
    )


def make_folds(targets: Any, requests: Sequence[str], *, seed: int, min_left: int) -> tuple[Folds, bool]:
    """Return stratified folds and whether they keep the traces of one request together.

    They do where that leaves at least `min_left` of each class in every training part; several answers to one
    request resemble each other, and a model must not be praised for having seen the twin.
    """
    smallest = int(np.bincount(targets, minlength=2).min())
    num_folds = min(MAX_FOLDS, smallest)
    if len(set(requests)) >= num_folds:
        grouped = list(
            StratifiedGroupKFold(num_folds, shuffle=True, random_state=seed).split(targets, targets, requests)
        )
        if all(np.bincount(targets[train], minlength=2).min() >= min_left and len(test) for train, test in grouped):
            return grouped, True
    return list(StratifiedKFold(num_folds, shuffle=True, random_state=seed).split(targets, targets)), False


def fit_calibration(scores: Any, targets: Any) -> tuple[float, float]:
    """Return slope and offset of Platt's calibration, with his smoothed targets.

    A slope below 0 would turn the model round on the strength of noise; it becomes 0, and the share of good ones is
    predicted.
    """
    num_good = int(targets.sum())
    num_bad = len(targets) - num_good
    smoothed = np.where(targets == 1, (num_good + 1) / (num_good + 2), 1 / (num_bad + 2))
    model = LogisticRegression(C=NO_REGULARIZATION, max_iter=MAX_ITERATIONS)
    column = np.concatenate([scores, scores])[:, None]
    outcomes = np.repeat([1, 0], len(targets))
    model.fit(column, outcomes, sample_weight=np.concatenate([smoothed, 1 - smoothed]))
    slope, offset = float(np.ravel(model.coef_)[0]), float(np.ravel(model.intercept_)[0])
    if slope > 0:
        return slope, offset
    return 0.0, float(np.log((num_good + 1) / (num_bad + 1)))


def _fit_uncalibrated(features: Any, targets: Any) -> tuple[Any, Any]:
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(C=REGULARIZATION, max_iter=MAX_ITERATIONS)
    return scaler, model.fit(scaler.transform(features), targets)
