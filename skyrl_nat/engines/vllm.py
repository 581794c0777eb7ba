"""vLLM as an engine: token ids in, token ids with log-probs and versions out.

Written for vLLM 0.26 (GPU) to 0.32 (CPU build). vLLM is imported in `start` only, after the
environment variables that it reads at import. The engine computes in processes of its own.
"""

import asyncio
import contextlib
import gc
import shutil
from collections.abc import Sequence
from typing import Any

import psutil
from safetensors.torch import save
from torch import Tensor

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import AdapterPush, EngineConfig
from skyrl_nat.engines.lifecycle import Lifecycle, Memory
from skyrl_nat.engines.model_folder import (
    is_head_tied,
    read_stop_token_ids,
    request_seed,
    require_folder,
    require_room,
)
from skyrl_nat.engines.processes import children, end_processes
from skyrl_nat.engines.reaper import Reaper
from skyrl_nat.engines.vllm_arguments import adapter_arguments, engine_arguments, set_environment
from skyrl_nat.engines.vllm_requests import VllmRequests
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.monitoring.usage import Usage
from skyrl_nat.types import Completion, GenerationRequest
from skyrl_nat.weight_sync.adapters import adapter_shapes
from skyrl_nat.weight_sync.base import TensorSpec
from skyrl_nat.weight_sync.direct import manifest_to_wire
from skyrl_nat.weight_sync.host import write_payload
from skyrl_nat.weight_sync.manifest import (
    TIED_HEAD,
    describe_problems,
    find_payload_problems,
    find_problems,
    read_expected_shapes,
)


class VllmEngine:
    """`Engine` over vLLM's `AsyncLLM`.

    Digests (`checksums`) are of the live weights, fused matrices taken apart and packed ones read back
    by a multiplication with the identity, which is exact except that a weight of -0.0 reads +0.0.
    With tensor parallelism they are of what was handed to vLLM's loader in the last push.

    Where adapters are pushed apart (`engine.adapters`), the weights stay those of the model folder: it must hold the
    policy's frozen weights. A sleeping engine keeps them in host memory.

    Args:
        model_path: Local folder with `config.json` and safetensors files.
        config: Section `engine`.
        max_model_len: Context length in tokens, prompt and completion together.
        device: `cpu` or `cuda`.
        seed: Enters the random stream of requests that bring no seed.
        num_threads: Threads of one worker on CPU.
        tensor_parallel_size: Workers (GPUs) of this engine.
        lora: Section `model.lora`.
    """

    def __init__(  # noqa: PLR0913 - what Ray starts it with
        self,
        model_path: str,
        config: EngineConfig,
        *,
        max_model_len: int,
        device: str,
        seed: int,
        num_threads: int,
        tensor_parallel_size: int = 1,
        lora: LoraConfig | None = None,
    ) -> None:
        self.folder = require_folder(model_path)
        self.config = config
        self.max_model_len = max_model_len
        self.device = device
        self.seed = seed
        self.num_threads = num_threads
        self.tensor_parallel_size = tensor_parallel_size
        self._is_cpu = device == "cpu"
        self._weights = read_expected_shapes(self.folder)
        self._is_tied = is_head_tied(self.folder)
        if self._is_tied:
            self._weights.pop(TIED_HEAD, None)
        self._lora = lora if lora and lora.rank and config.adapters is AdapterPush.separate else None
        self._expected = adapter_shapes(self._weights, self._lora) if self._lora else self._weights
        """What a push must bring."""
        self._lifecycle = Lifecycle()
        self._in_flight: set[asyncio.Future[Completion]] = set()
        self._alone = asyncio.Semaphore(1)
        self._llm: Any = None
        self._requests: Any = None
        self._processes: set[psutil.Process] = set()
        self._reaper: Reaper | None = None

    async def start(self) -> None:
        """Load the model and get ready. Raises EngineError with the cause."""
        set_environment(is_cpu=self._is_cpu, num_threads=self.num_threads)
        before = children()
        try:
            async with asyncio.timeout(self.config.start_timeout_s):
                self._llm = await asyncio.to_thread(self._build)
                await self._llm.check_health()
                if self.config.fp32_residual:
                    await self._llm.collective_rpc("require_fp32_residual")
                if self._lora:
                    await self._llm.collective_rpc("start_adapter", args=(_plain(self._expected),))
        except Exception as error:
            await asyncio.to_thread(end_processes, children() - before)
            raise EngineError(
                f"vLLM must start on {self.folder} within {self.config.start_timeout_s:.0f} s, found "
                f"{type(error).__name__}: {error}. See the log above; check memory and model type."
            ) from error
        self._processes = children() - before
        self._reaper = await asyncio.to_thread(Reaper, self._processes)
        stop_token_ids = read_stop_token_ids(self.folder)
        self._requests = VllmRequests(self._llm, self.folder, stop_token_ids, has_adapter=self._lora is not None)
        gc.collect()
        gc.freeze()  # as vLLM's own processes do; this one handles every token of every request
        self._lifecycle.is_started = True

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion; see `Engine.generate`."""
        room = require_room(request, self.max_model_len)
        self._lifecycle.require_generate()
        task = asyncio.ensure_future(self._generate_in_turn(request, room))
        self._in_flight.add(task)
        try:
            return await self._lifecycle.clock.follow(request, task)
        except asyncio.CancelledError:
            if task.cancelled() and self._lifecycle.end:
                raise EngineError(
                    f"An engine must be running, found it {self._lifecycle.end}. Start a new one."
                ) from None
            raise
        finally:
            self._in_flight.discard(task)

    async def pause(self) -> None:
        """Stop sampling; running requests keep their tokens, their KV is dropped."""
        self._lifecycle.require_alive("pause")
        if not self._lifecycle.is_paused:
            await self._llm.pause_generation(mode="keep", clear_cache=True)
            self._lifecycle.is_paused = True

    async def resume(self) -> None:
        """Go on. Refused (EngineError) after a weight update that failed."""
        self._lifecycle.require_resume()
        if self._lifecycle.is_paused:
            await self._llm.resume_generation()
            self._lifecycle.is_paused = False

    async def connect_weights(self, info: dict[str, Any]) -> None:
        """Join the transport's channel in every worker."""
        self._lifecycle.require_alive("connect_weights")
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        try:
            await self._llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info={"info": info}))
        except Exception as error:
            raise WeightSyncError(
                f"Every worker must join the weight channel, found: {error}. Connect again."
            ) from error

    async def update_weights(self, manifest: list[TensorSpec], version: int, payload: Any) -> None:
        """Take every tensor of the manifest and then serve as `version`; see `Engine`."""
        may_bring_head = self._is_tied and not self._lora
        with self._lifecycle.update():
            problems = find_problems(manifest, self._expected, dtype=self.config.dtype, is_tied=may_bring_head)
            try:
                if payload is None:
                    await self._update_from_channel(manifest, describe_problems(problems))
                else:
                    problems += find_payload_problems(manifest, payload)
                    await self._update_from_payload(payload, describe_problems(problems))
                await self._drop_prefix_cache()
            except WeightSyncError:
                raise
            except Exception as error:
                raise WeightSyncError(
                    f"vLLM must take all {len(manifest)} tensors of version {version}, found "
                    f"{type(error).__name__}: {error}. Push again or restart the engine."
                ) from error
            await self._requests.serve_as(version)

    async def checksums(self) -> dict[str, str]:
        """Return a digest of every tensor by checkpoint name; see the class for how."""
        self._lifecycle.require_alive("checksums")
        method, shapes = "read_weight_digests", [_plain(self._weights)]
        if self._lora:
            method, shapes = "read_adapter_digests", [*shapes, _plain(self._expected)]
        try:
            per_worker = await self._llm.collective_rpc(method, args=tuple(shapes))
        except Exception as error:
            raise EngineError(
                f"vLLM's weights must be readable by checkpoint name, found: {error}. "
                "Switch weight_sync.verify_checksums off for this model type."
            ) from error
        return per_worker[0]

    async def sleep(self) -> None:
        """Give GPU memory back; weights must be pushed before the next request. A no-op on CPU."""
        self._lifecycle.require_sleep()
        if self._is_cpu:
            return
        # The frozen weights are never pushed, so they are kept (level 1) in host memory.
        asleep = self._llm.sleep(level=1 if self._lora else 2, mode="keep")
        await self._lifecycle.clock.moving_memory(asleep)
        self._lifecycle.memory = Memory.NONE
        self._lifecycle.fault = "weights were given back by sleep()"

    async def wake(self, tags: list[str]) -> None:
        """Take GPU memory again: `weights`, then (after an update) `kv_cache`. A no-op on CPU."""
        self._lifecycle.require_wake(tags)
        if self._is_cpu:
            return
        await self._lifecycle.clock.moving_memory(self._llm.wake_up(tags=tags))
        if "kv_cache" in tags:
            self._lifecycle.memory = Memory.ALL
            # vLLM resumes its scheduler once all memory is back; this engine decides that itself.
            await self._llm.pause_generation(mode="keep", clear_cache=True)
        elif "weights" in tags:
            self._lifecycle.memory = Memory.WEIGHTS

    async def policy_version(self) -> int:
        """Version of the weights in service; 0 right after `start`."""
        self._lifecycle.require_alive("policy_version")
        return self._requests.version

    async def usage(self) -> Usage:
        """Return what was done since the last call; see `Engine.usage`."""
        return self._lifecycle.clock.take()

    async def check_health(self) -> None:
        """Raise EngineError unless vLLM's processes live and answer."""
        self._lifecycle.require_alive("check_health")
        try:
            await self._llm.check_health()
        except Exception as error:
            self._lifecycle.end = f"dead: {error}"
            raise EngineError(f"vLLM must be alive, found: {error}. Start a new engine.") from error

    async def shutdown(self) -> None:
        """End vLLM and all its processes; safe to call twice."""
        self._lifecycle.end = self._lifecycle.end or "shut down"
        llm, self._llm = self._llm, None
        for task in self._in_flight:
            task.cancel()
        if llm is not None:
            # It would report the end of the processes as their death.
            if (output_handler := getattr(llm, "output_handler", None)) is not None:
                output_handler.cancel()
            await asyncio.to_thread(llm.shutdown)
            # Its finaliser calls this once more at the interpreter's end, when what it needs is gone.
            llm.shutdown = lambda *_, **__: None
        await asyncio.to_thread(end_processes, self._processes)
        self._processes = set()
        if self._reaper is not None:
            self._reaper.dismiss()
            self._reaper = None

    def _build(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**self._engine_arguments()))

    def _engine_arguments(self) -> dict[str, Any]:
        arguments = engine_arguments(
            self.folder, self.config, max_model_len=self.max_model_len, is_cpu=self._is_cpu, seed=self.seed
        )
        adapter = adapter_arguments(self._lora) if self._lora else {}
        return {"tensor_parallel_size": self.tensor_parallel_size, **adapter, **arguments}

    async def _generate_in_turn(self, request: GenerationRequest, room: int) -> Completion:
        async with self._alone if self.config.deterministic else contextlib.nullcontext():
            return await self._requests.sample(request, max_tokens=room, seed=request_seed(self.seed, request))

    async def _update_from_channel(self, manifest: Sequence[TensorSpec], refusal: str) -> None:
        if self._lora:
            try:
                await self._llm.collective_rpc("receive_adapter", args=(manifest_to_wire(manifest), refusal))
            except Exception as error:
                raise WeightSyncError(refusal or f"A push must arrive whole, found: {error}") from error
            return
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        info = {"manifest": manifest_to_wire(manifest), "refusal": refusal}
        await self._llm.start_weight_update()
        try:
            await self._llm.update_weights(WeightTransferUpdateRequest(update_info=info))
        except Exception as error:
            await self._close_update()
            raise WeightSyncError(refusal or f"A push must arrive whole, found: {error}") from error
        await self._llm.finish_weight_update()

    async def _close_update(self) -> None:
        """End vLLM's update session where the failed update has not ended it already."""
        try:
            await self._llm.finish_weight_update()
        except Exception:  # noqa: BLE001  (newer versions end it themselves and refuse a second end)
            return

    async def _update_from_payload(self, payload: dict[str, Tensor], refusal: str) -> None:
        if refusal:
            raise WeightSyncError(refusal)
        if self._lora:
            await self._llm.collective_rpc("load_adapter", args=(await asyncio.to_thread(save, payload),))
            return
        file = await asyncio.to_thread(write_payload, payload)
        try:
            await self._llm.collective_rpc("load_weights_from_file", args=(str(file),))
        finally:
            await asyncio.to_thread(shutil.rmtree, file.parent, ignore_errors=True)

    async def _drop_prefix_cache(self) -> None:
        """Drop KV of older weights once more: requests may have entered since the pause."""
        is_dropped = await self._llm.reset_prefix_cache(reset_running_requests=True)
        if not is_dropped and self.config.prefix_caching:
            raise WeightSyncError(
                "vLLM must drop its prefix cache after an update, found that it refused. "
                "Restart the engine or set engine.prefix_caching=false."
            )


def _plain(shapes: dict[str, tuple[int, ...]]) -> dict[str, list[int]]:
    """Return shapes as calls into vLLM's processes carry them."""
    return {name: list(shape) for name, shape in shapes.items()}
