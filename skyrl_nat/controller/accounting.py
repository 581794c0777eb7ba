"""The account of every step: phases by the controller's clock, activities as ranks and engines measured them."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from skyrl_nat.cluster.placement import devices_of
from skyrl_nat.cluster.topology import Topology
from skyrl_nat.config.cluster import Transport
from skyrl_nat.config.model import Dtype
from skyrl_nat.config.run import RunConfig
from skyrl_nat.monitoring.accounting import (
    StepWork,
    Window,
    gpu_metrics,
    split_time,
    union_seconds,
    work_metrics,
)
from skyrl_nat.monitoring.cards import Card, find_card
from skyrl_nat.monitoring.flops import ModelShape
from skyrl_nat.monitoring.usage import Activity, Interval, Usage

_BYTES = {"float32": 4, "bfloat16": 2}
_OTHER_READING = {"quantization", "kv_cache_dtype", "speculative_config"}
"""Keys of `engine.extra` with which decoding reads other bytes than the model's shape says."""
_SET_S = 1.0
"""The machine's clock was set if it is further than this from where the step's own seconds have brought it."""


class StepAccountant:
    """Keeps the times of one step at a time; it begins where the one before ended, unless something came between.

    Ranks and engines note wall-clock times, so a step lies on that clock; its length does not change when somebody sets
    the clock meanwhile.
    """

    def __init__(self, config: RunConfig, topology: Topology, model_path: Path) -> None:
        """Read the model's shape; nobody is asked yet."""
        self._config = config
        self._topology = topology
        self._num_devices, places = devices_of(topology.plan, config.cluster)
        self._places = {**places, "reference": places["policy"]}
        self._shape = ModelShape.of_folder(model_path)
        self.num_pushed_bytes = 0
        """That each engine took in the step's push."""
        self.slowest_step_s = 0.0
        """So far; 0 before the first step."""
        self._start = 0.0
        self._wall_offset = 0.0
        """Wall clock minus monotonic clock."""
        self._is_interrupted = True
        self._intervals: list[list[Interval]] = [[] for _ in range(self._num_devices)]
        """By device: what reaches beyond the last step."""
        self._phases: dict[str, float] = defaultdict(float)

    async def begin(self) -> None:
        """Start a step."""
        self._phases.clear()
        self.num_pushed_bytes = 0
        if self._is_interrupted:
            await self._topology.usage()
            self._wall_offset = time.time() - time.monotonic()
            self._start = self._now()
            self._is_interrupted = False

    def interrupt(self) -> None:
        """Say that there is a checkpoint or an evaluation between two steps, which belongs to neither."""
        self._is_interrupted = True

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the block's seconds to `time/<name>_s`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] += time.monotonic() - started

    async def end(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """End the step and return its account.

        Args:
            metrics: What the update returned: token counts of the batch.
        """
        window = Window(self._start, self._now())
        self.slowest_step_s = max(self.slowest_step_s, window.seconds)
        usage = await self._topology.usage()
        devices = self._intervals
        for role, usages in usage.items():
            for places, one in zip(self._places[role], usages, strict=True):
                for place in places:
                    devices[place].extend(one.intervals)
        gpus = [split_time(intervals, window) for intervals in devices]
        push_s = union_seconds([i for intervals in devices for i in intervals], Activity.PUSH, window)
        self._start = window.end
        self._intervals = [[i for i in intervals if i.end > window.end] for intervals in devices]
        self._follow_wall_clock()
        card = find_card(one.card for one in usage["policy"])
        work = self._work(metrics, usage["engine"], card)
        return {
            **{f"time/{name}_s": seconds for name, seconds in self._phases.items()},
            "time/step_s": window.seconds,
            "weights/pushed_mib": self.num_pushed_bytes / 2**20,
            **gpu_metrics(gpus, window),
            **work_metrics(work, gpus, window, push_s=push_s, card=card),
        }

    def _now(self) -> float:
        return self._wall_offset + time.monotonic()

    def _follow_wall_clock(self) -> None:
        """Let the next step begin on the clock that the machine has now, if that was set."""
        distance = time.time() - self._now()
        if abs(distance) > _SET_S:
            self._wall_offset += distance
            self._start = self._now()
            self._intervals = [[] for _ in self._intervals]

    def _work(self, metrics: Mapping[str, float], engines: list[Usage], card: Card | None) -> StepWork:
        is_bf16 = self._config.model.compute_dtype is Dtype.bfloat16
        return StepWork(
            num_engine_tokens=sum(one.num_prompt_tokens + one.num_completion_tokens for one in engines),
            num_trained_tokens=int(metrics["batch/num_tokens"]),
            num_pushed_bytes=self.num_pushed_bytes,
            training_flops=self._training_flops(metrics) if is_bf16 else None,
            decode_bytes=self._decode_bytes(engines),
            link_bytes_per_s=None if card is None else self._link_bytes(card),
        )

    def _training_flops(self, metrics: Mapping[str, float]) -> float | None:
        """Return the cost of all passes over the batch; frozen weights need no gradient of their own."""
        if self._shape is None:
            return None
        algorithm = self._config.algorithm
        num_backward = 1 if self._config.model.lora.rank else 2
        num_training = (1 + num_backward) * (1 - metrics.get("loss/empty", 0.0))
        num_passes = num_training + algorithm.needs_old_logprobs + algorithm.needs_reference
        return num_passes * self._shape.flops(
            num_tokens=metrics["pack/num_computed_tokens"], num_pairs=metrics["pack/num_attention_pairs"]
        )

    def _decode_bytes(self, engines: list[Usage]) -> float | None:
        engine = self._config.engine
        if self._shape is None or engine.num_speculative_tokens or engine.extra.keys() & _OTHER_READING:
            return None
        total = 0.0
        for one in engines:
            busy_s = sum(end - start for activity, start, end in one.intervals if activity is Activity.ROLLOUT)
            if busy_s > 0 and one.request_s > 0:
                batch = min(one.request_s / busy_s, engine.max_num_seqs)
                total += self._shape.decode_bytes(
                    num_steps=one.num_completion_tokens / batch,
                    num_context_tokens=one.num_context_tokens,
                    bytes_per_number=_BYTES[engine.dtype],
                )
        return total

    def _link_bytes(self, card: Card) -> float | None:
        """Return the limit of a push: NVLink between cards, the card's own memory (read and written) within one."""
        cluster, transport = self._config.cluster, self._config.weight_sync.transport
        if transport is Transport.nccl and cluster.num_nodes == 1:
            return card.link_bytes
        return card.memory_bytes / 2 if transport is Transport.ipc else None
