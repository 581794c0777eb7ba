"""What every engine owes: the protocol that the pool, the rollouts and the weight push rely on."""

from typing import Any, Protocol

from skyrl_nat.monitoring.usage import Usage
from skyrl_nat.types import Completion, GenerationRequest
from skyrl_nat.weight_sync.base import TensorSpec


class Engine(Protocol):
    """One generation engine. Plain async class; many `generate` calls run at once.

    Life: `start`, then any number of generate and (pause, update_weights, resume) in any overlap, then
    `shutdown`. An engine answers `generate` only with weights of a version that it can name.
    """

    async def start(self) -> None:
        """Load the model and get ready. Raises EngineError with the cause."""
        ...

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion.

        While paused, requests wait and running ones stand still. A prompt that leaves no room for one
        token within the context length raises EngineError; nothing is ever cut from a prompt.
        `max_new_tokens` is lowered to the room that is left, the reason is then LENGTH.
        """
        ...

    async def pause(self) -> None:
        """Stop sampling; running requests keep their tokens and go on after `resume`."""
        ...

    async def resume(self) -> None:
        """Go on. Refused (EngineError) after a weight update that failed."""
        ...

    async def connect_weights(self, info: dict[str, Any]) -> None:
        """Join the transport's channel; `info["workers"]` holds what each worker of this engine needs for that."""
        ...

    async def update_weights(self, manifest: list[TensorSpec], version: int, payload: Any) -> None:
        """Take every tensor of the manifest and then serve as `version`.

        Only while paused. KV of older versions, the prefix cache included, is dropped. Missing, unknown
        or wrongly shaped names raise WeightSyncError with the list and leave the version as it was.

        Args:
            manifest: Names (as in a Hugging Face checkpoint), shapes and dtypes in the order sent.
            version: The policy version that these weights are.
            payload: Tensors by name for the host transport; None where the transport has its own channel.
        """
        ...

    async def checksums(self) -> dict[str, str]:
        """Return a digest of every tensor by checkpoint name (`weight_sync.base.tensor_digest`)."""
        ...

    async def sleep(self) -> None:
        """Give device memory back (weights and KV); a no-op on CPU."""
        ...

    async def wake(self, tags: list[str]) -> None:
        """Take memory again: tag `weights` before an update, tag `kv_cache` before generation."""
        ...

    async def policy_version(self) -> int:
        """Version of the weights in service; 0 right after `start`."""
        ...

    async def usage(self) -> Usage:
        """Return what the engine did since the last call: when it was busy, and tokens."""
        ...

    async def shutdown(self) -> None:
        """Release everything; safe to call twice."""
        ...
