"""What the policy reads: the first messages, and the answer to each of its turns."""

from skyrl_nat.environments.jira.machine import Machine, State, Transition
from skyrl_nat.types import Message

_SYSTEM = "You work on Jira issues. Answer with the name of one tool and nothing else."
_NEXT = "Next tool?"
_EXAMPLE = (
    Message(role="user", content=f"Tools: open_door, ring_bell\n{_NEXT}"),
    Message(role="assistant", content="ring_bell"),
)


def build_prompt(machine: Machine) -> list[Message]:
    """Return the first messages of an issue.

    The form of an answer is shown by a turn of the dialogue: a model of 135M parameters names a tool after it, and
    hardly ever does so without.
    """
    issue, workflow = machine.issue, machine.workflow
    lines = [
        f"{issue.type} {issue.key}, priority {issue.priority}: {_shorten(issue.summary)}",
        describe_state(machine, machine.start()),
        f"Task: {workflow.task.format(target=issue.target)}",
        workflow.rules,
        "Use no tool twice and none that is not needed.",
        f"Tools: {', '.join(workflow.tool_names)}",
        _NEXT,
    ]
    return [
        Message(role="system", content=_SYSTEM),
        *_EXAMPLE,
        Message(role="user", content="\n".join(lines)),
    ]


def build_observation(machine: Machine, tool: str | None, transition: Transition) -> str:
    """Return what the policy is told after a turn; `tool` is None where its answer named none."""
    if tool is None:
        head = f"Not understood: {transition.reason}."
    elif transition.is_valid:
        head = f"Done: {tool}."
    else:
        head = f"{tool} is not possible: {transition.reason}."
    return f"{head} {describe_state(machine, transition.state)} {_NEXT}"


def describe_state(machine: Machine, state: State) -> str:
    """Return the status and the facts that the policy may know, in one line."""
    texts = machine.workflow.fact_texts
    facts = [yes if name in state.facts else no for name, (yes, no) in texts.items()]
    return ". ".join([f"Status: {state.status}", *([", ".join(facts).capitalize()] if facts else [])]) + "."


def _shorten(text: str, limit: int = 120) -> str:
    """Return a text of any kind in one line of at most `limit` letters."""
    line = " ".join(text.split()) or "(no summary)"
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
