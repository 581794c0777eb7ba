"""Everything that one run holds, and what the loop asks of it."""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from numpy.typing import NDArray

from skyrl_nat.batching.advantages import has_signal
from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.cluster.topology import Topology, describe
from skyrl_nat.config.algorithm import DynamicSampling
from skyrl_nat.config.environment import Curriculum
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.accounting import StepAccountant
from skyrl_nat.controller.devices import Devices
from skyrl_nat.controller.evaluate import forget_later
from skyrl_nat.controller.grace import Grace
from skyrl_nat.controller.keeper import Keeper
from skyrl_nat.controller.saving import Saver, restore
from skyrl_nat.controller.update import Coefficients, Record
from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.data.task_source import TaskSource
from skyrl_nat.engines.model_folder import vocab_size
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.errors import DeadlineError, StoppedError, WorkerError
from skyrl_nat.evaluation.evaluator import EvaluationResult
from skyrl_nat.monitoring.alarms import check_alarms
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.metrics import group_metrics, staleness_metrics
from skyrl_nat.monitoring.tracker import Tracker
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.gateway import Gateway
from skyrl_nat.rollouts.harness import HarnessContext, find_harness
from skyrl_nat.rollouts.harness_player import HarnessPlayer
from skyrl_nat.rollouts.policy_access import PolicyAccess
from skyrl_nat.rollouts.producer import GroupProducer, ProducerLimits
from skyrl_nat.rollouts.quarantine import Quarantine
from skyrl_nat.rollouts.recorded import RecordedGroups
from skyrl_nat.rollouts.recorder import RolloutRecorder
from skyrl_nat.rollouts.runner import GroupRunner, Player
from skyrl_nat.types import RolloutGroup, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """What a run learns from and is judged by."""

    train_tasks: TaskSource
    validation_tasks: list[Task]
    recorded: RecordedGroups | None = None
    """Finished groups that stand in for playing the training tasks."""


class Run:
    """Everything that one run holds; made by `open_run`."""

    started_from: Path | None = None
    """Checkpoint that this process began with, perhaps another run's."""
    progress_since: float = math.inf
    """When the watchdog last saw progress, by `time.monotonic`; infinite before it watches."""

    def __init__(
        self,
        config: RunConfig,
        topology: Topology,
        *,
        model_path: Path,
        data: RunData,
        console: ConsoleBackend,
        tracker: Tracker,
    ) -> None:
        """Wire the parts; nothing is started here."""
        self.config = config
        self.folder, self.model_path = config.run_dir, model_path
        self.console, self.tracker = console, tracker
        self.topology = topology
        self.policy, self.reference, self.engines = topology.policy, topology.reference, topology.engines
        self.data = data
        self.total_steps = config.total_steps(len(data.train_tasks))
        self.step = 0
        """Batches trained; also the policy version that the engines serve after a push."""
        self.evaluations: list[EvaluationResult] = []
        """Of held-out tasks up to this step, oldest first; those of earlier processes too."""
        self.rewards: dict[int, float] = {}
        """Of all held-out tasks, by step; of earlier processes too."""
        self.coefficients = Coefficients(config.algorithm.kl_coefficient, config.algorithm.entropy_coefficient)
        self.checkpoints = open_checkpoints(config, warn=console.warn)
        self.saver = Saver(self, self.checkpoints)
        self.grace = Grace(config.recovery.grace_s)
        self.recorder = RolloutRecorder(self.folder / "rollouts")
        self.pool = EnginePool(
            topology.engine_clients,
            request_timeout_s=config.engine.request_timeout_s,
            max_model_len=config.rollout.max_total_tokens,
        )
        self.codec = ChatCodec.from_folder(model_path)
        policy = self._policy_access(vocab_size(model_path))
        self.gateway = Gateway(policy) if config.rollout.harness else None
        """Listens while the run is open; None where environments play."""
        self.runner = GroupRunner(
            player=self._make_player(policy, self.gateway),
            score=topology.rewards.score if topology.rewards else None,
            config=config.rollout,
            max_in_flight=config.max_concurrent_rollouts,
        )
        self.account = StepAccountant(config, topology, model_path)
        self.keeper = Keeper(
            topology,
            self.pool,
            config.recovery,
            push=lambda ranks: self.devices.push_to_new(ranks, self.step),
            warn=console.warn,
            on_change=self.write_topology,
            start_timeout_s=config.cluster.start_timeout_s,
        )
        self.devices = Devices(config, topology, self.account, leave_out_dead=self.keeper.leave_out_dead)
        self.stream = PromptStream(
            data.train_tasks, seed=config.seed, easy_first=config.environment.curriculum is Curriculum.easy_first
        )
        self.producer = self._make_producer()

    @property
    def record(self) -> Record | None:
        """What writes down how training saw the tokens of a batch; None where the config does not want it."""
        return self._record_trained if self.config.tracking.record_tokens else None

    def rollout_phase(self, name: str = "rollout") -> AbstractAsyncContextManager[None]:
        """Hold the devices for engines."""
        return self.devices.rollout_phase(name)

    def training_phase(self) -> AbstractAsyncContextManager[None]:
        """Hold the devices for training."""
        return self.devices.training_phase()

    async def push_weights(self) -> None:
        """Give the engines the policy's weights as version `step`; they serve nothing meanwhile."""
        await self.devices.push(self.step)

    async def restart_policy(self) -> None:
        """Put new ranks in the place of policy and reference, and go back to the newest checkpoint, or to the start."""
        await self.producer.close()
        await self.topology.restart_policy()
        with contextlib.suppress(WorkerError, DeadlineError):
            await self.saver.settle()
        newest = await asyncio.to_thread(self.checkpoints.latest, is_thorough=True) or self.started_from
        if newest is None:
            self.step, self.stream.position = 0, 0
            algorithm = self.config.algorithm
            self.coefficients = Coefficients(algorithm.kl_coefficient, algorithm.entropy_coefficient)
            self.renew_producer()
        else:
            await self.load_checkpoint(newest)
        await self.saver.go_on_from(newest)
        self.devices.forget_policy()
        self.account.interrupt()
        self.leave_behind()

    def leave_behind(self) -> None:
        """Let nothing count that is recorded of later steps, which are trained anew."""
        self.tracker.rewind(self.step)
        self.recorder.set_aside(self.step)
        forget_later(self.folder, self.step)
        self.evaluations = [found for found in self.evaluations if found.step <= self.step]
        self.rewards = {step: reward for step, reward in self.rewards.items() if step <= self.step}

    def write_topology(self) -> None:
        """Write down which process is where, for people and scripts; a disk that refuses it is no fault of the run."""
        text = json.dumps(describe(self.topology), indent=1) + "\n"
        file, part = self.folder / "topology.json", self.folder / "topology.json.part"
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(file)
        except OSError as error:
            self.console.warn(f"{file} could not be written and says who was where before: {error}")

    async def begin_step(self) -> None:
        """Start the account of a step, which is the last one where the time is over."""
        if 0 < self.config.trainer.max_minutes <= minutes_of_process():
            self.total_steps = min(self.total_steps, self.step + 1)
        await self.account.begin()

    async def end_step(self, groups: Sequence[RolloutGroup], metrics: Mapping[str, float]) -> None:
        """Write metrics and account of the step that was just trained.

        Raises:
            StoppedError: An alarm says that going on would train on wrong numbers.
        """
        account = await self.account.end(metrics)
        counts = self.producer.counts
        everything = {
            **group_metrics(groups),
            **staleness_metrics(groups, self.step - 1),
            # Over all groups since the last batch, those that were dropped included.
            **{f"rollout/{outcome}/count": float(number) for outcome, number in counts.outcomes.items()},
            "rollout/dropped_groups/count": float(counts.dropped_groups),
            "rollout/stale_groups/count": float(counts.stale_groups),
            "rollout/flat_groups/count": float(counts.flat_groups),
            "rollout/quarantined_tasks/count": float(len(self.producer.quarantine)),
            **metrics,
            **account,
            **self.devices.moved(),
        }
        alarms = check_alarms(everything, self.config)
        restarts = {"recovery/engine_restarts/count": float(self.keeper.num_engine_restarts)}
        self.tracker.log(self.step, everything | restarts | {"alarm/count": float(len(alarms))})
        self.devices.is_in_step = False
        self.keeper.on_step()
        for alarm in alarms:
            self.console.warn(f"ALARM at step {self.step}: {alarm.text}")
        fatal = [alarm.text for alarm in alarms if alarm.is_fatal]
        if fatal:
            raise StoppedError(" ".join(fatal))

    def is_over(self) -> bool:
        """Return whether all steps are trained, or the last `evaluation.patience` evaluations brought nothing more."""
        patience = self.config.evaluation.patience
        rewards = [found.reward if math.isfinite(found.reward) else -math.inf for found in self.evaluations]
        num_since_best = len(rewards) - 1 - rewards.index(max(rewards)) if rewards else 0
        return self.step >= self.total_steps or 0 < patience <= num_since_best

    def is_checkpoint_due(self) -> bool:
        """Return whether the step that was just trained is to be saved."""
        config = self.config.checkpoint
        if self.config.evaluation.patience and self.is_evaluation_due():
            return True
        if self.step == self.total_steps:
            return config.save_final
        if config.every_epochs:
            tasks = self.config.trainer.tasks_per_step
            before = (self.step - 1) * tasks // len(self.stream) // config.every_epochs
            return self.step * tasks // len(self.stream) // config.every_epochs > before
        return bool(config.every_steps) and self.step % config.every_steps == 0

    def is_push_due(self) -> bool:
        """Return whether engines play with the step that was just trained; recorded rollouts need none."""
        return not self.config.environment.recorded_files or self.is_evaluation_due()

    def is_evaluation_due(self) -> bool:
        """Return whether held-out tasks are to be played after this step."""
        config = self.config.evaluation
        if self.step in (0, self.total_steps):
            return config.before_and_after
        return bool(config.every_steps) and self.step % config.every_steps == 0

    async def save_checkpoint(self) -> None:
        """Save all that going on needs (docs/resume.md); the folder appears only when it is complete."""
        self.console.status(f"saving step {self.step}")
        self.account.interrupt()
        with self.devices.in_phase("save"):
            await self.saver.save()

    async def save_last_step(self) -> None:
        """Save the step that was just trained and pushed, before a stop, if it is not saved."""
        with self.devices.in_phase("save"):
            await self.saver.save_last()

    async def load_checkpoint(self, checkpoint: Path) -> None:
        """Go on from a checkpoint."""
        await restore(self, checkpoint)

    def renew_producer(self) -> None:
        """Have a producer that begins at the stream's position."""
        self.producer = self._make_producer()

    async def _play(self, task: Task, index: int) -> RolloutGroup:
        """Play one group of the training set."""
        return await self.runner.play_group(
            task,
            index,
            num_rollouts=self.config.trainer.rollouts_per_task,
            temperature=self.config.rollout.temperature,
        )

    async def _record_trained(self, columns: dict[str, NDArray]) -> None:
        """Write the tokens of the step that is being trained; a full disk takes nothing else than them."""
        try:
            await asyncio.to_thread(self.recorder.write_trained, self.step + 1, columns)
        except OSError as error:
            self.console.warn(f"Tokens of step {self.step + 1} are not recorded as training saw them: {error}")

    def _has_signal(self, group: RolloutGroup) -> bool:
        """Return whether a group stays in the batch under `algorithm.dynamic_sampling=filter`."""
        algorithm = self.config.algorithm
        return algorithm.dynamic_sampling is not DynamicSampling.filter or has_signal(group, algorithm)

    def _policy_access(self, vocab_size: int) -> PolicyAccess:
        config = self.config
        return PolicyAccess(
            generate=self.pool.generate,
            codec=self.codec,
            config=config.rollout,
            seed=config.seed,
            vocab_size=vocab_size,
        )

    def _make_player(self, policy: PolicyAccess, gateway: Gateway | None) -> Player:
        config, environments = self.config, self.topology.environments
        if gateway is None:
            return EnvironmentPlayer(policy, environments)
        context = HarnessContext(environments=environments, environment=config.environment, rollout=config.rollout)
        harness = find_harness(config.rollout.harness)(context)
        return HarnessPlayer(harness, gateway, config.rollout.rollout_timeout_s)

    def _make_producer(self) -> GroupProducer:
        config = self.config
        return GroupProducer(
            self._play if self.data.recorded is None else self.data.recorded.play,
            self.stream,
            ProducerLimits(
                tasks_per_step=config.trainer.tasks_per_step,
                staleness=config.trainer.staleness,
                min_valid_rollouts=1 if self.data.recorded else config.trainer.min_valid_rollouts,
                max_dropped_groups=config.trainer.max_dropped_groups,
            ),
            has_signal=self._has_signal,
            quarantine=Quarantine(
                config.rollout.quarantine_after, file=self.folder / "quarantine.jsonl", warn=self.console.warn
            ),
        )


def open_checkpoints(config: RunConfig, **options: Any) -> CheckpointManager:
    """Return the checkpoints of a run's folder.

    Args:
        config: The run.
        **options: `warn`, see `CheckpointManager`.
    """
    kept = config.checkpoint
    return CheckpointManager(
        config.run_dir / "checkpoints", keep_last=kept.keep_last, keep_best=kept.keep_best, **options
    )


def minutes_of_process() -> float:
    """Return for how long this process has run."""
    return (time.time() - psutil.Process().create_time()) / 60
