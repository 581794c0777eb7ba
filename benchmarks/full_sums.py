"""A worker extension for vLLM whose import forbids matrix products to add partial sums in bf16; see logprob_sources."""

import torch

torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


class FullSums:
    """Nothing more: its import is what counts."""
