"""From a user's request to an agent: a planner's spec, the policy's episode with the validator in it, a folder."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.making.build import FAMILY
from skyrl_nat.data.making.episodes import play_solution
from skyrl_nat.data.making.maker import Maker
from skyrl_nat.data.planner.ask import Planner
from skyrl_nat.data.planner.pipeline import Try, ask_draft, make_planned
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.deploy.agent_folder import complete_files, write_agent
from skyrl_nat.deploy.feedback import AGENTS
from skyrl_nat.deploy.flag import Flagged, TrainedSwitch
from skyrl_nat.deploy.log import say
from skyrl_nat.deploy.policy_client import TrainedPolicy
from skyrl_nat.deploy.repair import NearEnvironments, repairing_family
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.workbench import Workbench
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.errors import DataError, EngineError
from skyrl_nat.feature_flag import FlagOutcome
from skyrl_nat.rewards.deadline import call_in_thread
from skyrl_nat.rewards.worker import RewardWorker
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Message, RewardResult, Rollout, Task, Turn

MAX_SHOWN_FINDINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """Limits of one creation."""

    max_plans: int = 3
    """Specs asked for until one becomes a proved task."""
    max_repairs: int = 3
    """Times that the policy may mend a package that the validator refuses."""
    validation_timeout_s: float = 300.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """What a user wants."""

    text: str
    user_id: str
    difficulty: int = 3
    """1 to 5; from 4 on the agent brings tests of its own and an MCP server."""


@dataclass(slots=True)
class Progress:
    """Where a creation stands, for whoever gives up on it."""

    phase: str = "queue"
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextlib.contextmanager
    def entered(self, phase: str) -> Iterator[None]:
        """Name and measure a phase."""
        self.phase = phase
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = round(time.monotonic() - started, 3)
            say("phase over", phase=phase, seconds=self.seconds[phase])


class PolicyAtWork(Protocol):
    """Gives the policy that has the traffic now."""

    def __call__(self) -> TrainedPolicy:
        """Return it. Raises EngineError where there is none."""
        ...


class AgentPipeline:
    """Creates agents; any number at once."""

    def __init__(
        self,
        planner: Planner,
        maker: Maker,
        policy: PolicyAtWork,
        switch: TrainedSwitch,
        environment: EnvironmentConfig,
        settings: PipelineSettings,
        folder: Path,
    ) -> None:
        """Take what it works with.

        Args:
            planner: Open; turns requests into specs and reference code.
            maker: Builds and proves tasks; its validator judges.
            policy: Who writes agents.
            switch: Says for whom.
            environment: Section `environment` of the policy's training.
            settings: Limits.
            folder: Of the deployment; created agents go under it.
        """
        self._planner, self._maker, self._policy, self._switch = planner, maker, policy, switch
        self._environment, self._settings, self._folder = environment, settings, folder
        self._pool = ThreadPoolExecutor(maker.num_workers, thread_name_prefix="making")
        self._tasks: dict[str, Task] = {}
        self._rewards = RewardWorker(
            maker.validator, settings.validation_timeout_s, maker.num_workers, slow_checks=environment.slow_checks
        )

    async def create(self, request: AgentRequest, agent_id: str, progress: Progress) -> dict[str, Any]:
        """Return the record of a created agent, whose folder is written.

        Raises:
            DataError: The planner makes no sound task of the request.
            StoppedError: The planner's budget or quota is used up.
            EngineError: Neither the policy nor the code behind it passes the validator.
        """
        with progress.entered("plan"):
            task = await self._plan(request, agent_id)
        tried: list[Rollout] = []
        self._tasks[task.task_id] = task
        try:
            with progress.entered("write"):
                answer = await self._switch.ask(request.user_id, lambda: self._play(task, agent_id, tried))
        finally:
            del self._tasks[task.task_id]
        with progress.entered("validate"):
            files, verdict = await self._judged(task, answer)
        with progress.entered("save"):
            spec = parse_spec(task.payload)
            whole = complete_files(spec, files)
            record = _record(agent_id, task, answer, verdict, progress)
            record |= {"files": sorted(whole), "added_files": sorted(set(whole) - set(files))}
            record |= _counts(tried)
            traces = self._traces(request, agent_id, task, answer, tried, verdict)
            await asyncio.to_thread(write_agent, self._folder / AGENTS / agent_id, whole, record, traces)
        say("agent created", agent_id=agent_id, outcome=str(answer.outcome), reward=verdict.total)
        return record

    def close(self) -> None:
        """Begin nothing new; what runs in threads runs to its end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _plan(self, request: AgentRequest, agent_id: str) -> Task:
        """Return the request as a proved task."""
        reasons: list[str] = []
        for variation in range(self._settings.max_plans):
            seed = self._settings.seed
            draft = await ask_draft(self._planner, request.text, variation, request.difficulty, seed=seed)
            if not isinstance(draft, Try):
                task_id = f"{FAMILY}/deploy/{agent_id}-{draft['name']}"
                draft = await make_planned(self._planner, self._maker, self._pool, draft, task_id, seed=seed)
            if draft.task is not None:
                return draft.task
            say("plan refused", kind=draft.kind, reason=draft.reason[:500])
            reasons.append(f"{draft.kind}: {draft.reason}"[:300])
        raise DataError(
            f"The planner must make a sound task of the request within {self._settings.max_plans} tries, it did not: "
            f"{'; '.join(reasons)}. Say more exactly what the agent must do"
        )

    async def _play(self, task: Task, agent_id: str, tried: list[Rollout]) -> Rollout:
        """Return the policy's episode, whose package passed the validator.

        Raises:
            EngineError: The infrastructure failed, at every try.
            DataError: The package did not pass.
        """
        policy = self._policy()
        bench = Workbench(self._environment, self._maker.sandbox)
        validator = self._maker.validator
        family = repairing_family(
            self._environment, self._tasks, validator, bench, max_repairs=self._settings.max_repairs
        )
        worker = EnvironmentWorker(family, self._environment, max_turns=policy.config.max_turns)
        runner = GroupRunner(
            player=EnvironmentPlayer(policy.access(), NearEnvironments(worker)),
            score=self._rewards.score,
            config=policy.config,
        )
        label, temperature = f"deploy-{agent_id}", policy.config.eval_temperature
        group = await runner.play_group(task, 0, num_rollouts=1, temperature=temperature, label=label)
        [rollout] = group.rollouts
        tried.append(rollout)
        if rollout.reward is None:
            raise EngineError(f"An episode must come to a verdict, this one is a {rollout.outcome}: {rollout.reason}")
        if not rollout.reward.is_success:
            found = "; ".join(rollout.reward.findings[:MAX_SHOWN_FINDINGS]) or rollout.reason or "no file was written"
            raise DataError(f"the package earned {rollout.reward.total:.3f}: {found}"[:1000])
        return rollout

    async def _judged(self, task: Task, answer: Flagged[Rollout]) -> tuple[dict[str, str], RewardResult]:
        """Return the files that are delivered and the verdict on them."""
        if answer.value is not None and answer.value.reward is not None:
            return dict(answer.value.artifact["files"]), answer.value.reward
        files = dict(task.hidden["solution"])
        verdict = await call_in_thread(
            self._maker.validator.validate,
            task,
            {"files": files},
            timeout_s=self._settings.validation_timeout_s,
            name="validation of the planner's code",
        )
        if not verdict.is_success:
            self._switch.counts.add(FlagOutcome.failed)
            raise EngineError(
                f"The planner's own code must pass the validator, found {verdict.findings[:3]}. Ask again"
            )
        return files, verdict

    def _traces(
        self,
        request: AgentRequest,
        agent_id: str,
        task: Task,
        answer: Flagged[Rollout],
        tried: list[Rollout],
        verdict: RewardResult,
    ) -> list[Trace]:
        """Return the policy's episode as a trace, and what was delivered in its place."""
        common = Trace(
            trace_id=f"deploy-{agent_id}",
            source="deploy",
            request=request.text,
            steps=(),
            started_at=datetime.now(UTC).isoformat(),
            agent="skyrl_nat",
            task_id=task.task_id,
        )
        traces: list[Trace] = []
        for rollout in tried:
            if rollout.reward is not None and rollout.turns:
                steps = [*map(_said, rollout.prompt), *(step for turn in rollout.turns for step in _steps(turn))]
                played = replace(common, trace_id=f"{common.trace_id}-policy", model="policy", steps=tuple(steps))
                files = dict(rollout.artifact.get("files", {}))
                traces.append(_judged_trace(played, rollout.reward, files, is_delivered=answer.value is not None))
        if answer.value is None:
            messages = play_solution(task, self._environment.form)["messages"]
            behind = replace(common, trace_id=f"{common.trace_id}-planner", model="planner")
            behind = replace(behind, steps=tuple(map(_said, messages)))
            traces.append(_judged_trace(behind, verdict, dict(task.hidden["solution"]), is_delivered=True))
        return traces


def _record(
    agent_id: str, task: Task, answer: Flagged[Rollout], verdict: RewardResult, progress: Progress
) -> dict[str, Any]:
    return {
        "agent_id": agent_id,
        "task_id": task.task_id,
        "name": task.payload["name"],
        "description": task.payload["description"],
        "created_at": datetime.now(UTC).isoformat(),
        "outcome": str(answer.outcome),
        "reason": answer.reason,
        "validation": {
            "reward": verdict.total,
            "is_success": verdict.is_success,
            "parts": verdict.parts,
            "findings": verdict.findings,
            "suspicions": verdict.suspicions,
            "stages": [asdict(stage) for stage in verdict.stages],
        },
        "seconds": dict(progress.seconds),
    }


def _counts(tried: list[Rollout]) -> dict[str, int]:
    """Return what the policy's episode took."""
    repairs = sum(int(rollout.metrics.get("num_repairs", 0)) for rollout in tried)
    return {"num_turns": sum(len(rollout.turns) for rollout in tried), "num_repairs": repairs}


def _judged_trace(trace: Trace, verdict: RewardResult, files: dict[str, str], *, is_delivered: bool) -> Trace:
    return replace(
        trace,
        outcome=TraceOutcome.success if verdict.is_success else TraceOutcome.failure,
        reward=verdict.total,
        files=files,
        metadata={"is_delivered": is_delivered, "findings": verdict.findings},
    )


def _said(message: Message) -> TraceStep:
    return TraceStep(kind=StepKind.message, role=message["role"], text=message["content"])


def _steps(turn: Turn) -> Iterator[TraceStep]:
    """Yield what the policy said in a turn, and what it was told."""
    yield TraceStep(
        kind=StepKind.message,
        text=turn.completion_text,
        seconds=turn.generate_s,
        num_prompt_tokens=turn.num_prompt_tokens,
        num_completion_tokens=turn.num_completion_tokens,
    )
    yield from map(_said, turn.observations)
