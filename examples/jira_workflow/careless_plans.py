"""Write dialogues of someone who knows the tools and is careless about which one is next: a start for GRPO.

usage: careless_plans.py FILE [--share 0.25] [--each 4] [--seed 0]

Each turn names the tool that the plan wants next or, in a share of the turns, any other tool of the workflow. Who
imitates this spells every name and goes wrong about as often as these dialogues do, which is printed.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.jira.episodes import play_tools
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.validator import JiraValidator
from skyrl_nat.types import Task


def play_carelessly(task: Task, share: float, dice: random.Random) -> dict[str, Any]:
    """Return one episode: `task_id`, `difficulty`, `prompt`, `messages`, `reward`, `is_success`.

    Args:
        task: Of the family `jira`.
        share: Of the turns that name another tool than the plan's next one.
        dice: Decides.
    """

    def choose(machine: Machine, wanted: str) -> str:
        if dice.random() >= share:
            return wanted
        return dice.choice([name for name in machine.workflow.tool_names if name != wanted])

    episode, result = play_tools(task, JiraValidator(), choose)
    return episode | {"is_success": result.is_success}


def careless_episodes(share: float, each: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield `each` episodes of every training task, the tasks in turn."""
    dice = random.Random(seed)
    tasks = load_tasks(["builtin:jira/train"])
    for _ in range(each):
        for task in tasks:
            yield play_carelessly(task, share, dice)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--share", type=float, default=0.25, help="of the turns that name another tool")
    parser.add_argument("--each", type=int, default=4, help="episodes of every training task")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    episodes = list(careless_episodes(options.share, options.each, options.seed))
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text("".join(json.dumps(episode) + "\n" for episode in episodes), encoding="utf-8")
    reward, success = (sum(episode[key] for episode in episodes) / len(episodes) for key in ("reward", "is_success"))
    print(json.dumps({"episodes": len(episodes), "mean_reward": round(reward, 3), "success": round(success, 3)}))


if __name__ == "__main__":
    main()
