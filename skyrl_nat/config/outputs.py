"""What a run leaves behind: checkpoints, evaluations, logs."""

from dataclasses import dataclass, field
from enum import StrEnum

from skyrl_nat.config.checks import require, require_finite, require_not_negative, require_positive


@dataclass(kw_only=True, slots=True)
class CheckpointConfig:
    """Section `checkpoint`."""

    every_steps: int = 0
    """Steps between checkpoints; 0 leaves only the one at the end. `every_epochs` may be set instead."""
    every_epochs: int = 0
    """Epochs between checkpoints; 0 for off."""
    keep_last: int = 3
    """Older checkpoints are deleted; 0 keeps all."""
    keep_best: int = 1
    """Checkpoints with the highest reward on the validation set that are kept besides the newest ones; 0 for none."""
    save_final: bool = True
    """Save the last step, whatever its number."""
    asynchronous: bool = False
    """Go on training while a checkpoint is written; each policy rank then holds a copy of all that it saves in host
    memory."""
    mirror: str | None = None
    """URL that fsspec can open, for instance s3://bucket/runs: each complete checkpoint is copied into a folder there
    that bears the run's name; null for none. Keys and passwords come from the environment."""
    max_failures: int = 3
    """Saves in a row that may fail, for instance on a full disk, before the run stops; >= 1."""

    def __post_init__(self) -> None:
        require_not_negative(self, "checkpoint", "every_steps", "every_epochs", "keep_last", "keep_best")
        require_positive(self, "checkpoint", "max_failures")
        require(
            "@" not in (self.mirror or ""),
            "checkpoint.mirror",
            "hold neither user nor password",
            "one with @",
            "It is saved beside the run: put them into the environment, as fsspec's file system says.",
        )
        require(
            not (self.every_steps and self.every_epochs),
            "checkpoint.every_steps",
            "be 0 when checkpoint.every_epochs is set",
            self.every_steps,
            "Set only one of the two.",
        )


@dataclass(kw_only=True, slots=True)
class EvaluationConfig:
    """Section `evaluation`: greedy play of held-out tasks inside a run."""

    num_tasks: int = 0
    """Held-out tasks played, the first ones of the validation set; 0 plays all."""
    every_steps: int = 0
    """Steps between evaluations; 0 leaves those before the first and after the last step."""
    before_and_after: bool = True
    """Evaluate before the first step and after the last one."""
    patience: int = 0
    """Evaluations in a row that may bring no higher reward than the best so far, before training ends early; 0 trains
    to the last step. Every evaluated step is then saved, so that the best one can be kept."""

    def __post_init__(self) -> None:
        require_not_negative(self, "evaluation", "num_tasks", "every_steps", "patience")
        require(
            not self.patience or self.every_steps > 0,
            "evaluation.every_steps",
            "be > 0 with evaluation.patience",
            self.every_steps,
            "Set it, for instance to 5: without evaluations nothing says when to stop.",
        )


@dataclass(kw_only=True, slots=True)
class AlarmsConfig:
    """Section `alarms`: thresholds that are watched after every step."""

    first_policy_kl: float = 1e-9
    """KL between the policy and its recomputed log-probs before the first update, in nats per token; a warning."""
    logprob_diff_warn: float = 0.02
    """Mean |rollout - trainer log-prob| at the first update of a batch whose tokens are all of the current version."""
    logprob_diff_stop: float = 0.2
    """The same; above it the run stops."""
    no_signal_share: float = 0.9
    """Share of a batch's groups whose rewards are all equal; a warning."""
    reference_kl_warn: float | None = None
    """KL between policy and reference over a batch, nats per token; null watches nothing, nor does a run without a KL
    term."""
    reference_kl_stop: float | None = None
    """The same; above it the run stops."""

    def __post_init__(self) -> None:
        require_finite(self, "alarms")
        require_not_negative(
            self,
            "alarms",
            "first_policy_kl",
            "logprob_diff_warn",
            "logprob_diff_stop",
            "no_signal_share",
            *(name for name in ("reference_kl_warn", "reference_kl_stop") if getattr(self, name) is not None),
        )
        require(
            self.logprob_diff_stop >= self.logprob_diff_warn,
            "alarms.logprob_diff_stop",
            f"be >= alarms.logprob_diff_warn ({self.logprob_diff_warn})",
            self.logprob_diff_stop,
            "Leave both at their defaults, 0.02 and 0.2.",
        )


class Traces(StrEnum):
    """Where spans of rollouts go."""

    off = "off"
    """Nowhere: none are made."""
    file = "file"
    """`traces/` of the run folder, a file of JSON lines per process."""
    otlp = "otlp"
    """A collector over OTLP/HTTP; OpenTelemetry's own environment variables name it."""


@dataclass(kw_only=True, slots=True)
class TrackingConfig:
    """Section `tracking`: all named back ends receive every metric at once."""

    backends: list[str] = field(default_factory=lambda: ["jsonl", "console", "tensorboard"])
    """Any of jsonl, console, tensorboard, wandb and prometheus. jsonl is always written; another one that fails is
    switched off."""
    record_tokens: bool = True
    """Write beside the rollouts of each step what training said of every token: log-prob, advantage, clip state; and
    the model's `tokenizer.json` into the run folder. The dashboard's rollout viewer shows them (docs/dashboard.md)."""
    wandb_project: str = "skyrl-nat"
    """Project of WandB that runs are filed under; read only with the back end wandb."""
    wandb_entity: str | None = None
    """User or team of WandB that owns the project; null takes the account's own."""
    wandb_mode: str = "offline"
    """`online`, `offline` or `disabled`; offline runs are sent later with `wandb sync`, and so is what `online` could
    not send (docs/tracking.md)."""
    prometheus_port: int = 0
    """Port on the loopback address where Prometheus finds the metrics; 0 takes a free one. `NAME.prometheus.json`
    beside the run folder tells it (docs/monitoring.md)."""
    prometheus_textfile: str | None = None
    """File for node_exporter's textfile collector, named `.prom`, in place of a port; null for none."""
    traces: Traces = Traces.off
    """Where spans of rollouts go (docs/monitoring.md)."""
    trace_share: float = 1.0
    """Share of the rollouts that are traced; in (0, 1]."""

    def __post_init__(self) -> None:
        require_finite(self, "tracking")
        known = ("jsonl", "console", "tensorboard", "wandb", "prometheus")
        for name in self.backends:
            require(
                name in known,
                "tracking.backends",
                f"hold only {', '.join(known)}",
                name,
                "Remove or correct that entry.",
            )
        require(
            self.wandb_mode in ("online", "offline", "disabled"),
            "tracking.wandb_mode",
            "be online, offline or disabled",
            self.wandb_mode,
            "Use offline without a network.",
        )
        require(
            0 <= self.prometheus_port < 65536,
            "tracking.prometheus_port",
            "be in [0, 65535]",
            self.prometheus_port,
            "Use 0 for a free one.",
        )
        require(
            (self.prometheus_textfile or "x.prom").endswith(".prom"),
            "tracking.prometheus_textfile",
            "end with .prom",
            self.prometheus_textfile,
            "Rename it: node_exporter reads no other file.",
        )
        require(
            0 < self.trace_share <= 1,
            "tracking.trace_share",
            "be in (0, 1]",
            self.trace_share,
            "Use tracking.traces=off for none.",
        )
