"""Write dialogues of someone who knows the protocol and is careless about plans: a start for GRPO.

usage: careless_plans.py EPISODES HELD_OUT [--requests 2400] [--share 0.1] [--each 2] [--seed 0] [--max-difficulty 2]

In a share of the subtasks the type is wrong, in another such share it waits for nothing, and in another it is left out,
while others remain. Who imitates this writes whole plans and goes wrong about as often, which is printed. The shipped
training tasks are the first of the requests; by themselves they name each piece of work once or twice, too seldom for a
model that must learn every word of it. HELD_OUT gets requests that are near none of these, of the same domains.
"""

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.task_writer import write_tasks
from skyrl_nat.environments.task_dag.domains import HELD_OUT
from skyrl_nat.environments.task_dag.episodes import play_answers
from skyrl_nat.environments.task_dag.generate import generate
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import Decomposition, parse_hidden
from skyrl_nat.environments.task_dag.protocol import MIN_SUBTASKS, answer_text
from skyrl_nat.environments.task_dag.task_types import GROUP, TYPES
from skyrl_nat.environments.task_dag.validator import TaskDagValidator
from skyrl_nat.types import Task

NUM_DRAWN = 480
"""Requests from which held-out ones are taken."""


def careless_answers(task: Task, share: float, dice: random.Random) -> list[str]:
    """Return what is said turn by turn in the place of the reference plan.

    Args:
        task: Of the family `task_dag`.
        share: Of the subtasks that have each of the three faults.
        dice: Decides.
    """
    left_out: set[str] = set()
    answers = []
    for turn in parse_hidden(task.hidden).reference:
        kept = list[Node]()
        for place, node in enumerate(turn.subtasks):
            num_others = len(kept) + len(turn.subtasks) - place - 1
            if node.type != GROUP and num_others >= MIN_SUBTASKS and dice.random() < share:
                left_out.add(node.id)
            else:
                kept.append(_careless(node, left_out, share, dice))
        answers.append(answer_text(Decomposition(node=turn.node, subtasks=tuple(kept))))
    return [*answers, answer_text(None)]


def _careless(node: Node, left_out: set[str], share: float, dice: random.Random) -> Node:
    """Return a subtask as it is written down; it cannot wait for what was left out."""
    depends_on = tuple(name for name in node.depends_on if name not in left_out)
    if dice.random() < share:
        depends_on = ()
    if node.type != GROUP and dice.random() < share:
        node = replace(node, type=dice.choice([name for name in TYPES if name not in (GROUP, node.type)]))
    return replace(node, depends_on=depends_on)


def careless_episodes(tasks: list[Task], share: float, each: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield `each` episodes of every task, the tasks in turn."""
    dice = random.Random(seed)
    validator = TaskDagValidator(EnvironmentConfig())
    for _ in range(each):
        for task in tasks:
            yield play_answers(task, validator, careless_answers(task, share, dice))


def draw_tasks(num_requests: int, max_difficulty: int) -> tuple[list[Task], list[Task]]:
    """Return requests to learn from and held-out ones, near none of those and of the same domains."""
    splits = generate(sizes={"train": num_requests, "validation": NUM_DRAWN})
    unknown = tuple(f"{name}_" for name in HELD_OUT)
    train, held_out = (
        [
            task
            for task in splits[name]
            if task.difficulty <= max_difficulty and not task.task_id.rpartition("/")[2].startswith(unknown)
        ]
        for name in ("train", "validation")
    )
    return train, held_out


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("episodes", type=Path)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("--requests", type=int, default=2400, help="of all difficulties, to learn from")
    parser.add_argument("--share", type=float, default=0.1, help="of the subtasks with each kind of fault")
    parser.add_argument("--each", type=int, default=2, help="episodes of every request")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-difficulty", type=int, default=2)
    options = parser.parse_args()
    tasks, held_out = draw_tasks(options.requests, options.max_difficulty)
    episodes = list(careless_episodes(tasks, options.share, options.each, options.seed))
    options.episodes.parent.mkdir(parents=True, exist_ok=True)
    write_tasks(held_out, options.held_out)
    options.episodes.write_text("".join(json.dumps(episode) + "\n" for episode in episodes), encoding="utf-8")
    reward, success = (sum(episode[key] for episode in episodes) / len(episodes) for key in ("reward", "is_success"))
    found = {"episodes": len(episodes), "mean_reward": round(reward, 3), "success": round(success, 3)}
    print(json.dumps(found | {"held_out": len(held_out)}))


if __name__ == "__main__":
    main()
