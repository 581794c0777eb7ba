"""The matrix as data: which fault hits whom in which phase, what must come of it, and until when."""

from dataclasses import dataclass

BLOCK = 4
"""Steps that belong to one cell: it is hit in the first half, the rest shows that the run is what it was."""

GOES_ON = "goes on"
KILLED = (-9, "")
"""Nobody can print a last word after SIGKILL."""
STOPPED = (130, r"stopped\. Go on with resume=latest")

RESUME_S = 300.0
"""Until a run that is started anew has trained the next step."""

POINTS = {
    "rollout": {"": ("engine", "generate"), "environment": ("environment", "step"), "reward": ("reward", "score")},
    "evaluation": {"": ("engine", "generate"), "environment": ("environment", "step"), "reward": ("reward", "score")},
    "train": {"": ("policy", "train"), "reference": ("reference", "compute_logprobs")},
    "push": {"": ("engine", "update_weights"), "export": ("policy", "export_weights")},
    "checkpoint": {"": ("policy", "save")},
    "background save": {"": ("policy", "write")},
    "rollout file": {"": ("controller", "write")},
    "evaluation file": {"": ("controller", "write")},
    "log": {"": ("controller", "log")},
}
"""Phase -> victim -> the call that is in flight (or about to be made) when the fault strikes."""
OFFSETS = {"rollout": 1, "train": 1, "rollout file": 1, "log": 1}
"""Steps of the block that are trained by then; all other phases come once two are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault in one phase."""

    fault: str
    """Key of `strikes.STRIKES`, or of the faults that a worker makes itself (`workers.py`, `family.py`)."""
    phase: str
    victim: str = "controller"
    rank: int | None = None
    """Of the victim; None hits the one that is being called."""
    expects: tuple[int, str] | str = GOES_ON
    """`GOES_ON`, or exit code and pattern of the only line of error."""
    deadline_s: float = 60.0
    """From the fault until the run trains again or has ended."""
    times: int = 1
    """Calls that a fault of a worker hits."""
    damage: str = ""
    """What happens to the newest checkpoint while the run is down."""
    is_fast: bool = False
    """Whether it is in the part that CI runs."""

    @property
    def name(self) -> str:
        """Unique in the matrix."""
        often = f"{self.times} times" if self.times > 1 else ""
        who = self.victim if self.rank is None else f"{self.victim} {self.rank}"
        return " / ".join(part for part in (self.fault, often, self.damage, who, self.phase) if part)

    @property
    def point(self) -> tuple[str, str]:
        """Role and method of the call at which it strikes."""
        by_victim = POINTS[self.phase]
        return by_victim.get(self.victim, by_victim[""])

    @property
    def offset(self) -> int:
        """Steps of its block that are trained when it strikes."""
        return OFFSETS.get(self.phase, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Cells that hit one run, one after the other; each has a block of steps of its own."""

    name: str
    cells: tuple[Cell, ...]
    overrides: tuple[str, ...] = ()
    is_exact: bool = True
    """Whether the run must be the undisturbed one bit for bit; otherwise in ids, learning rates and versions."""
    staleness: int = 0
    """Versions that a trained token may be behind."""
    small_disk_mib: int = 0
    """Size of a disk of its own that the run folder lies on; 0 uses the common one."""
    num_nodes: int = 0
    """Ray nodes with networks of their own; 0 lets the run start Ray by itself."""

    @property
    def needs_root(self) -> bool:
        """Whether it mounts a disk or makes networks."""
        return bool(self.small_disk_mib or self.num_nodes)

    def first_step(self, number: int) -> int:
        """Return how many steps are trained before a cell's block; before the first one there is a block without."""
        return BLOCK * (number + 1)

    @property
    def num_steps(self) -> int:
        """Steps of all blocks."""
        return self.first_step(len(self.cells))


def _hit(fault: str, victim: str, *phases: str, fast: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            fault=fault,
            victim=victim,
            phase=phase,
            is_fast=phase in fast,
        )
        for phase in phases
    )


def _killed(victim: str, *phases: str, fast: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    return _hit("SIGKILL", victim, *phases, fast=fast)


def _stopped(victim: str, *phases: str, fast: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    return _hit("SIGSTOP for ever", victim, *phases, fast=fast)


PHASES = ("rollout", "train", "push", "checkpoint", "evaluation")
PLAYING = ("rollout", "evaluation")
STEPPING = ("rollout", "train", "push", "checkpoint")
USING = ("train", "push", "checkpoint")
"""Phases that the policy works in."""

REPLACED = Chain(
    name="replaced",
    overrides=("cluster.num_engines=2",),
    cells=(
        *_killed("engine", *PHASES, fast=("rollout", "push")),
        *_killed("environment", *PLAYING, fast=("rollout",)),
        *_killed("reward", *PLAYING, fast=("evaluation",)),
        *_killed("policy", *PHASES, fast=("train",)),
        *_stopped("engine", "rollout", "push", "evaluation"),
        *_stopped("environment", *PLAYING),
        *_stopped("reward", *PLAYING, fast=("rollout",)),
        *_stopped("policy", *PHASES),
    ),
)
"""Workers that die or stand still are replaced, and the run is the undisturbed one."""


def _raised(fault: str, victim: str, *phases: str, is_fast: bool = False) -> tuple[Cell, ...]:
    return tuple(Cell(fault=fault, victim=victim, phase=phase, is_fast=is_fast) for phase in phases)


SURVIVED = Chain(
    name="survived",
    cells=(
        *_raised("exception", "environment", *PLAYING, is_fast=True),
        *_raised("exception", "reward", *PLAYING),
        *_raised("exception", "engine", *PLAYING),
        *_raised("slow", "reward", *PLAYING),
        *_raised("out of memory", "reward", *PLAYING, is_fast=True),
        *_raised("garbage: too few log-probs", "engine", *PLAYING),
        *_raised("garbage: NaN log-probs", "engine", *PLAYING, is_fast=True),
        *_raised("garbage: unknown tokens", "engine", *PLAYING),
        *_raised("garbage: not a completion", "engine", *PLAYING),
        *_raised("SIGSTOP, then SIGCONT", "controller", *PHASES),
        Cell(fault="SIGSTOP for 45 s", victim="controller", phase="rollout", deadline_s=105.0),
        *_raised("clock jumps ahead", "controller", *PHASES),
        *_raised("clock jumps back", "controller", *PHASES),
    ),
)
"""Faults that one retry mends."""


def _ended(phase: str, **more: object) -> Cell:
    return Cell(fault="SIGKILL", phase=phase, expects=KILLED, deadline_s=10, **more)  # type: ignore[arg-type]


ENDED = Chain(
    name="ended",
    cells=(
        *(
            Cell(
                fault="SIGTERM twice",
                phase=phase,
                expects=STOPPED,
                is_fast=phase == "train",
            )
            for phase in PHASES
        ),
        *(_ended(phase, is_fast=phase == "checkpoint") for phase in PHASES),
        _ended("rollout", damage="newest checkpoint corrupted"),
        _ended("train", damage="newest checkpoint corrupted"),
        _ended("evaluation", damage="newest checkpoint corrupted"),
        _ended("train", damage="newest manifest torn", is_fast=True),
        _ended("push", damage="newest manifest torn"),
        _ended("checkpoint", damage="newest manifest torn"),
        Cell(fault="exception", victim="policy", phase="train", expects=(1, r"policy 0 .*failed in `train`")),
        Cell(fault="exception", victim="policy", phase="checkpoint", expects=(1, r"policy 0 .*failed in `save`")),
        Cell(fault="exception", victim="export", phase="push", expects=(1, r"The push of version \d+ must reach")),
        Cell(fault="exception", victim="engine", phase="push", expects=(1, r"The push of version \d+ must reach")),
    ),
)
"""Faults that end a run; it is started anew and goes on as if nothing had been."""

UNTRACKED = Chain(
    name="untracked",
    overrides=("tracking.backends=[jsonl,console,wandb]", "tracking.wandb_mode=offline"),
    cells=tuple(
        cell
        for phase in PHASES
        for cell in (
            Cell(fault="tracker down", phase=phase),
            Cell(fault="SIGTERM twice", phase=phase, expects=STOPPED),
        )
    ),
)
"""Faults of WandB, which lives until the run is started anew."""

FULL = Chain(
    name="full_disk",
    small_disk_mib=48,
    cells=(
        Cell(fault="disk full", phase="checkpoint", is_fast=True),
        Cell(fault="disk full", phase="rollout file", expects=(1, r"No space left on device.*resume=latest")),
        Cell(
            fault="disk full",
            phase="evaluation file",
            expects=(1, r"No space left on device.*resume=latest"),
        ),
        Cell(fault="disk full", phase="log", expects=(1, r"metrics\.jsonl must take every step")),
    ),
)

LOSSY = Chain(
    name="lossy",
    is_exact=False,
    overrides=("optimizer.max_skipped_steps=2", "recovery.stall_timeout_s=8", "recovery.on_stall=refill"),
    cells=(
        Cell(fault="NaN gradient", victim="policy", phase="train"),
        *_hit("hangs", "environment", "rollout"),
        Cell(fault="exception", victim="reward", phase="rollout", times=30),
        Cell(fault="exception", victim="environment", phase="rollout", times=30),
        Cell(fault="NaN gradient", victim="policy", phase="train", times=2, expects=(3, r"gradients must be finite")),
    ),
)
"""Faults that cost a step or a group: counted, and all that is not lost goes on as before."""

BACKGROUND = Chain(
    name="background",
    overrides=("checkpoint.asynchronous=true",),
    cells=(
        *_killed("policy", "background save"),
        *_stopped("policy", "background save"),
        _ended("background save"),
        Cell(fault="SIGTERM twice", phase="background save", expects=STOPPED),
    ),
)
"""Faults while a checkpoint is written beside the training."""

NODES = Chain(
    name="nodes",
    num_nodes=2,
    overrides=(
        "cluster.num_nodes=2",
        "cluster.num_engines=2",
        "cluster.num_environment_workers=2",
        "cluster.num_reward_workers=2",
        "recovery.node_timeout_s=60",
    ),
    cells=(
        *_hit("network cut", "other node", *PHASES),
        *_raised("network cut", "policy's node", "train"),
    ),
)
"""Two nodes, a third one comes when one was cut off; the policy goes on there from its newest checkpoint."""

HANGING = (
    "recovery.stall_timeout_s=8",
    # While one of a kind is started anew, the other one goes on: a second stall would end the run.
    "cluster.num_engines=2",
    "cluster.num_environment_workers=2",
    "cluster.num_reward_workers=2",
    # The watchdog comes before the deadline of a validation.
    "environment.sandbox.job_timeout_s=5",
)

STALLED = Chain(
    name="stalled",
    overrides=HANGING,
    cells=(
        *_hit("hangs", "policy", "train", "checkpoint"),
        *_hit("hangs", "export", "push"),
        *_hit("hangs", "engine", "rollout", "push", "evaluation", fast=("rollout",)),
        *_hit("hangs", "environment", *PLAYING),
        *_hit("hangs", "reward", *PLAYING),
    ),
)
"""Workers that answer every probe and yet never end a call: the watchdog says who, and has them replaced."""

STALLED_AND_ENDED = Chain(
    name="stalled_and_ended",
    overrides=(*HANGING, "recovery.on_stall=stop"),
    cells=(
        Cell(
            fault="hangs",
            victim="policy",
            phase="train",
            expects=(3, r"must move within 8 s.*waits for policy 0 in `train`"),
        ),
        Cell(
            fault="hangs",
            victim="export",
            phase="push",
            expects=(3, r"must move within 8 s.*waits for policy 0 in `export_weights`"),
        ),
    ),
)
"""The run ends with that diagnosis."""

AHEAD = Chain(
    name="ahead",
    is_exact=False,
    staleness=1,
    overrides=("trainer.staleness=1",),
    cells=(
        *_killed("policy", *STEPPING),
        *_killed("engine", *STEPPING),
        *(_ended(phase) for phase in STEPPING),
    ),
)
"""Rollouts are played while the policy trains."""

STALLED_AHEAD = Chain(
    name="stalled_ahead",
    is_exact=False,
    staleness=1,
    overrides=(*HANGING, "trainer.staleness=1"),
    cells=(*_hit("hangs", "policy", "train"), *_hit("hangs", "engine", "rollout", "push")),
)
"""The same while rollouts are played beside the training."""

RANKS = Chain(
    name="ranks",
    is_exact=False,
    overrides=("cluster.num_policy_ranks=2", "algorithm.kl_coefficient=0.01"),
    cells=(
        *(Cell(fault="SIGKILL", victim="policy", rank=1, phase=phase) for phase in USING),
        *(Cell(fault="SIGSTOP for ever", victim="policy", rank=1, phase=phase) for phase in USING),
        *_killed("reference", *USING),
    ),
)
"""Two policy ranks and a reference: rank 0 waits in a collective for the one that is lost."""

CHAINS = (
    REPLACED,
    SURVIVED,
    ENDED,
    UNTRACKED,
    FULL,
    LOSSY,
    BACKGROUND,
    NODES,
    STALLED,
    STALLED_AND_ENDED,
    AHEAD,
    STALLED_AHEAD,
    RANKS,
)
