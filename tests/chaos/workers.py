"""Policy rank and engine that make a fault when one is armed for them; otherwise the product's own."""

from dataclasses import replace
from typing import Any

from chaos.armed import HANGS, fail, stand_still, struck
from torch import Tensor

from skyrl_nat.engines.hf import HfEngine
from skyrl_nat.types import Completion, GenerationRequest
from skyrl_nat.workers.policy import PolicyWorker

NAN_GRADIENT = "NaN gradient"


class ChaosPolicy(PolicyWorker):
    """Raises, hangs, or takes a gradient of NaN."""

    _is_poisoned = False

    def train(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        fault = struck("policy", "train")
        fail(fault)
        self._is_poisoned = fault == NAN_GRADIENT
        return super().train(*args, **kwargs)

    def save(self, *args: Any, **kwargs: Any) -> None:
        fail(struck("policy", "save"))
        super().save(*args, **kwargs)

    def export_weights(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        fail(struck("policy", "export_weights"))
        return super().export_weights(*args, **kwargs)

    def _backward(self, loss: Tensor) -> None:
        super()._backward(loss * float("nan") if self._is_poisoned else loss)


GARBAGE = {
    "garbage: too few log-probs": lambda answer: replace(answer, logprobs=answer.logprobs[:-1]),
    "garbage: NaN log-probs": lambda answer: replace(answer, logprobs=[float("nan")] * len(answer.logprobs)),
    "garbage: unknown tokens": lambda answer: replace(answer, token_ids=[10**6] * len(answer.token_ids)),
    "garbage: not a completion": lambda answer: {"text": "lorem ipsum"},
}


class ChaosEngine(HfEngine):
    """Raises, hangs in the thread that decodes, or answers what no engine may answer."""

    async def generate(self, request: GenerationRequest) -> Completion:
        fault = await self._struck("generate")
        answer = await super().generate(request)
        return GARBAGE[fault](answer) if fault in GARBAGE else answer

    async def update_weights(self, *args: Any, **kwargs: Any) -> None:
        await self._struck("update_weights")
        await super().update_weights(*args, **kwargs)

    async def _struck(self, method: str) -> str:
        fault = struck("engine", method)
        if fault == HANGS:
            await self._in_thread(stand_still)
        fail(fault)
        return fault
