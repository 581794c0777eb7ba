"""What happens when something dies or stands still: how often it is replaced, and how long silence may last."""

import signal
from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.config.checks import require_finite, require_not_negative, require_positive

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""End in order; the last one is what Slurm users ask for ahead of the time limit (`--signal=B:USR1@180`)."""

ENDING_S = 75.0
"""On top of `grace_s`: what rollouts, workers, Ray and trackers may take to end; each has its share of it."""


class OnStall(StrEnum):
    """What the watchdog does about a stall; a second one without progress in between always stops the run."""

    restart = "restart"
    """Replace the workers that are waited for longest; a policy rank takes its group along (last checkpoint)."""
    refill = "refill"
    """Drop the oldest unfinished group and play the next task in its place; outside rollouts as `restart`."""
    stop = "stop"
    """Save the last trained step and end the run with the diagnosis."""


@dataclass(kw_only=True, slots=True)
class RecoveryConfig:
    """Section `recovery`."""

    max_engine_restarts: int = 3
    """Of one engine without a trained step in between; then the run goes on without it, or ends if it was the last."""
    max_policy_restarts: int = 3
    """Of the policy's ranks without a trained step in between, from the newest checkpoint; then the run ends."""
    max_worker_restarts: int = 100
    """Of one environment or reward worker in a run; then it stays dead."""
    probe_timeout_s: float = 10.0
    """A worker that does not answer within this time when it is asked counts as dead."""
    node_timeout_s: float = 120.0
    """Another node must have taken the place of a lost one within this time. If none has, the run goes on without the
    engines that were there, and ends if the policy was."""
    grace_s: float = 90.0
    """After the first of `STOP_SIGNALS`: time to end the optimizer step in flight, to save it and to copy it to the
    mirror, all together."""
    stall_timeout_s: float = 0.0
    """Time without progress after which the watchdog acts. Progress is an answered turn, a played or scored rollout, a
    computed micro-batch, a trained step, another phase, and a beginning or end of a checkpoint's checksums. 0 derives
    the time from the run: ten times its slowest step so far, at least five minutes and `cluster.start_timeout_s`;
    before the first step `cluster.call_timeout_s`, and at least that while the run waits for a save."""
    on_stall: OnStall = OnStall.restart
    """What the watchdog does about a stall."""

    def __post_init__(self) -> None:
        require_finite(self, "recovery")
        require_positive(self, "recovery", "max_worker_restarts", "probe_timeout_s", "node_timeout_s", "grace_s")
        require_not_negative(self, "recovery", "max_engine_restarts", "max_policy_restarts", "stall_timeout_s")
