"""Products that stay in fp32."""

import torch
from torch import nn

from skyrl_nat.workers.products import Fp32Linear, _linear, fp32_product


def test_a_product_of_bf16_matrices_is_not_rounded() -> None:
    states, weight = torch.tensor([[1.0, 2.0**-9]]).bfloat16(), torch.tensor([[1.0, 1.0]]).bfloat16()
    assert fp32_product(states, weight).tolist() == [[1 + 2.0**-9]]
    assert (states @ weight.T).tolist() == [[1.0]]


def test_in_fp32_a_layer_and_its_gradients_are_those_of_a_linear_one() -> None:
    plain, states = nn.Linear(5, 3), torch.randn(2, 4, 5)
    wide = nn.Linear(5, 3)
    wide.load_state_dict(plain.state_dict())
    wide.__class__ = Fp32Linear
    found = []
    for layer in (plain, wide):
        given = states.clone().requires_grad_()
        result = layer(given)
        result.square().sum().backward()
        found.append((result, given.grad, layer.weight.grad, layer.bias.grad))
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


def test_gradients_have_the_format_of_what_they_belong_to() -> None:
    layer, states = nn.Linear(5, 3, bias=False).bfloat16(), torch.randn(4, 5).bfloat16().requires_grad_()
    layer.__class__ = Fp32Linear
    result = layer(states)
    result.sum().backward()
    assert result.dtype is torch.float32
    assert states.grad.dtype is layer.weight.grad.dtype is torch.bfloat16
    assert torch.equal(layer.weight.grad, states.detach().float().sum(0).bfloat16().expand(3, 5))


def test_the_compiler_knows_the_op() -> None:
    states, weight = torch.randn(2, 4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    torch.library.opcheck(_linear, (states, weight))
