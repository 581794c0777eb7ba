"""The state of a run at this moment, read from any thread."""

import time

from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.watchdog import START, silence_limit
from skyrl_nat.monitoring.live import LiveState


def live_state(run: Run) -> LiveState:
    """Return what an open run is doing now; nothing is asked of workers, so that it answers while they hang."""
    now, groups = time.monotonic(), run.topology.groups
    missing = run.keeper.missing
    return LiveState(
        step=run.step,
        total_steps=run.total_steps,
        phase=run.devices.phase,
        silent_s=max(0.0, now - run.progress_since),
        silence_limit_s=silence_limit(run),
        pushed_version=run.devices.pushed_version,
        workers={group.role: len(group.identities) for group in groups},
        alive_workers={
            group.role: sum((group.role, rank) not in missing for rank in list(group.ranks)) for group in groups
        },
        longest_wait_s={group.role: _longest_wait(group, now) for group in groups},
        requests=dict(enumerate(run.pool.loads)),
        playing_rollouts=run.runner.num_playing,
        scoring_rollouts=run.runner.num_scoring,
        playing_groups=run.producer.num_playing,
        ready_groups=run.producer.num_ready,
        quarantined_tasks=len(run.producer.quarantine),
        engine_restarts=run.keeper.num_engine_restarts,
    )


def _longest_wait(group: ActorGroup, now: float) -> float:
    """Return the longest wait for a worker of a role, that for its own start included."""
    return max((now - wait.since for wait in list(group.waits) if wait.method != START), default=0.0)
