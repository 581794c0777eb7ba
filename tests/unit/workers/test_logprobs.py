"""Chunked log-probs against the plain formula."""

import math
from typing import Any

import pytest
import torch

from skyrl_nat.workers import logprobs as module
from skyrl_nat.workers.logprobs import HeadOptions, token_logprobs


@pytest.mark.parametrize("chunk_tokens", [1, 4, 5, 13, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_equal_the_plain_formula(chunk_tokens: int, temperature: float) -> None:
    """Log-prob and entropy, both with gradients, for chunks that do and do not divide M."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(13, 8, generator=generator)
    weight = torch.randn(31, 8, generator=generator)
    targets = torch.randint(0, 31, (13,), generator=generator)
    by_logprob = torch.randn(13, generator=generator)
    by_entropy = torch.randn(13, generator=generator)

    plain = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logs = ((plain[0] @ plain[1].T) / temperature).log_softmax(-1)
    expected = logs.gather(1, targets[:, None])[:, 0]
    expected_entropy = -(logs.exp() * logs).sum(-1)
    (by_logprob * expected + by_entropy * expected_entropy).sum().backward()

    ours = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    logprobs, entropies = token_logprobs(
        ours[0], ours[1], targets, HeadOptions(temperature=temperature, chunk_tokens=chunk_tokens)
    )
    (by_logprob * logprobs + by_entropy * entropies).sum().backward()

    assert torch.allclose(logprobs, expected, atol=1e-5)
    assert torch.allclose(entropies, expected_entropy, atol=1e-5)
    for left, right in zip(ours, plain, strict=True):
        assert left.grad is not None
        assert right.grad is not None
        assert torch.allclose(left.grad, right.grad, rtol=1e-4, atol=1e-5)


def test_one_of_two_gradients_alone_is_right_too() -> None:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(6, 4, generator=generator)
    weight = torch.randn(9, 4, generator=generator)
    targets = torch.arange(6)
    for pick in (0, 1):
        plain = hidden.clone().requires_grad_()
        logs = (plain @ weight.T).log_softmax(-1)
        values = (logs.gather(1, targets[:, None])[:, 0], -(logs.exp() * logs).sum(-1))
        values[pick].sum().backward()
        ours = hidden.clone().requires_grad_()
        token_logprobs(ours, weight, targets, HeadOptions(temperature=1.0, chunk_tokens=4))[pick].sum().backward()
        assert ours.grad is not None
        assert plain.grad is not None
        assert torch.allclose(ours.grad, plain.grad, atol=1e-5)


def test_temperature_divides_the_logits_and_touches_nothing_else() -> None:
    """Rows 33 and 34: logits [2, 0] at T = 0.5 give ln 0.9820; inputs keep their bits."""
    hidden = torch.tensor([[1.0, 0.0]])
    weight = torch.tensor([[2.0, 0.0], [0.0, 5.0]])
    kept = (hidden.clone(), weight.clone())
    logprobs, entropies = token_logprobs(
        hidden, weight, torch.tensor([0]), HeadOptions(temperature=0.5, chunk_tokens=8)
    )
    assert logprobs.item() == pytest.approx(math.log(0.98201), abs=1e-5)
    p = 1 / (1 + math.exp(-4))
    assert entropies.item() == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-5)
    assert torch.equal(hidden, kept[0])
    assert torch.equal(weight, kept[1])


def test_results_are_fp32_and_small_for_bf16_weights() -> None:
    """Rows 37 and 38: bf16 logits are normalised in fp32."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(5, 16, generator=generator).bfloat16().requires_grad_()
    weight = (0.2 * torch.randn(40, 16, generator=generator)).bfloat16().requires_grad_()
    targets = torch.arange(5)
    logprobs, _ = token_logprobs(hidden, weight, targets, HeadOptions(temperature=1.0, chunk_tokens=2))
    logprobs.sum().backward()
    expected = (hidden.float() @ weight.float().T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    assert logprobs.dtype is torch.float32
    assert (logprobs - expected).abs().mean() < 0.01
    assert weight.grad is not None
    assert weight.grad.dtype is torch.bfloat16


def test_no_tokens_give_zero_gradients_instead_of_none() -> None:
    """Row 9: a filler takes part in the backward pass of every parameter."""
    hidden = torch.zeros(0, 4, requires_grad=True)
    weight = torch.ones(9, 4, requires_grad=True)
    logprobs, _ = token_logprobs(
        hidden, weight, torch.zeros(0, dtype=torch.int64), HeadOptions(temperature=1.0, chunk_tokens=8)
    )
    logprobs.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_an_fp32_head_does_not_round_logits() -> None:
    """Row 38: bf16 hidden states and weights, products kept in fp32; without it logits are rounded to bf16."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 64, generator=generator).bfloat16()
    weight = torch.randn(31, 64, generator=generator).bfloat16()
    targets = torch.arange(5)
    exact = (hidden.double() @ weight.double().T).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    errors = []
    for fp32_head in (True, False):
        logprobs, _ = token_logprobs(
            hidden, weight, targets, HeadOptions(temperature=1.0, chunk_tokens=4, fp32_head=fp32_head)
        )
        errors.append(float((logprobs.double() - exact).abs().max()))
    assert errors[0] < 1e-5
    assert errors[1] > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_chunks_give_the_same_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Traced whole, for chunks of two sizes; the code that a GPU's compiler would make of it needs a GPU."""

    def traced(function: Any) -> Any:
        return torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)

    monkeypatch.setattr(module, "_compiled", traced)
    generator = torch.Generator().manual_seed(2)
    hidden, weight = torch.randn(7, 4, generator=generator), torch.randn(9, 4, generator=generator)
    found = []
    for is_compiled in (False, True):
        leaves = [hidden.to(dtype).clone().requires_grad_(), weight.to(dtype).clone().requires_grad_()]
        options = HeadOptions(temperature=0.7, chunk_tokens=4, is_compiled=is_compiled)
        values = token_logprobs(leaves[0], leaves[1], torch.arange(7), options)
        (values[0].sum() + 0.3 * values[1].sum()).backward()
        found.append([*values, *(leaf.grad for leaf in leaves)])
    for plain, compiled in zip(*found, strict=True):
        assert torch.equal(plain, compiled)
