"""Seconds of each stage of a step: work over the rates of `rates.py`."""

import math
from dataclasses import dataclass

from skyrl_nat.config.algorithm import OldLogprobs
from skyrl_nat.config.cluster import Placement, Transport
from skyrl_nat.config.model import Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.memory import PolicyMemory, num_bytes
from skyrl_nat.planning.model_shape import Decoder
from skyrl_nat.planning.rates import (
    HOST_LINK_BYTES,
    NETWORK_BYTES,
    CpuRates,
    EngineRates,
    Machine,
    PushRates,
    TrainerRates,
)
from skyrl_nat.planning.workload import Workload

_FORWARD, _BACKWARD = 1.0, 2.0
_REDUCE_S = 15e-6
"""Of one sum over an engine's GPUs. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Seconds of one decoding step of an engine: a part that is always there and one per sequence."""

    fixed_s: float
    sequence_s: float

    def seconds(self, num_sequences: float) -> float:
        """Return the time of a step with so many sequences."""
        return self.fixed_s + self.sequence_s * num_sequences


class Roofline:
    """Seconds of the stages of one run on one kind of machine."""

    def __init__(self, config: RunConfig, decoder: Decoder, machine: Machine, workload: Workload) -> None:
        """Take the run, its model, what its GPUs are, and what is played."""
        self._config, self._decoder, self._machine, self._work = config, decoder, machine, workload
        self._policy = PolicyMemory(config, decoder)

    @property
    def num_rollouts(self) -> int:
        """Of a step."""
        return self._config.trainer.tasks_per_step * self._config.trainer.rollouts_per_task

    @property
    def trained_tokens(self) -> float:
        """Of all samples of a step, prompts included."""
        return self.num_rollouts * self._work.total_tokens

    @property
    def computed_tokens(self) -> float:
        """The same with the prompt of a group once, as far as a micro-batch holds the group."""
        trainer = self._config.trainer
        group = trainer.rollouts_per_task * (self._work.total_tokens - self._work.prompt_tokens)
        parts = max(1.0, (group + self._work.prompt_tokens) / trainer.micro_batch_tokens)
        prompts = min(trainer.rollouts_per_task, parts) * self._work.prompt_tokens
        return trainer.tasks_per_step * (group + prompts)

    @property
    def num_micro_batches(self) -> int:
        """Of one rank in an optimizer step."""
        ranks, trainer = self._config.data_parallel_size, self._config.trainer
        per_batch = max(1, trainer.micro_batch_tokens // math.ceil(self._work.total_tokens))
        fitting = self.num_rollouts / trainer.updates_per_batch / ranks / per_batch
        by_tokens = self.computed_tokens / trainer.updates_per_batch / ranks / trainer.micro_batch_tokens
        return max(1, math.ceil(max(by_tokens, fitting if per_batch < trainer.rollouts_per_task else 0)))

    def train_s(self) -> float:
        """Return the seconds of all optimizer steps on one batch, the controller's own included."""
        host = TrainerRates().host_s_per_token * self.trained_tokens if self._machine.is_gpu else 0.0
        return self.compute_s() + host

    def compute_s(self) -> float:
        """Return the seconds of a rank for all optimizer steps on one batch."""
        rates, config = TrainerRates(), self._config
        tokens = self.computed_tokens / config.cluster.num_policy_ranks
        if not self._machine.is_gpu:
            return self._training_flops(tokens) / (self._machine.card.bf16_flops * CpuRates().matmul_share)
        card = self._machine.card
        again = 1 / 3 if config.model.activation_checkpointing else 0.0
        passes = 1 + again + self._forward_passes() / 3
        traffic = rates.compiled_traffic if config.model.compile else rates.eager_traffic
        kept = self._policy.layer_bytes_per_token * self._decoder.num_layers * passes
        per_token = kept * traffic / card.memory_bytes + rates.layer_s_per_token * self._decoder.num_layers * passes
        compute = self._training_flops(tokens) / (card.bf16_flops * rates.matmul_share) + tokens * per_token
        optimizer = rates.optimizer_bytes * self._policy.num_trained / self._policy.num_shards
        optimizer *= config.trainer.updates_per_batch / (card.memory_bytes * rates.optimizer_share)
        # Layers are gathered while others are computed.
        return max(compute, self._gather_s()) + optimizer

    def _training_flops(self, tokens: float) -> float:
        """Return FLOPs of a batch's passes over so many tokens, recomputed layers included."""
        cost, decoder = self._decoder.cost, self._decoder
        pairs = tokens * self._work.total_tokens / 2
        forward = cost.flops(num_tokens=tokens, num_pairs=pairs)
        head = 2 * decoder.embedding_parameters * tokens
        backward = _BACKWARD * forward
        if self._config.model.lora.rank:
            backward = forward  # frozen weights have no gradient of their own
        again = forward - head if self._config.model.activation_checkpointing else 0.0
        return _FORWARD * forward + backward + again + self._forward_passes() * forward

    def _forward_passes(self) -> int:
        """Return how often a batch goes forward alone: for old log-probs and for the reference."""
        algorithm = self._config.algorithm
        return (algorithm.old_logprobs is OldLogprobs.recompute) + (algorithm.kl_coefficient > 0)

    def _gather_s(self) -> float:
        """Return the seconds in which one rank gathers weights and reduces gradients, per step."""
        shards, cluster = self._policy.num_shards, self._config.cluster
        if shards == 1:
            return 0.0
        link = self._machine.card.link_bytes if shards <= cluster.num_gpus_per_node else NETWORK_BYTES
        width = num_bytes(self._config.model.compute_dtype)
        times = 2 if self._config.model.reshard_after_forward else 1
        gathered = times * width * self._decoder.num_parameters
        reduced = num_bytes(self._config.model.dtype) * self._policy.num_trained
        each = (gathered + reduced) * (shards - 1) / shards / (link * TrainerRates().network_share)
        return each * self.num_micro_batches * self._config.trainer.updates_per_batch

    def decode_step(self, context_tokens: float | None = None) -> DecodeStep:
        """Return the time of one decoding step of one engine.

        Args:
            context_tokens: Before each sampled token; default: the mean over a rollout.
        """
        config, decoder, card = self._config, self._decoder, self._machine.card
        width, size = num_bytes(config.engine.dtype), config.cluster.num_gpus_per_engine
        context = self._mean_context if context_tokens is None else context_tokens
        if not self._machine.is_gpu:
            share = card.bf16_flops * CpuRates().matmul_share
            each = decoder.cost.flops(num_tokens=1, num_pairs=context) / share
            read = width * decoder.num_parameters / card.memory_bytes
            return DecodeStep(fixed_s=CpuRates().decode_s + read, sequence_s=each)
        rates, neighbours = EngineRates(), config.cluster.num_engines_per_gpu
        bandwidth = card.memory_bytes * rates.bandwidth_share * size / neighbours
        waiting = rates.several_factor if neighbours > 1 else 1.0
        joined = 2 * decoder.num_layers * _REDUCE_S if size > 1 else 0.0
        fixed = rates.step_s * waiting + width * decoder.cost.num_matmul_parameters / bandwidth + joined
        each = rates.sequence_s * waiting + decoder.kv_bytes_per_token(width) * context / bandwidth
        return DecodeStep(fixed_s=fixed, sequence_s=each)

    def prefill_s(self) -> float:
        """Return the seconds in which one engine reads prompts and replies of its share of a step.

        A group's prompt is read once where prefixes are cached.
        """
        config, work = self._config, self._work
        group = config.trainer.rollouts_per_task
        prompts = work.prompt_tokens * (1 if config.engine.prefix_caching else group)
        tokens = config.trainer.tasks_per_step * (prompts + group * work.observation_tokens)
        flops = self._decoder.cost.flops(num_tokens=tokens, num_pairs=tokens * work.prompt_tokens / 2)
        if not self._machine.is_gpu:
            return flops / (self._machine.card.bf16_flops * CpuRates().matmul_share) / config.cluster.num_engines
        gpus = config.cluster.num_engines * config.cluster.num_gpus_per_engine / config.cluster.num_engines_per_gpu
        return flops / (gpus * self._machine.card.bf16_flops * EngineRates().prefill_share)

    @property
    def _mean_context(self) -> float:
        return self._work.prompt_tokens + (self._work.sampled_tokens + self._work.observation_tokens) / 2

    def push_s(self) -> float:
        """Return the seconds of a push, during which engines serve nothing."""
        config, rates = self._config, PushRates()
        size = num_bytes(config.engine.dtype) * self._decoder.num_parameters
        if config.pushes_adapters:
            size = num_bytes(config.engine.dtype) * self._policy.num_trained
        if config.weight_sync.transport in (Transport.host, Transport.gloo) or not self._machine.is_gpu:
            return size / rates.host_bytes
        if config.cluster.placement is Placement.disaggregated:
            link = rates.apart_bytes if config.cluster.num_nodes == 1 else min(rates.apart_bytes, NETWORK_BYTES)
            return rates.apart_s + size / link
        return (rates.colocated_s if config.engine.sleep else rates.beside_s) + size / rates.colocated_bytes

    def offload_s(self) -> float:
        """Return the seconds in which a rank's weights and optimizer state go to host memory and come back."""
        offload, policy = self._config.model.offload, self._policy
        if offload is Offload.none or not self._machine.is_gpu:
            return 0.0
        moved = policy.optimizer + (policy.weights if offload is Offload.all else 0.0)
        return 2 * moved / HOST_LINK_BYTES

    def activation_offload_s(self) -> float:
        """Return the seconds in which layers' inputs cross the bus, forward and back, per step."""
        model, decoder = self._config.model, self._decoder
        if not model.activation_offload or not self._machine.is_gpu:
            return 0.0
        tokens = self.computed_tokens / self._config.cluster.num_policy_ranks
        width = num_bytes(model.compute_dtype) * decoder.hidden * decoder.num_layers
        return 2 * tokens * width / HOST_LINK_BYTES
