"""An engine for a GGUF file: llama.cpp computes, through llama-cpp-python; everything else is as in `hf.py`.

For evaluation of what was exported and quantised: no weights can be pushed into it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skyrl_nat.engines.decoder import Decoder, DecodingRequest
from skyrl_nat.engines.hf import HfEngine
from skyrl_nat.engines.model_folder import read_stop_token_ids
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.weight_sync.base import TensorSpec


class GgufEngine(HfEngine):
    """`Engine` over a GGUF file; `model_path` gives tokenizer and end tokens, `config.gguf` the weights."""

    async def update_weights(self, manifest: list[TensorSpec], version: int, payload: Any) -> None:
        """Refuse: the weights of a GGUF file are fixed."""
        raise WeightSyncError("A GGUF file takes no weights, it can only be evaluated. Train with engine=vllm or hf")

    async def checksums(self) -> dict[str, str]:
        """Return nothing: quantised tensors have no counterpart in a checkpoint."""
        self._lifecycle.require_alive("checksums")
        return {}

    def _load(self) -> None:
        file = Path(self.config.gguf or "")
        if not file.is_file():
            raise EngineError(f"engine.gguf must be a file, got {self.config.gguf}. Check the path")
        try:
            from llama_cpp import Llama, llama_get_logits_ith
        except ImportError as error:
            raise EngineError(
                "engine.kind=gguf needs the package llama-cpp-python, which is not installed. pip install "
                "'skyrl-nat[gguf]'; it compiles llama.cpp, so that a C++ compiler must be there"
            ) from error
        try:
            llama = Llama(
                str(file),
                n_ctx=self.max_model_len,
                n_threads=self.num_threads,
                n_threads_batch=self.num_threads,
                n_gpu_layers=0 if self.device == "cpu" else -1,
                verbose=False,
            )
        except (ValueError, OSError) as error:
            raise EngineError(f"llama.cpp must load {file}, but: {error}. Give a whole GGUF file") from error
        self._decoder = LlamaCppDecoder(llama, llama_get_logits_ith, read_stop_token_ids(self.folder))


class LlamaCppDecoder(Decoder):
    """Samples as `Decoder` does, one request after the other, from llama.cpp's logits."""

    def __init__(self, llama: Any, read_logits: Callable[[Any, int], Any], stop_token_ids: Sequence[int]) -> None:
        """Take an open model.

        Args:
            llama: `llama_cpp.Llama`.
            read_logits: `llama_cpp.llama_get_logits_ith`.
            stop_token_ids: Tokens that end a completion; they are returned.
        """
        super().__init__(llama, _NoSlots(), stop_token_ids, shares_prefixes=False, is_alone=True)  # pyright: ignore[reportArgumentType]
        self._read_logits = read_logits
        self._known: list[int] = []
        """Tokens whose keys and values are in the cache."""

    def _admit(self) -> None:
        if self.waiting and not self.active:
            self.active.append(self.waiting.popleft())
            self._sample(self.active, self._logits(self.active[0]))

    def _decode(self) -> None:
        self._sample(self.active, self._logits(self.active[0]))

    def _logits(self, request: DecodingRequest) -> Tensor:
        """Return `[1, V]` logits of the token after a request's, fp32; a known beginning is not computed again."""
        tokens, known = request.tokens, self._known
        if tokens[: len(known)] != known or len(tokens) == len(known):
            self.model.reset()
            known = []
        self.model.eval(tokens[len(known) :])
        self._known = list(tokens)
        last = np.ctypeslib.as_array(self._read_logits(self.model.ctx, -1), shape=(self.model.n_vocab(),))
        return torch.from_numpy(last.astype(np.float32)).unsqueeze(0)


class _NoSlots:
    """Stands for the embedded engine's KV rows: llama.cpp has its own."""

    def release(self, row: int) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""
