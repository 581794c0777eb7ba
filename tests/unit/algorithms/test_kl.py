"""KL estimators: values by hand, expected gradients by exact enumeration."""

import pytest
import torch
from torch import Tensor

from skyrl_nat.algorithms.kl import KL_ESTIMATORS, importance_weighted

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REFERENCE = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
ALL = torch.ones(3, dtype=torch.bool)


def expected_gradient(name: str) -> Tensor:
    """Return the gradient by the logits of the estimator as a loss, averaged over sampled tokens."""
    logits = POLICY.log().clone().requires_grad_()
    estimates = KL_ESTIMATORS[name](logits.log_softmax(0), REFERENCE.log(), ALL)
    (POLICY * estimates).sum().backward()
    assert logits.grad is not None
    return logits.grad


def test_values_of_three_tokens() -> None:
    """GM-11, row 53: sign and formula of each estimator; a masked token adds nothing."""
    policy = torch.tensor([-1.0, -2.0, -0.5, -1.0])
    reference = torch.tensor([-1.2, -1.5, -0.5, -51.0])
    mask = torch.tensor([True, True, True, False])
    expected = {
        "k1": [0.2, -0.5, 0.0, 0.0],
        "k2": [0.02, 0.125, 0.0, 0.0],
        "k3": [0.01873, 0.14872, 0.0, 0.0],
    }
    for name, values in expected.items():
        found = KL_ESTIMATORS[name](policy, reference, mask)
        assert found.tolist() == pytest.approx(values, abs=1e-5), name


def test_expected_values() -> None:
    """Row 25: k1 and k3 are unbiased, k2 is close."""
    expected = {"k1": 0.02527, "k2": 0.02486, "k3": 0.02527}
    for name, value in expected.items():
        found = (POLICY * KL_ESTIMATORS[name](POLICY.log(), REFERENCE.log(), ALL)).sum()
        assert float(found) == pytest.approx(value, abs=1e-5), name


def test_expected_gradients_as_a_loss() -> None:
    """Rows 24 and 25: k2's is that of KL(policy || reference), k3's of the reverse, k1's nothing."""
    expected = {
        "k1": [0.0, 0.0, 0.0],
        "k2": [0.0989, -0.0939, -0.0051],
        "k3": [0.1, -0.1, 0.0],
    }
    for name, values in expected.items():
        assert expected_gradient(name).tolist() == pytest.approx(values, abs=1e-4), name


def test_k2_gradient_is_that_of_the_divergence() -> None:
    logits = POLICY.log().clone().requires_grad_()
    log_policy = logits.log_softmax(0)
    (log_policy.exp() * (log_policy - REFERENCE.log())).sum().backward()
    assert logits.grad is not None
    assert expected_gradient("k2").tolist() == pytest.approx(logits.grad.tolist())


BEHAVIOUR = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_samples_of_another_policy_need_an_importance_weight(name: str) -> None:
    """Row 26: drawn from mu, weighted with policy / mu: value and gradient are those of the divergence."""
    logits = POLICY.log().clone().requires_grad_()
    log_policy = logits.log_softmax(0)
    kl = KL_ESTIMATORS[name](log_policy, REFERENCE.log(), ALL)
    value = (BEHAVIOUR * importance_weighted(kl, log_policy - BEHAVIOUR.log())).sum()
    value.backward()
    assert value.item() == pytest.approx(0.02527, abs=1e-5)
    assert float((BEHAVIOUR * kl).sum().detach()) != pytest.approx(0.02527, abs=1e-3)
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([0.0989, -0.0939, -0.0051], abs=1e-4)


def test_k1_in_the_reward_has_the_gradient_of_the_divergence() -> None:
    """Row 25: the score function times k1, which has no gradient of its own."""
    logits = POLICY.log().clone().requires_grad_()
    log_policy = logits.log_softmax(0)
    reward = -KL_ESTIMATORS["k1"](POLICY.log(), REFERENCE.log(), ALL)
    (-(POLICY * reward * log_policy).sum()).backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx([0.0989, -0.0939, -0.0051], abs=1e-4)


@pytest.mark.parametrize("name", list(KL_ESTIMATORS))
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_masked_positions_reach_no_gradient(name: str, poison: float) -> None:
    """Row 52."""
    policy = torch.tensor([-1.0, poison], requires_grad=True)
    mask = torch.tensor([True, False])
    KL_ESTIMATORS[name](policy, torch.tensor([-1.5, poison]), mask).sum().backward()
    assert policy.grad is not None
    assert policy.grad[1] == 0
    assert torch.isfinite(policy.grad[0])


def test_absolute_distance_of_both_signs() -> None:
    """GM-11: d = 0.2 and -0.5; the masked token adds nothing."""
    mask = torch.tensor([True, True, False])
    policy = torch.tensor([-1.0, -2.0, -1.0], requires_grad=True)
    found = KL_ESTIMATORS["abs"](policy, torch.tensor([-1.2, -1.5, -51.0]), mask)
    assert found.tolist() == pytest.approx([0.2, 0.5, 0.0])
    found.sum().backward()
    assert policy.grad is not None
    assert policy.grad.tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize("name", ["k2", "k3", "abs"])
def test_the_reference_never_carries_a_gradient(name: str) -> None:
    reference = torch.tensor([-1.2, -1.5], requires_grad=True)
    policy = torch.tensor([-1.0, -2.0], requires_grad=True)
    KL_ESTIMATORS[name](policy, reference, torch.tensor([True, True])).sum().backward()
    assert reference.grad is None
