"""Few-row linear layers equal the usual ones."""

import pytest
import torch
from torch import nn

from skyrl_nat.engines.few_rows import MAX_ROWS, FewRowsLinear, speed_up_few_rows


@pytest.mark.parametrize("shape", [(1,), (16, 1), (2, 3), (MAX_ROWS, 1), (MAX_ROWS + 1, 1)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_output_is_that_of_a_plain_layer(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(48, 80, bias=has_bias)
    inputs = torch.randn(*shape, 48)
    expected = plain(inputs)
    speed_up_few_rows(plain)
    assert isinstance(plain, FewRowsLinear)
    torch.testing.assert_close(plain(inputs), expected, rtol=1e-5, atol=1e-6)


def test_layers_with_their_own_forward_are_left_alone() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    model = nn.Sequential(nn.Linear(4, 4), Doubled(4, 4))
    weight = model[0].weight
    speed_up_few_rows(model)
    assert [type(layer) for layer in model] == [FewRowsLinear, Doubled]
    assert model[0].weight is weight
