"""The learning rate of a run that was stopped and resumed."""

from pathlib import Path

import pytest
from toy_run import make_toy_model, open_run, train

from skyrl_nat.config.model import OptimizerConfig
from skyrl_nat.workers.optimizer import lr_at

WARM_COSINE = (
    "optimizer.lr=1e-3",
    "optimizer.warmup_steps=10",
    "optimizer.schedule=cosine",
    "optimizer.min_lr_ratio=0",
)
STOP, TOTAL = 40, 100


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy_model(tmp_path_factory.mktemp("model"))


def rates(model: Path, num_steps: int, total: int, *, start: Path | None = None, save: Path | None = None):
    """Train a toy policy and return the learning rates of its optimizer steps."""
    with open_run(model, *WARM_COSINE) as run:
        run.policy.worker.total_steps = total
        if start is not None:
            run.policy.worker.load(start)
        found = [metrics["loss/lr"] for metrics in train(run, num_steps, run.sampler.demonstrate(2))]
        if save is not None:
            run.policy.worker.save(save)
    return found


def test_a_resumed_run_has_the_rates_of_an_unbroken_one(model: Path, tmp_path: Path) -> None:
    """CK-07: warm-up 10, cosine to step 100, stopped at 40; at step 41 0.7347 of the peak, not 0.1."""
    unbroken = rates(model, TOTAL, TOTAL)
    before = rates(model, STOP, TOTAL, save=tmp_path / "policy")
    after = rates(model, TOTAL - STOP, TOTAL, start=tmp_path / "policy")
    assert before + after == pytest.approx(unbroken, abs=1e-9)
    assert len(unbroken) == 100
    assert after[0] / 1e-3 == pytest.approx(0.7347, abs=1e-4)


def test_with_other_total_steps_the_rate_is_that_of_a_run_planned_so_from_the_start(
    model: Path, tmp_path: Path
) -> None:
    """CK-07: the rule of docs/resume.md; longer or shorter, the rate depends on step and new total alone."""
    rates(model, STOP, TOTAL, save=tmp_path / "policy")
    for total in (60, 200):
        config = OptimizerConfig(lr=1e-3, warmup_steps=10, schedule="cosine", min_lr_ratio=0)
        expected = [lr_at(step, config, total) for step in range(STOP, STOP + 20)]
        assert rates(model, 20, total, start=tmp_path / "policy") == pytest.approx(expected, abs=1e-9)
    assert expected[0] > lr_at(STOP, config, TOTAL), "twice as long, it falls half as fast"
