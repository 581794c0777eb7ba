"""The state machine of one issue: what is possible, what it changes, what it earns. Pure and without chance."""

from collections import deque
from dataclasses import dataclass

from skyrl_nat.environments.jira.catalogue import Issue, Tool, Workflow, workflow_of
from skyrl_nat.environments.jira.verifier import Verdict, verify
from skyrl_nat.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything that an episode has come to, except for the number of its steps."""

    status: str
    facts: frozenset[str]
    executed: tuple[str, ...] = ()
    """Tools that were possible, in the order of their use."""
    num_progress: int = 0
    """Steps of the plan that were done in their turn."""
    is_ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What one step did."""

    state: State
    """The same as before where the step was not valid."""
    reward: float
    is_valid: bool
    reason: str = ""
    """Why the tool was not possible; empty where it was."""


class Machine:
    """Rules of one issue under its workflow. Holds no state of an episode: `start` and `apply` return it."""

    def __init__(self, issue: Issue) -> None:
        """Work out the plan: the steps that this issue needs, in order.

        Raises:
            DataError: The target cannot be reached.
        """
        self.issue = issue
        self.workflow: Workflow = workflow_of(issue.workflow)
        self._tools: dict[str, Tool] = {tool.name: tool for tool in self.workflow.tools}
        self.plan: tuple[str, ...] = self._plan()

    def start(self) -> State:
        """Return the state before the first step."""
        return State(status=self.issue.status, facts=self.issue.facts)

    def why_not(self, state: State, name: str) -> str:
        """Return why a tool is not possible now; empty where it is."""
        tool = self._tools[name]
        if state.is_ended:
            return "the work has ended"
        if state.status not in tool.sources:
            return f"not from status {state.status}"
        missing = [fact for fact in tool.needs if fact not in state.facts]
        return f"needs {', '.join(missing)}" if missing else ""

    def mask(self, state: State) -> tuple[bool, ...]:
        """Return for every tool, in the order of the actions, whether it is possible; all False after the end."""
        return tuple(not self.why_not(state, name) for name in self.workflow.tool_names)

    def is_resolved(self, state: State) -> bool:
        """Return whether the goal's facts and status hold, ended or not."""
        goal = self.workflow.goal
        is_there = not goal.is_target or state.status == self.issue.target
        return is_there and goal.present <= state.facts and not goal.absent & state.facts

    def apply(self, state: State, name: str) -> Transition:
        """Use a tool.

        Args:
            state: Of an episode that has not ended.
            name: One of `workflow.tool_names`.
        """
        rewards = self.workflow.rewards
        if reason := self.why_not(state, name):
            return Transition(state=state, reward=rewards.step + rewards.invalid, is_valid=False, reason=reason)
        tool = self._tools[name]
        is_next = self.plan[state.num_progress : state.num_progress + 1] == (name,)
        after = State(
            status=tool.to or state.status,
            facts=(state.facts - tool.clears) | tool.sets,
            executed=(*state.executed, name),
            num_progress=state.num_progress + is_next,
            is_ended=tool.ends,
        )
        reward = rewards.step + (rewards.progress / len(self.plan) if is_next else rewards.waste)
        if after.is_ended:
            reward += rewards.verdict if self.judge(after).is_ok else rewards.wrong_end
        return Transition(state=after, reward=reward, is_valid=True)

    def refuse(self, state: State, reason: str) -> Transition:
        """Return what an answer costs that names no tool: a step and `rewards.broken`, without a change of state."""
        rewards = self.workflow.rewards
        return Transition(state=state, reward=rewards.step + rewards.broken, is_valid=False, reason=reason)

    def judge(self, state: State) -> Verdict:
        """Return the verifier's verdict on an episode that stops here."""
        return verify(self.plan, state.executed, is_goal_reached=self.is_resolved(state), is_ended=state.is_ended)

    def _plan(self) -> tuple[str, ...]:
        issue, names = self.issue, list[str]()
        for step in self.workflow.plan:
            if not step.tool:
                names += self._way_to_target()
            elif (
                step.only_if <= issue.facts and not step.unless & issue.facts and issue.status not in step.unless_status
            ):
                names.append(step.tool)
        return tuple(names)

    def _way_to_target(self) -> list[str]:
        """Return the fewest tools that lead from the first status to the target; the earliest tools of equal ways."""
        ways: dict[str, list[str]] = {self.issue.status: []}
        queue = deque(ways)
        while queue:
            status = queue.popleft()
            for tool in self.workflow.tools:
                if tool.to and not tool.ends and status in tool.sources and tool.to not in ways:
                    ways[tool.to] = [*ways[status], tool.name]
                    queue.append(tool.to)
        if self.issue.target not in ways:
            raise DataError(
                f"a way must lead from {self.issue.status!r} to {self.issue.target!r} in {self.workflow.name}, "
                f"{', '.join(ways)} can be reached. Choose another target for {self.issue.key}"
            )
        return ways[self.issue.target]
