"""How episodes are played and which engine plays them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from skyrl_nat.config.checks import require, require_finite, require_not_negative, require_positive

MAX_STOP_WORDS = 8


class History(StrEnum):
    """What a turn's prompt is made of."""

    keep = "keep"
    """All tokens of the turns before, as they were sampled, whatever the chat template would do to them."""
    render = "render"
    """All messages so far through the chat template. Where that does not begin with the tokens of the turn before
    (templates that drop past reasoning do so), a new segment starts, which is trained as a sequence of its own."""


class EngineKind(StrEnum):
    """Which engine generates."""

    vllm = "vllm"
    """vLLM, on GPUs or its build for CPUs."""
    hf = "hf"
    """The embedded one: transformers in an actor, on any machine."""
    gguf = "gguf"
    """llama.cpp, for evaluation only."""


class AdapterPush(StrEnum):
    """How LoRA's adapters reach an engine."""

    merged = "merged"
    """Summed up with the frozen weights, all of which travel."""
    separate = "separate"
    """Alone: vLLM adds their products to those of the frozen weights, as the trainer does."""


@dataclass(kw_only=True, slots=True)
class RolloutConfig:
    """Section `rollout`."""

    history: History = History.keep
    """What a turn's prompt is made of."""
    max_turns: int = 8
    """Completions per rollout at most."""
    max_new_tokens: int = 1024
    """Tokens of one completion at most."""
    max_total_tokens: int = 8192
    """Tokens of one rollout at most, prompts and observations included; also the engine's context length."""
    temperature: float = 1.0
    """Sampling temperature in training; the trainer's log-probs use the same."""
    eval_temperature: float = 0.0
    """Sampling temperature in evaluation; 0 is greedy."""
    top_p: float = 1.0
    """Only 1.0: the trainer could not reproduce a truncated distribution exactly."""
    top_k: int = -1
    """Only -1 (off), for the same reason."""
    stop: list[str] = field(default_factory=list[str])
    """A completion ends as soon as its text contains one of these; special tokens count by their text."""
    harness: str = ""
    """Who plays: empty for the environment, or `module:function` of a harness that asks the policy through the
    gateway (docs/gateway.md)."""
    gateway_host: str = "127.0.0.1"
    """Address on which the gateway listens, and that harnesses get; used only with a harness."""
    gateway_port: int = 0
    """Its port; 0 takes a free one."""
    rollout_timeout_s: float = 1800.0
    """Deadline of one rollout, all turns; afterwards it is truncated."""
    max_retries: int = 2
    """Times that a rollout is played again after an infrastructure or validator failure."""
    quarantine_after: int = 3
    """A task of which this many groups in a row were lost to failures that are not the policy's is played no more, and
    listed in `quarantine.jsonl`; 0 leaves every task in."""
    max_concurrent_rollouts: int = 0
    """Rollouts in flight at most, over all engines; 0 takes as many as these sample at once, and at least 512, since a
    rollout that waits for its environment leaves room to others."""

    def __post_init__(self) -> None:
        require_finite(self, "rollout")
        require_positive(
            self,
            "rollout",
            "max_turns",
            "max_new_tokens",
            "max_total_tokens",
            "temperature",
            "rollout_timeout_s",
        )
        require_not_negative(
            self, "rollout", "eval_temperature", "max_retries", "quarantine_after", "max_concurrent_rollouts"
        )
        require(
            self.top_p == 1.0,
            "rollout.top_p",
            "be 1.0",
            self.top_p,
            "The trainer cannot reproduce a truncated distribution in its own log-probs; leave top_p at 1.0.",
        )
        require(
            self.top_k == -1,
            "rollout.top_k",
            "be -1 (off)",
            self.top_k,
            "The trainer cannot reproduce a truncated distribution in its own log-probs; leave top_k at -1.",
        )
        require(
            self.max_new_tokens < self.max_total_tokens,
            "rollout.max_new_tokens",
            f"be < rollout.max_total_tokens ({self.max_total_tokens})",
            self.max_new_tokens,
            "The prompt needs room too: lower max_new_tokens or raise max_total_tokens.",
        )
        require(
            len(self.stop) <= MAX_STOP_WORDS and all(self.stop),
            "rollout.stop",
            f"hold at most {MAX_STOP_WORDS} strings, none of them empty",
            self.stop,
            "Leave out what is not needed.",
        )
        require(
            self.harness == "" or all(self.harness.partition(":")),
            "rollout.harness",
            "be empty or module:function",
            self.harness,
            "For instance skyrl_nat.rollouts.harnesses.openai_client:make_harness.",
        )
        require(
            0 <= self.gateway_port < 65536,
            "rollout.gateway_port",
            "be in 0..65535",
            self.gateway_port,
            "Use 0 for any free port.",
        )


@dataclass(kw_only=True, slots=True)
class EngineConfig:
    """Section `engine`."""

    kind: EngineKind = EngineKind.hf
    """Which engine generates; the presets of `engine` set it with all that belongs to it."""
    gguf: str | None = None
    """File that an engine of kind gguf plays; `model.path` then gives the tokenizer."""
    max_num_seqs: int = 32
    """Sequences that one engine decodes at once."""
    dtype: str = "float32"
    """Format of the engine's weights and of the weight transfer."""
    fp32_head: bool = False
    """Logits in fp32 instead of rounded to `dtype`; must be what `model.fp32_head` says, which the presets copy."""
    fp32_residual: bool = False
    """The residual stream in fp32 instead of `dtype`; must be what `model.fp32_residual` says, as above."""
    kv_cache_gib: int = 1
    """KV cache of a CPU engine in whole GiB (vLLM's own unit); GPUs use `gpu_memory_fraction`."""
    gpu_memory_fraction: float = 0.5
    """Share of a GPU's memory that a vLLM engine may take, weights and KV cache together."""
    sleep: bool = True
    """A vLLM engine that shares its GPU with the policy gives all its memory back while the policy trains. False leaves
    it where it is: quicker, where both fit at once."""
    enforce_eager: bool = True
    """vLLM without torch.compile and CUDA graphs: fast start, right for CPUs."""
    prefix_caching: bool = True
    """Reuse the KV of common prompt prefixes within one policy version."""
    num_speculative_tokens: int = 0
    """Tokens that vLLM guesses ahead by looking its last ones up in prompt and answer, and checks in one pass: meant
    for answers that repeat their prompts. 0 guesses none. `loss/rollout_logprob_diff` shows wrong guesses taken."""
    adapters: AdapterPush = AdapterPush.merged
    """What is pushed with `model.lora.rank` > 0. `separate`, as vLLM's presets have it, moves megabytes, and rounds no
    sum of weights and adapters to `dtype`."""
    deterministic: bool = False
    """Compute every request alone, so that results do not depend on what else is in the batch. Slow; for tests."""
    start_timeout_s: float = 600.0
    """Deadline for an engine to answer its first health check."""
    request_timeout_s: float = 600.0
    """Deadline of one generation request."""
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further keyword arguments of vLLM's `AsyncEngineArgs`, for instance `compilation_config`."""

    def __post_init__(self) -> None:
        require_finite(self, "engine")
        require_positive(self, "engine", "max_num_seqs", "kv_cache_gib", "start_timeout_s", "request_timeout_s")
        require_not_negative(self, "engine", "num_speculative_tokens")
        require(
            0 < self.gpu_memory_fraction < 1,
            "engine.gpu_memory_fraction",
            "be in (0, 1)",
            self.gpu_memory_fraction,
            "Use about 0.5 when colocated and 0.9 when disaggregated.",
        )
        require(
            self.dtype in ("float32", "bfloat16"),
            "engine.dtype",
            "be float32 or bfloat16",
            self.dtype,
            "Use bfloat16 on GPUs and float32 on CPUs.",
        )
        require(
            (self.kind is EngineKind.gguf) == (self.gguf is not None),
            "engine.gguf",
            "be set with engine.kind=gguf, and only with it",
            self.gguf,
            "Use skyrl-nat evaluate FILE.gguf, which sets both.",
        )
        require(
            self.adapters is AdapterPush.merged or self.kind is EngineKind.vllm,
            "engine.adapters",
            "be merged with engine.kind=hf",
            self.adapters,
            "The embedded engine knows whole weights alone: leave it out, or use engine=vllm.",
        )
