"""Linear layers for decoding on a CPU, where a batch has few rows. Letters: R rows, I inputs, O outputs."""

from torch import Tensor, nn

MAX_ROWS = 64
"""Decoding batches of CPU machines stay below it; prompts go the usual way."""


class FewRowsLinear(nn.Linear):
    """`nn.Linear` that multiplies weight by input for few rows.

    Matrix libraries split the first factor's rows over threads and vector lanes: with R of the order of ten
    they starve, with O in that place they do not. The product is the same up to the order of its sums.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return `[..., O]` for `[..., I]`."""
        num_rows = input.numel() // self.in_features
        if num_rows > MAX_ROWS:
            return super().forward(input)
        output = (self.weight @ input.reshape(num_rows, self.in_features).T).T
        if self.bias is not None:
            output = output + self.bias
        return output.reshape(*input.shape[:-1], self.out_features)


def speed_up_few_rows(model: nn.Module) -> None:
    """Turn every plain linear layer of a model into a `FewRowsLinear`, in place; parameters stay as they are."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = FewRowsLinear
