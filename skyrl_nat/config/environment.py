"""The task family, its data and the sandbox in which its validator runs."""

from dataclasses import dataclass, field
from enum import StrEnum

from skyrl_nat.config.checks import require, require_finite, require_positive


class SandboxBackend(StrEnum):
    """How code that the policy wrote is confined."""

    auto = "auto"
    """The first of the three below that holds on this machine, shown by trying."""
    bubblewrap = "bubblewrap"
    """User, mount, pid, ipc and network namespaces; no root needed."""
    landlock = "landlock"
    """Landlock and seccomp for each job: neither root nor namespaces needed, but a kernel >= 6.12 (root: 5.13)."""
    container = "container"
    """Landlock and seccomp in a container of podman, docker or apptainer."""
    unsafe = "unsafe"
    """Only limits and a process group of its own: NOT a security boundary, must be asked for by name."""


@dataclass(kw_only=True, slots=True)
class SandboxConfig:
    """Section `environment.sandbox`."""

    backend: SandboxBackend = SandboxBackend.auto
    """How code that the policy wrote is confined."""
    container_image: str = ""
    """Image for `docker`, `podman` or `apptainer`; empty lets podman and apptainer run this machine's own `/usr`."""
    python: str = ""
    """Interpreter of the sandbox's own virtual environment (the one that has NAT); empty means what the environment
    variable SKYRL_NAT_SANDBOX_PYTHON names, else `.venv-nat` in the checkout or beside the trainer's environment."""
    num_servers: int = 1
    """Preloaded fork servers per reward or environment worker."""
    job_timeout_s: float = 20.0
    """Wall-clock limit of one job."""
    memory_mib: int = 1024
    """Address-space limit of one process in a job."""
    max_processes: int = 32
    """Processes of one job at most, its own first ones not counted; a job with more is killed."""
    max_file_mib: int = 64
    """Largest file that a job may write; its temporary file system holds four times as much."""
    max_output_bytes: int = 1_000_000
    """Bytes that a job may hand back; more is cut."""

    def __post_init__(self) -> None:
        require_finite(self, "environment.sandbox")
        require_positive(
            self,
            "environment.sandbox",
            "num_servers",
            "job_timeout_s",
            "memory_mib",
            "max_processes",
            "max_file_mib",
            "max_output_bytes",
        )


class Curriculum(StrEnum):
    """In which order the tasks of an epoch come."""

    shuffled = "shuffled"
    """In an order that the seed decides, another one every epoch."""
    easy_first = "easy_first"
    """By difficulty, shuffled within a level."""


class Screen(StrEnum):
    """What becomes of rollouts that are suspected of cheating. Their reward is never raised for it."""

    log = "log"
    """They are trained like the others, and counted (`reward/suspected/mean`)."""
    drop = "drop"
    """They are counted and logged, but not trained."""


class Form(StrEnum):
    """How the policy hands over its files."""

    one_shot = "one_shot"
    """Any number of files and calls in a message; a short prompt for very small models."""
    multi_turn = "multi_turn"
    """One call a message: edits, shell, tests and checks, as agents work."""


class SlowChecks(StrEnum):
    """Which rollouts get the checks that take seconds, such as a server started for real."""

    evaluation = "evaluation"
    """Those of evaluations, not of training."""
    never = "never"
    """None."""
    always = "always"
    """All; training waits for them."""


@dataclass(kw_only=True, slots=True)
class EnvironmentConfig:
    """Section `environment`."""

    family: str = "nat_agent"
    """Key of `environments.registry.FAMILIES`, or `skyrl_gym/<id>` for an environment registered with skyrl-gym."""
    train_files: list[str] = field(default_factory=lambda: ["builtin:nat_agent/train"])
    """Parquet files of task specs; `builtin:` names a file shipped with the package."""
    validation_files: list[str] = field(default_factory=lambda: ["builtin:nat_agent/validation"])
    """The same for held-out tasks, which evaluations play and training never sees."""
    max_difficulty: int = 5
    """Tasks above it are left out (and counted)."""
    curriculum: Curriculum = Curriculum.shuffled
    """In which order the tasks of an epoch come."""
    recorded_files: list[str] = field(default_factory=list[str])
    """Rollouts of earlier runs (`rollouts/train_*.jsonl`) to learn from instead of playing `train_files`."""
    max_observation_chars: int = 2000
    """Longer observations are cut in the middle."""
    form: Form = Form.one_shot
    """Protocol of `nat_agent`."""
    reward_weights: dict[str, float] = field(default_factory=dict[str, float])
    """Weights of the reward parts by name; empty means the family's own. They are divided by their sum."""
    baseline_success: list[float] = field(default_factory=lambda: [0.0, 1.0])
    """Lowest and highest success of a baseline on the held-out tasks (`scripts/collect_baseline.py`) from which a
    comparison can be told: with less the tasks are too hard for it, with more there is nothing to gain."""
    screen: Screen = Screen.log
    """What becomes of rollouts that are suspected of cheating."""
    slow_checks: SlowChecks = SlowChecks.evaluation
    """Which rollouts get the checks that take seconds, such as a server started for real."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)

    def __post_init__(self) -> None:
        require(
            1 <= self.max_difficulty <= 5,
            "environment.max_difficulty",
            "be in 1..5",
            self.max_difficulty,
            "Use 5 for all tasks.",
        )
        require(
            self.max_observation_chars >= 200,
            "environment.max_observation_chars",
            "be >= 200",
            self.max_observation_chars,
            "The default is 2000.",
        )
        require(
            len(self.baseline_success) == 2 and 0 <= self.baseline_success[0] <= self.baseline_success[1] <= 1,
            "environment.baseline_success",
            "be two shares in [0, 1], the lower one first",
            self.baseline_success,
            "The default is [0.0, 1.0], any.",
        )
        for name, weight in self.reward_weights.items():
            require(
                0 <= weight < float("inf"),
                f"environment.reward_weights.{name}",
                "be a finite number >= 0",
                weight,
                "Use 0 to switch a part off.",
            )
