"""Weights as one copy in host memory: exported by the policy, handed to every engine."""

import asyncio
import shutil
import tempfile
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import WorkerCalls, memory_folder
from skyrl_nat.weight_sync.buckets import num_bytes


class HostTransport:
    """Weight transport through an opaque handle (with Ray, an object of its store).

    Args:
        timeout_s: Deadline of one push, seconds.
        dtype: torch dtype name in which weights travel; the engines' own dtype.
    """

    def __init__(self, timeout_s: float, *, dtype: str = "float32") -> None:
        self.timeout_s = timeout_s
        self.dtype = dtype

    async def connect(self, policy: WorkerCalls, engines: WorkerCalls) -> None:
        """Do nothing: the handle is the channel."""

    async def push(self, policy: WorkerCalls, engines: WorkerCalls, version: int) -> int:
        """Deliver what changed; return the bytes that each engine took when all serve `version`."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._push(policy, engines, version)
        except TimeoutError as error:
            raise WeightSyncError(
                f"The push of version {version} must end within {self.timeout_s:.0f} s, found it still "
                "running. Raise weight_sync.timeout_s or look for a process that stands still."
            ) from error
        except WeightSyncError:
            raise
        except Exception as error:
            raise WeightSyncError(
                f"The push of version {version} must reach every engine, found "
                f"{type(error).__name__}: {error}. Push again: until then no engine may serve."
            ) from error

    async def _push(self, policy: WorkerCalls, engines: WorkerCalls, version: int) -> int:
        manifest = (await policy.call_all("weight_manifest", self.dtype))[0]
        # Gathering is a collective: every rank takes part, rank 0 holds the result.
        exports = (policy.call_opaque(rank, "export_weights", self.dtype) for rank in policy.ranks)
        handles = await asyncio.gather(*exports)
        await engines.call_all("update_weights", manifest, version, handles[0])
        return sum(num_bytes(spec) for spec in manifest)


def write_payload(payload: dict[str, Tensor]) -> Path:
    """Write tensors to a file in memory: vLLM's calls carry none, and this is the fastest way across."""
    folder = Path(tempfile.mkdtemp(prefix="skyrl-nat-weights-", dir=memory_folder()))
    try:
        save_file({name: _own(tensor) for name, tensor in payload.items()}, folder / "weights.safetensors")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder / "weights.safetensors"


def _own(tensor: Tensor) -> Tensor:
    """Return a tensor that shares memory with no other, as safetensors wants."""
    tensor = tensor.detach().cpu().contiguous()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()
