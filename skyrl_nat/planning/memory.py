"""Bytes on one GPU (or in one machine without any), part by part, as arithmetic on config and model.

Legend: N parameters, D trained ones, R ranks of one copy of the policy, b bytes of a number in `compute_dtype`, m bytes
in `dtype`, T tokens of a rank's micro-batch, C tokens of a chunk of the LM head, V vocabulary, h hidden size, w query
width, k key width, i MLP width, L layers.
"""

from dataclasses import dataclass, field

from skyrl_nat.config.cluster import Device, Placement
from skyrl_nat.config.model import Dtype, Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.model_shape import Decoder
from skyrl_nat.planning.rates import GIB

PARTS = (
    "weights",
    "gathered weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "reference",
    "engine weights",
    "engine work space",
    "KV cache",
    "push buffers",
    "contexts",
)
CONTEXT_GIB = 1.0
"""CUDA context, cuBLAS and NCCL of one process. P7: 43.62 GiB in use where 42.56 are weights and optimizer."""
ASLEEP_GIB = 2.0
"""What a sleeping vLLM keeps: its context and captured graphs."""
ENGINE_WORK_GIB = 2.0
"""What vLLM takes of its share beside weights and KV cache: context, graphs, activations of the widest batch."""
_NUM_GATHERED_LAYERS = 2
"""FSDP2 gathers the next layer while one is computed."""


@dataclass(frozen=True, slots=True)
class Memory:
    """GiB by part of one phase."""

    parts: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def total(self) -> float:
        """Of all parts."""
        return sum(self.parts.values())


def num_bytes(dtype: str) -> int:
    """Return the bytes of a number."""
    return 4 if dtype == Dtype.float32 else 2


class PolicyMemory:
    """What one rank of the policy takes."""

    def __init__(self, config: RunConfig, decoder: Decoder) -> None:
        """Take the run and its model's sizes."""
        self._config, self._decoder = config, decoder
        model, cluster = config.model, config.cluster
        self._master, self._compute = num_bytes(model.dtype), num_bytes(model.compute_dtype)
        self.num_shards = cluster.num_policy_ranks // cluster.num_replicas
        self._is_cast = self._master != self._compute
        lora = model.lora
        self._num_adapter = decoder.lora_parameters(lora.rank, lora.targets) if lora.rank else 0
        self.num_trained = self._num_adapter or decoder.num_parameters
        self._tokens = config.trainer.micro_batch_tokens // model.sequence_parallel_size

    @property
    def weights(self) -> float:
        """Master weights and adapters: m (N + adapters) / R."""
        return self._master * (self._decoder.num_parameters + self._num_adapter) / self.num_shards

    @property
    def optimizer(self) -> float:
        """Two moments of AdamW: 2 m D / R."""
        return 2 * self._master * self.num_trained / self.num_shards

    @property
    def gradients(self) -> float:
        """Sharded, kept from micro-batch to micro-batch: m D / R."""
        return self._master * self.num_trained / self.num_shards

    @property
    def gathered(self) -> float:
        """Weights in `compute_dtype` that are whole on this rank while it computes.

        A rank alone casts all of them, b N, or none where formats are equal. Several gather two layers and the root,
        b (2 layer + root), or with `reshard_after_forward=false` all, b N.
        """
        decoder = self._decoder
        is_alone = self._config.cluster.num_policy_ranks == 1
        if is_alone and not self._is_cast:
            return 0.0
        if is_alone or not self._config.model.reshard_after_forward:
            return float(self._compute * decoder.num_parameters)
        return float(self._compute * (_NUM_GATHERED_LAYERS * decoder.layer_parameters + decoder.root_parameters))

    @property
    def layer_bytes_per_token(self) -> float:
        """Activations that one layer keeps for the backward pass, per token.

        Compiled: three of the MLP, the input, both norms' results and the sum between them, queries and the
        attention's result, keys and values, and its fp32 sums: b (3 i + 4 h + 2 w + 2 k) + 4 heads + 8. Eager besides:
        the activation's result (b i), what each norm casts and multiplies (4 h), and copies of queries, keys and
        values. P3 at 1.5B says 73,282 bytes compiled, this 73,272; P3 not compiled 108,700, this 107,600.
        """
        decoder, b = self._decoder, self._compute
        h, w, k, i = decoder.hidden, decoder.width, decoder.kv_width, decoder.inner
        kept = b * (3 * i + 4 * h + 2 * w + 2 * k) + 4 * decoder.num_heads + 8
        if self._config.model.fp32_residual:
            kept += 2 * (4 - b) * h
        if self._config.model.compile:
            return float(kept)
        return float(kept + b * i + 8 * h + b * (w + 2 * k))

    @property
    def activations(self) -> float:
        """Kept for the backward pass when it begins.

        All layers' `layer_bytes_per_token`, or with checkpointing their inputs alone, b h L, or nothing where those
        wait in host memory; besides 5 b h a token around the head.
        """
        model, decoder = self._config.model, self._decoder
        around = 5 * self._compute * decoder.hidden + 640
        stream = 4 if model.fp32_residual else self._compute
        if model.activation_offload:
            layers = 0.0
        elif model.activation_checkpointing:
            layers = float(stream * decoder.hidden * decoder.num_layers)
        else:
            layers = self.layer_bytes_per_token * decoder.num_layers
        return self._tokens * (layers + around)

    @property
    def logits(self) -> float:
        """A chunk of the head in the backward pass, and the head's gradient.

        C V times: the chunk's logits (b, or 4 with an fp32 head), the gradient of the chunk before (b), the softmax
        in fp32 (4) and its rounded copy (b, none in fp32); not compiled another fp32 copy where logits are rounded.
        The head's gradient is 4 V h, unless the head is frozen.
        """
        model, b = self._config.model, self._compute
        logits = 4 if model.fp32_head else b
        per_number = logits + b + 4 + (b if b == 2 else 0)
        if not model.compile and logits == 2:
            per_number += 4
        chunk = min(model.logprob_chunk_tokens, self._tokens) * self._decoder.vocabulary * per_number
        gradient = 0 if model.lora.rank else 4 * self._decoder.embedding_parameters
        return float(chunk + gradient)

    @property
    def recomputed(self) -> float:
        """The last layer in the backward pass: what checkpointing computes again, and its gradients whole in b and 4.

        The root's gradient, b, waits for the end of the pass.
        """
        decoder, is_sharded = self._decoder, self._is_cast or self.num_shards > 1
        again = self._tokens * self.layer_bytes_per_token if self._config.model.activation_checkpointing else 0.0
        if self._num_adapter or not is_sharded:
            return again
        return again + (self._compute + 4) * decoder.layer_parameters + self._compute * decoder.root_parameters

    @property
    def push_buffers(self) -> float:
        """What a push needs at most: a copy of the largest tensor in the engine's format, and two buckets.

        Several ranks hold it whole in `dtype` as well, twice while it is put together.
        """
        config = self._config
        wire = num_bytes(config.engine.dtype)
        largest = self._decoder.embedding_parameters
        if config.pushes_adapters:
            largest = config.model.lora.rank * max(self._decoder.hidden, self._decoder.inner)
        bucket = max(config.weight_sync.bucket_mib * 2**20, wire * largest)
        whole = 2 * self._master * largest if self.num_shards > 1 else 0
        return float(whole + wire * largest + 2 * bucket)

    @property
    def reference(self) -> float:
        """A frozen copy, m N / R, where a KL term has one; LoRA's is its own base."""
        if self._config.algorithm.kl_coefficient <= 0 or self._config.model.lora.rank:
            return 0.0
        return self._master * self._decoder.num_parameters / self.num_shards

    def training(self, *, num_micro_batches: float) -> dict[str, float]:
        """Return GiB by part at the moment of the backward pass in which most is held.

        Args:
            num_micro_batches: Of one rank in a step: from the second on the sharded gradients are there too.
        """
        at_head = {"activations": self.activations, "logits": self.logits}
        at_layer = {"activations": self.activations + self.recomputed, "logits": 0.0}
        if not self._config.model.activation_checkpointing:
            at_layer["activations"] = self.recomputed
        moment = max(at_head, at_layer, key=lambda held: sum(held.values()))
        held = {"gathered weights": self.gathered, **moment}
        if num_micro_batches > 1:
            held["gradients"] = self.gradients
        elif self.gradients > sum(held.values()):
            held = {"gathered weights": 0.0, "activations": 0.0, "logits": 0.0, "gradients": self.gradients}
        fixed = {"weights": self.weights, "optimizer": self.optimizer, "reference": self.reference}
        return {name: size / GIB for name, size in {**fixed, **held}.items()}

    def waiting(self) -> dict[str, float]:
        """Return GiB by part that stay on the device while engines sample."""
        offload = self._config.model.offload
        held = {
            "weights": 0.0 if offload is Offload.all else self.weights,
            "optimizer": 0.0 if offload is not Offload.none else self.optimizer,
            "reference": 0.0 if offload is Offload.all else self.reference,
        }
        return {name: size / GIB for name, size in held.items()}


def engine_memory(config: RunConfig, decoder: Decoder, capacity_gib: float) -> dict[str, float]:
    """Return GiB by part of one engine on one of its GPUs.

    The KV cache is what is left of its share: below 0 where that does not even hold the weights.

    Args:
        config: The run.
        decoder: Its model.
        capacity_gib: Of the card.
    """
    share = config.engine.gpu_memory_fraction * capacity_gib
    size = config.cluster.num_gpus_per_engine
    weights = num_bytes(config.engine.dtype) * decoder.num_parameters / size / GIB
    return {
        "engine weights": weights,
        "engine work space": ENGINE_WORK_GIB,
        "KV cache": share - weights - ENGINE_WORK_GIB,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What GPUs hold, by phase."""

    training: Memory
    """Of a GPU with a policy rank."""
    rollout: Memory
    """Of a GPU with an engine."""
    push: Memory
    """Of a GPU with both, while weights go from one to the other; the training one's where they are apart."""
    kv_tokens: int
    """Tokens whose keys and values fit one engine."""

    @property
    def peak_gib(self) -> float:
        """The most that any GPU holds."""
        return max(self.training.total, self.rollout.total, self.push.total)


def gpu_memory(
    config: RunConfig, decoder: Decoder, capacity_gib: float, *, num_micro_batches: float = 2.0
) -> GpuMemory:
    """Return what the GPUs of a run hold.

    Args:
        config: With `cluster.device=cuda`.
        decoder: Its model.
        capacity_gib: Of a card.
        num_micro_batches: Of one rank in a step.
    """
    policy, cluster = PolicyMemory(config, decoder), config.cluster
    engine = engine_memory(config, decoder, capacity_gib)
    engines = {name: size * cluster.num_engines_per_gpu for name, size in engine.items()}
    training = {**policy.training(num_micro_batches=num_micro_batches), "contexts": CONTEXT_GIB}
    buffers = {"push buffers": policy.push_buffers / GIB, "contexts": CONTEXT_GIB}
    if cluster.placement is Placement.disaggregated:
        apart = {"weights": policy.weights / GIB, "optimizer": policy.optimizer / GIB, **buffers}
        rollout, push = engines, apart
    else:
        waiting = policy.waiting()
        rollout = {**waiting, **engines, **buffers}
        push = {**waiting, "weights": policy.weights / GIB, **engines, **buffers, "KV cache": 0.0}
        if config.engine.sleep:
            training["engine work space"] = ASLEEP_GIB * cluster.num_engines_per_gpu
        else:
            training |= engines
            push = {**push, "KV cache": engines["KV cache"]}
    token = decoder.kv_bytes_per_token(num_bytes(config.engine.dtype)) / cluster.num_gpus_per_engine
    return GpuMemory(
        training=_in_order(training),
        rollout=_in_order(rollout),
        push=_in_order(push),
        kv_tokens=max(0, int(engine["KV cache"] * GIB / token)),
    )


def _in_order(parts: dict[str, float]) -> Memory:
    return Memory({name: parts[name] for name in PARTS if name in parts})


PROCESS_GIB = 0.45
"""Of an engine or a policy rank on a CPU beside what it computes with: Python, torch, transformers. Estimated."""
REST_GIB = 1.4
"""Controller, Ray's own processes, environment and reward workers with their sandboxes. cpu_preset_smoke_cpu.json."""


def cpu_memory(config: RunConfig, decoder: Decoder, *, num_micro_batches: float = 2.0) -> Memory:
    """Return GiB by part of all processes of a run without GPUs, at the moment in which most is held.

    Args:
        config: With `cluster.device=cpu`.
        decoder: Its model.
        num_micro_batches: Of one rank in a step.
    """
    assert config.cluster.device is Device.cpu
    policy, cluster = PolicyMemory(config, decoder), config.cluster
    ranks, engines = cluster.num_policy_ranks, cluster.num_engines
    parts = {name: size * ranks for name, size in policy.training(num_micro_batches=num_micro_batches).items()}
    width = num_bytes(config.engine.dtype)
    rows = min(config.engine.max_num_seqs, config.trainer.tasks_per_step * config.trainer.rollouts_per_task)
    kv = rows * config.rollout.max_total_tokens * decoder.kv_bytes_per_token(width)
    return _in_order(
        {
            **parts,
            "engine weights": engines * width * decoder.num_parameters / GIB,
            "KV cache": engines * kv / GIB,
            "push buffers": 2 * width * decoder.num_parameters / GIB,
            "contexts": PROCESS_GIB * (ranks + engines) + REST_GIB,
        }
    )
