"""The embedded engine: a transformers model with a decode loop of its own, in a thread of this process.

Small models on CPUs and machines without vLLM. Its log-probs are those of a plain forward pass.
"""

import asyncio
import contextlib
import queue
import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM

from skyrl_nat.config.rollout import EngineConfig
from skyrl_nat.engines.decoder import Decoder, DecodingRequest
from skyrl_nat.engines.few_rows import speed_up_few_rows
from skyrl_nat.engines.kv_slots import KvShape, KvSlots, slot_attention
from skyrl_nat.engines.lifecycle import Lifecycle
from skyrl_nat.engines.model_folder import (
    is_head_tied,
    read_stop_token_ids,
    request_seed,
    require_folder,
    require_room,
)
from skyrl_nat.engines.stop_words import watch_for
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.monitoring.usage import Usage
from skyrl_nat.types import Completion, GenerationRequest
from skyrl_nat.weight_sync.base import TensorSpec, tensor_digest
from skyrl_nat.weight_sync.channel import WeightReceiver
from skyrl_nat.weight_sync.manifest import (
    TIED_HEAD,
    describe_problems,
    find_payload_problems,
    find_problems,
    read_expected_shapes,
)

T = TypeVar("T")
_GIB = 1024**3
_ATTENTION = "skyrl_nat_slots"
_LOADING = threading.Lock()
"""`from_pretrained` changes global state: two loads at once in one process break each other."""


class HfEngine:
    """`Engine` over a transformers model.

    Args:
        model_path: Local folder with `config.json` and safetensors files.
        config: Section `engine`.
        max_model_len: Context length in tokens, prompt and completion together.
        device: torch device.
        seed: Enters the random stream of requests that bring no seed.
        num_threads: CPU threads of the decode loop.
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
    ) -> None:
        self.folder = require_folder(model_path)
        self.config = config
        self.max_model_len = max_model_len
        self.device = device
        self.seed = seed
        self.num_threads = max(1, num_threads)
        self._is_tied = is_head_tied(self.folder)
        self._lifecycle = Lifecycle()
        self._parameters: dict[str, Tensor] = {}
        self._expected: dict[str, tuple[int, ...]] = {}
        self._receiver: WeightReceiver | None = None
        self._decoder: Any = None
        self._thread: threading.Thread | None = None
        # The decode thread alone touches model, decoder and what follows; others send it commands.
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._holds_still = False
        self._is_ended = False
        self._waiters: dict[DecodingRequest, Callable[[Completion | EngineError], None]] = {}

    async def start(self) -> None:
        """Load the model and start the decode thread. Raises EngineError with the cause."""
        try:
            await asyncio.to_thread(self._load)
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(
                f"transformers must load {self.folder}, found {type(error).__name__}: {error}. "
                "Check the folder and the memory left."
            ) from error
        self._thread = threading.Thread(target=self._decode_for_ever, name="decode", daemon=True)
        self._thread.start()
        self._lifecycle.is_started = True

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion; see `Engine.generate`."""
        room = require_room(request, self.max_model_len)
        self._lifecycle.require_generate()
        num_prompt_tokens = len(request.prompt_token_ids)
        decoding = DecodingRequest(
            tokens=list(request.prompt_token_ids),
            num_prompt_tokens=num_prompt_tokens,
            max_tokens=num_prompt_tokens + room,
            temperature=request.sampling.temperature,
            stream=random.Random(request_seed(self.seed, request)),
            watch=watch_for(request.sampling.stop, self.folder),
        )
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        deliver = _deliverer(future)
        self._commands.put(lambda: self._submit(decoding, deliver))
        try:
            return await self._lifecycle.clock.follow(request, future)
        except asyncio.CancelledError:
            self._commands.put(lambda: self._cancel(decoding))
            raise

    async def pause(self) -> None:
        """Stop sampling after the current token; running requests keep their tokens."""
        self._lifecycle.require_alive("pause")
        await self._in_thread(lambda: self._set_still(True))
        self._lifecycle.is_paused = True

    async def resume(self) -> None:
        """Go on. Refused (EngineError) after a weight update that failed."""
        self._lifecycle.require_resume()
        self._lifecycle.is_paused = False
        await self._in_thread(lambda: self._set_still(False))

    async def connect_weights(self, info: dict[str, Any]) -> None:
        """Join the transport's channel."""
        self._lifecycle.require_alive("connect_weights")
        if self._receiver is not None:
            self._receiver.close()
        self._receiver = await asyncio.to_thread(WeightReceiver, info["workers"][0])

    async def update_weights(self, manifest: list[TensorSpec], version: int, payload: Any) -> None:
        """Take every tensor of the manifest and then serve as `version`; see `Engine`."""
        with self._lifecycle.update():
            problems = find_problems(manifest, self._expected, dtype=self.config.dtype, is_tied=self._is_tied)
            if payload is None:
                refusal = describe_problems(problems)
                await self._in_thread(lambda: self._receive(manifest, refusal))
            else:
                problems += find_payload_problems(manifest, payload)
                if problems:
                    raise WeightSyncError(describe_problems(problems))
                await self._in_thread(lambda: self._copy_all(payload))
            await self._in_thread(lambda: self._decoder.restart(version))

    async def checksums(self) -> dict[str, str]:
        """Return a digest of every live parameter by checkpoint name."""
        self._lifecycle.require_alive("checksums")
        return await self._in_thread(lambda: {name: tensor_digest(self._parameters[name]) for name in self._expected})

    async def sleep(self) -> None:
        """Do nothing but check the order of calls: host memory is not given back."""
        self._lifecycle.require_sleep()

    async def wake(self, tags: list[str]) -> None:
        """Do nothing; see `sleep`."""
        self._lifecycle.require_wake(tags)

    async def policy_version(self) -> int:
        """Version of the weights in service; 0 right after `start`."""
        return self._decoder.version if self._decoder is not None else 0

    async def usage(self) -> Usage:
        """Return what was done since the last call; see `Engine.usage`."""
        return self._lifecycle.clock.take()

    async def check_health(self) -> None:
        """Raise EngineError unless the decode thread lives."""
        self._lifecycle.require_alive("check_health")

    async def shutdown(self) -> None:
        """End the thread, fail what is in flight, free the model; safe to call twice."""
        self._lifecycle.end = self._lifecycle.end or "shut down"
        if self._receiver is not None:
            self._receiver.close()
        if self._thread is not None:
            self._commands.put(self._stop)
            await asyncio.to_thread(self._thread.join)
        self._decoder = None
        self._parameters = {}

    def _load(self) -> None:
        torch.set_num_threads(self.num_threads)
        AttentionInterface.register(_ATTENTION, slot_attention)
        dtype = getattr(torch, self.config.dtype)
        with _LOADING:
            model: Any = AutoModelForCausalLM.from_pretrained(
                self.folder, dtype=dtype, attn_implementation=_ATTENTION, local_files_only=True
            )
        model = model.to(self.device).eval().requires_grad_(False)
        if self.device == "cpu":
            speed_up_few_rows(model)
        self._parameters = dict(model.named_parameters())
        self._expected = read_expected_shapes(self.folder)
        if self._is_tied:
            self._expected.pop(TIED_HEAD, None)
        strange = self._expected.keys() ^ self._parameters.keys()
        if strange:
            raise EngineError(
                "The embedded engine needs parameters named as in the checkpoint, found differences at "
                f"{sorted(strange)[:5]}. Use engine.kind=vllm for this model."
            )
        text = model.config.get_text_config()
        shape = KvShape(
            num_layers=text.num_hidden_layers,
            num_kv_heads=getattr(text, "num_key_value_heads", None) or text.num_attention_heads,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
            dtype=dtype,
            device=self.device,
        )
        is_alone = self.config.deterministic
        max_rows = 1 if is_alone else self.config.max_num_seqs
        self._decoder = Decoder(
            model,
            KvSlots(shape, max_rows, self.config.kv_cache_gib * _GIB),
            read_stop_token_ids(self.folder),
            shares_prefixes=self.config.prefix_caching,
            is_alone=is_alone,
        )

    def _decode_for_ever(self) -> None:
        torch.set_num_threads(self.num_threads)
        while not self._is_ended:
            self._obey()
            if self._may_step():
                try:
                    finished = self._decoder.step()
                except Exception as error:  # noqa: BLE001  (any fault in the model ends the engine)
                    self._lifecycle.end = f"dead: {type(error).__name__}: {error}"
                    self._stop()
                    break
                for decoding in finished:
                    self._waiters.pop(decoding)(decoding.completion())
        while not self._commands.empty():
            self._commands.get()()

    def _may_step(self) -> bool:
        return not self._is_ended and not self._holds_still and self._decoder.has_work

    def _obey(self) -> None:
        """Run the commands that are there; wait for one if there is nothing else to do."""
        while not self._may_step() or not self._commands.empty():
            self._commands.get()()
            if self._is_ended:
                return

    async def _in_thread(self, action: Callable[[], T]) -> T:
        """Run an action in the decode thread, between two steps."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        deliver = _deliverer(future)

        def run() -> None:
            try:
                if self._is_ended:
                    raise EngineError(self._end_message())
                deliver(action())
            except Exception as error:  # noqa: BLE001  (belongs to the caller, not to this thread)
                deliver(error)

        self._commands.put(run)
        return await future

    def _submit(self, decoding: DecodingRequest, deliver: Callable[[Completion | EngineError], None]) -> None:
        if self._is_ended:
            deliver(EngineError(self._end_message()))
            return
        self._waiters[decoding] = deliver
        self._decoder.waiting.append(decoding)

    def _cancel(self, decoding: DecodingRequest) -> None:
        if self._waiters.pop(decoding, None) is not None:
            self._decoder.cancel(decoding)

    def _set_still(self, holds_still: bool) -> None:
        self._holds_still = holds_still

    def _stop(self) -> None:
        self._is_ended = True
        for deliver in self._waiters.values():
            deliver(EngineError(self._end_message()))
        self._waiters.clear()

    def _end_message(self) -> str:
        return f"An engine must be running, found this one {self._lifecycle.end}. Start a new engine."

    def _receive(self, manifest: list[TensorSpec], refusal: str) -> None:
        if self._receiver is None:
            raise WeightSyncError(
                "A weight channel must be joined before a push without payload, found none. Call connect_weights first."
            )
        self._receiver.receive(manifest, self._copy_one, refusal=refusal)

    def _copy_all(self, payload: dict[str, Tensor]) -> None:
        for name, tensor in payload.items():
            self._copy_one(name, tensor)

    def _copy_one(self, name: str, tensor: Tensor) -> None:
        if self._is_tied and name == TIED_HEAD:
            return
        with torch.no_grad():
            self._parameters[name].copy_(tensor)


def _deliverer(future: "asyncio.Future[Any]") -> Callable[[Any], None]:
    """Return a function that ends a future from another thread, with a result or an error."""
    loop = future.get_loop()

    def settle(outcome: Any) -> None:
        if future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def deliver(outcome: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, outcome)

    return deliver
