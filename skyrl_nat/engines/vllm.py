"""vLLM as an engine: token ids in, token ids with log-probs and versions out.

Written for vLLM 0.26 (GPU) to 0.32 (CPU build). vLLM is imported in `start` only, after the
environment variables that it reads at import. The engine computes in processes of its own.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from typing import Any

import psutil
import torch
from torch import Tensor

from skyrl_nat.config.rollout import EngineConfig
from skyrl_nat.engines.lifecycle import Lifecycle, Memory
from skyrl_nat.engines.model_folder import (
    is_head_tied,
    kv_bytes_per_token,
    read_stop_token_ids,
    request_seed,
    require_folder,
    require_room,
)
from skyrl_nat.engines.processes import children, end_processes
from skyrl_nat.engines.stop_words import watch_for
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.types import Completion, FinishReason, GenerationRequest
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

_GIB = 1024**3
_CPU_BLOCK_TOKENS = 32
_STOP_WORD = "stop_word"
_FINISH_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, _STOP_WORD: FinishReason.STOP_WORD}
_WORKER_EXTENSION = "skyrl_nat.weight_sync.vllm_worker.WorkerExtension"


class VllmEngine:
    """`Engine` over vLLM's `AsyncLLM`.

    Digests (`checksums`) are of the live weights, fused matrices taken apart and packed ones read back
    by a multiplication with the identity, which is exact except that a weight of -0.0 reads +0.0.
    With tensor parallelism they are of what was handed to vLLM's loader in the last push.

    Args:
        model_path: Local folder with `config.json` and safetensors files.
        config: Section `engine`.
        max_model_len: Context length in tokens, prompt and completion together.
        device: `cpu` or `cuda`.
        seed: Enters the random stream of requests that bring no seed.
        num_threads: Threads of one worker on CPU.
        tensor_parallel_size: Workers (GPUs) of this engine.
    """

    def __init__(
        self,
        model_path: str,
        config: EngineConfig,
        *,
        max_model_len: int,
        device: str,
        seed: int,
        num_threads: int,
        tensor_parallel_size: int = 1,
    ) -> None:
        self.folder = require_folder(model_path)
        self.config = config
        self.max_model_len = max_model_len
        self.device = device
        self.seed = seed
        self.num_threads = num_threads
        self.tensor_parallel_size = tensor_parallel_size
        self._is_cpu = device == "cpu"
        self._expected = read_expected_shapes(self.folder)
        self._is_tied = is_head_tied(self.folder)
        if self._is_tied:
            self._expected.pop(TIED_HEAD, None)
        self._stop_token_ids = read_stop_token_ids(self.folder)
        self._lifecycle = Lifecycle()
        self._version = 0
        self._num_requests = 0
        self._in_flight: set[asyncio.Future[Completion]] = set()
        self._alone = asyncio.Semaphore(1)
        self._llm: Any = None
        self._processes: set[psutil.Process] = set()

    async def start(self) -> None:
        """Load the model and get ready. Raises EngineError with the cause."""
        self._set_environment()
        before = children()
        try:
            async with asyncio.timeout(self.config.start_timeout_s):
                self._llm = await asyncio.to_thread(self._build)
                await self._llm.check_health()
        except Exception as error:
            await asyncio.to_thread(end_processes, children() - before)
            raise EngineError(
                f"vLLM must start on {self.folder} within {self.config.start_timeout_s:.0f} s, found "
                f"{type(error).__name__}: {error}. See the log above; check memory and model type."
            ) from error
        self._processes = children() - before
        self._lifecycle.is_started = True

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion; see `Engine.generate`."""
        room = require_room(request, self.max_model_len)
        self._lifecycle.require_generate()
        task = asyncio.ensure_future(self._generate_in_turn(request, room))
        self._in_flight.add(task)
        try:
            return await task
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
        with self._lifecycle.update():
            problems = find_problems(manifest, self._expected, dtype=self.config.dtype, is_tied=self._is_tied)
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
            self._version = version

    async def checksums(self) -> dict[str, str]:
        """Return a digest of every tensor by checkpoint name; see the class for how."""
        self._lifecycle.require_alive("checksums")
        shapes = {name: list(shape) for name, shape in self._expected.items()}
        try:
            per_worker = await self._llm.collective_rpc("read_weight_digests", args=(shapes,))
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
        await self._llm.sleep(level=2, mode="keep")
        self._lifecycle.memory = Memory.NONE
        self._lifecycle.fault = "weights were given back by sleep()"

    async def wake(self, tags: list[str]) -> None:
        """Take GPU memory again: `weights`, then (after an update) `kv_cache`. A no-op on CPU."""
        self._lifecycle.require_wake(tags)
        if self._is_cpu:
            return
        await self._llm.wake_up(tags=tags)
        if "kv_cache" in tags:
            self._lifecycle.memory = Memory.ALL
            # vLLM resumes its scheduler once all memory is back; this engine decides that itself.
            await self._llm.pause_generation(mode="keep", clear_cache=True)
        elif "weights" in tags:
            self._lifecycle.memory = Memory.WEIGHTS

    async def policy_version(self) -> int:
        """Version of the weights in service; 0 right after `start`."""
        return self._version

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

    def _set_environment(self) -> None:
        # Read by vLLM at import, here and in its processes.
        os.environ.update(
            VLLM_NO_USAGE_STATS="1",
            DO_NOT_TRACK="1",
            VLLM_USE_FLASHINFER_SAMPLER="0",
            VLLM_WORKER_MULTIPROC_METHOD="spawn",
        )
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        if self._is_cpu:
            os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would overrule kv_cache_memory_bytes
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            os.environ["OMP_NUM_THREADS"] = str(max(1, self.num_threads))

    def _build(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        return AsyncLLM.from_engine_args(AsyncEngineArgs(**self._engine_arguments()))

    def _engine_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": str(self.folder),
            "dtype": self.config.dtype,
            "seed": self.seed,
            "max_model_len": self.max_model_len,
            "max_num_seqs": 1 if self.config.deterministic else self.config.max_num_seqs,
            "tensor_parallel_size": self.tensor_parallel_size,
            "enforce_eager": self.config.enforce_eager,
            "enable_prefix_caching": self.config.prefix_caching and not self.config.deterministic,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            "worker_extension_cls": _WORKER_EXTENSION,
            "weight_transfer_config": {"backend": "skyrl_nat"},
        }
        if self.config.fp32_head:
            arguments["hf_overrides"] = {"head_dtype": "float32"}
        if self._is_cpu:
            arguments["kv_cache_memory_bytes"] = self._kv_cache_bytes()
            arguments["block_size"] = _CPU_BLOCK_TOKENS
        else:
            arguments["gpu_memory_utilization"] = self.config.gpu_memory_fraction
            arguments["enable_sleep_mode"] = True
        return {**arguments, **self.config.extra}

    def _kv_cache_bytes(self) -> int:
        """Return bytes of KV for `max_num_seqs` full sequences, at most `kv_cache_gib`."""
        token_bytes = kv_bytes_per_token(self.folder, getattr(torch, self.config.dtype))
        # One block more per sequence for its last, part-filled one; vLLM keeps one for itself.
        tokens = (self.max_model_len + _CPU_BLOCK_TOKENS) * self.config.max_num_seqs
        tokens += _CPU_BLOCK_TOKENS
        return min(self.config.kv_cache_gib * _GIB, tokens * token_bytes)

    async def _generate_in_turn(self, request: GenerationRequest, room: int) -> Completion:
        async with self._alone if self.config.deterministic else contextlib.nullcontext():
            return await self._generate(request, room)

    async def _generate(self, request: GenerationRequest, room: int) -> Completion:
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            max_tokens=room,
            temperature=request.sampling.temperature,
            seed=request_seed(self.seed, request),
            stop_token_ids=self._stop_token_ids,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self._num_requests += 1
        # vLLM's own stop strings need a tokenizer inside vLLM, and it withholds text at incomplete characters.
        watch = watch_for(request.sampling.stop, self.folder)
        token_ids: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        reason: str | None = None
        prompt = TokensPrompt(prompt_token_ids=request.prompt_token_ids)
        try:
            # Retried rollouts come with the same id; vLLM wants it unique.
            stream = self._llm.generate(prompt, sampling, request_id=f"{request.request_id}#{self._num_requests}")
            async with contextlib.aclosing(stream):  # leaving it early ends the request in vLLM too
                async for output in stream:
                    delta = output.outputs[0]
                    ids = delta.token_ids
                    # An end token belongs to no word.
                    num_kept = watch and watch.num_until_word(ids[:-1] if delta.finish_reason == "stop" else ids)
                    token_ids.extend(ids[:num_kept])
                    logprobs.extend(_sampled_logprobs(ids, delta.logprobs or ())[:num_kept])
                    reason = _STOP_WORD if num_kept else delta.finish_reason
                    versions.extend([self._version] * len(ids[:num_kept]))
                    if num_kept:
                        break
        except Exception as error:
            raise EngineError(
                f"vLLM must answer request {request.request_id}, found {type(error).__name__}: {error}. "
                "Retry on another engine; restart this one if it is dead."
            ) from error
        if len(logprobs) != len(token_ids):
            raise EngineError(
                f"Every token must come with its log-prob, found {len(logprobs)} for {len(token_ids)} tokens "
                f"in request {request.request_id}. Retry the request."
            )
        return Completion(
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=_FINISH_REASONS.get(reason or "", FinishReason.ABORT),
            token_versions=versions,
        )

    async def _update_from_channel(self, manifest: Sequence[TensorSpec], refusal: str) -> None:
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


def _sampled_logprobs(token_ids: Sequence[int], logprobs: Sequence[dict[int, Any]]) -> list[float]:
    """Return the log-prob of each sampled token; the dicts may hold others beside it."""
    return [float(entry[token].logprob) for token, entry in zip(token_ids, logprobs, strict=True)]
