"""Play the Jira environments with several policies on the same seeds: a table (Markdown and JSON) and a plot.

    compare.py --runs runs/jira --untrained MODEL_FOLDER --trained MODEL_FOLDER --out runs/jira/comparison

Random and rule need nothing; PPO and DQN are found in `--runs`, where `train_ppo.py` and `train_dqn.py` leave them; a
language model names tools in `JiraTextEnv` and plays where its folder is given.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import matplotlib
import numpy as np
from sb3 import ALGORITHMS, load, optimum_of
from stable_baselines3.common.base_class import BaseAlgorithm

from skyrl_nat.engines.choices import ChoicePolicy
from skyrl_nat.environments.jira.catalogue import Issue
from skyrl_nat.environments.jira.env import ENVIRONMENT_IDS, JiraEnv, Observation
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.text import JiraTextEnv
from skyrl_nat.types import Message

matplotlib.use("Agg")
from matplotlib import pyplot

Row = dict[str, Any]


class Policy(Protocol):
    """Who plays."""

    def begin(self, issue: Issue, seed: int) -> None:
        """Take note of a new episode."""
        ...

    def act(self, observation: Observation) -> str:
        """Return the name of the next tool."""
        ...


class RandomPolicy:
    """Any tool, possible or not."""

    def begin(self, issue: Issue, seed: int) -> None:
        """Seed the choices."""
        self._random, self._names = random.Random(seed), Machine(issue).workflow.tool_names

    def act(self, observation: Observation) -> str:
        """Return any tool."""
        del observation
        return self._random.choice(self._names)


class RulePolicy:
    """The rules of the workflow, applied to the issue."""

    def begin(self, issue: Issue, seed: int) -> None:
        """Make the plan."""
        del seed
        self._plan = iter(Machine(issue).plan)

    def act(self, observation: Observation) -> str:
        """Return the next step of the plan."""
        del observation
        return next(self._plan)


class TrainedPolicy:
    """A model of Stable-Baselines3, without exploration."""

    def __init__(self, model: BaseAlgorithm) -> None:
        self._model = model

    def begin(self, issue: Issue, seed: int) -> None:
        """Note the names of the actions."""
        del seed
        self._names = Machine(issue).workflow.tool_names

    def act(self, observation: Observation) -> str:
        """Return the model's tool."""
        action, _ = self._model.predict(observation, deterministic=True)
        return self._names[int(action)]


class LanguagePolicy:
    """A language model that reads the issue and takes the likeliest tool name."""

    def __init__(self, folder: str) -> None:
        self._model = ChoicePolicy(folder)

    def begin(self, issue: Issue, seed: int) -> None:
        """Open the dialogue."""
        del seed
        self._names = Machine(issue).workflow.tool_names
        self._environment = JiraTextEnv({}, {"payload": {"issue": issue.to_json()}, "max_turns": 100})
        self._messages, _ = self._environment.init([])

    def act(self, observation: Observation) -> str:
        """Return the model's tool, and hear what became of it."""
        del observation
        tool = self._model.choose(self._messages, self._names).best
        answers = [
            Message(role=item["role"], content=item["content"]) for item in self._environment.step(tool)["observations"]
        ]
        self._messages = [*self._messages, Message(role="assistant", content=tool), *answers]
        return tool


def play(environment_id: str, policy: Policy, seeds: range) -> Row:
    """Return what a policy reached in one episode for each seed."""
    environment = gymnasium.make(environment_id)
    inner = environment.unwrapped
    assert isinstance(inner, JiraEnv)
    returns, steps, successes = [], [], 0
    for seed in seeds:
        observation, info = environment.reset(seed=seed)
        policy.begin(next(issue for issue in inner.issues if issue.key == info["issue"]), seed)
        rewards, is_over = [], False
        while not is_over:
            action = inner.action_names.index(policy.act(observation))
            observation, reward, terminated, truncated, info = environment.step(action)
            rewards.append(float(reward))
            is_over = terminated or truncated
        returns.append(sum(rewards))
        steps.append(len(rewards))
        successes += bool(info["is_success"])
    return {
        "environment": environment_id,
        "mean": float(np.mean(returns)),
        "min": min(returns),
        "max": max(returns),
        "success": successes / len(seeds),
        "steps": float(np.mean(steps)),
        "optimum": optimum_of(environment_id),
        "episodes": len(seeds),
        "first_seed": seeds.start,
    }


def policies_for(
    environment_id: str, runs: Path, run_seed: int, models: dict[str, LanguagePolicy]
) -> Iterator[tuple[str, Policy]]:
    """Yield who plays an environment, by name; says which training runs are not there."""
    yield "random", RandomPolicy()
    yield "rule", RulePolicy()
    for algorithm in ALGORITHMS:
        folder = runs / f"{algorithm}-{environment_id.rpartition('/')[2]}-{run_seed}"
        if (folder / "model.zip").is_file():
            yield algorithm, TrainedPolicy(load(folder))
        else:
            print(f"left out: {algorithm} on {environment_id}, there is no {folder}/model.zip")
    yield from models.items()


def to_markdown(rows: list[Row]) -> str:
    """Return the table."""
    lines = [
        "| environment | policy | mean | min | max | optimum | success | steps |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        numbers = " | ".join(f"{row[name]:.3f}" for name in ("mean", "min", "max", "optimum"))
        name = row["environment"].rpartition("/")[2]
        lines.append(f"| {name} | {row['policy']} | {numbers} | {row['success']:.0%} | {row['steps']:.1f} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[Row], path: Path) -> None:
    """Draw the mean returns, with minimum and maximum as whiskers and the optimum as a line."""
    names = list(dict.fromkeys(row["environment"] for row in rows))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3.6), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        chosen = [row for row in rows if row["environment"] == name]
        means = np.array([row["mean"] for row in chosen])
        spread = np.array([[row["mean"] - row["min"] for row in chosen], [row["max"] - row["mean"] for row in chosen]])
        axis.bar([row["policy"] for row in chosen], means, yerr=spread.clip(min=0.0), capsize=3, color="#4c78a8")
        axis.axhline(chosen[0]["optimum"], color="#333333", linestyle="--", linewidth=1)
        axis.axhline(0.0, color="#333333", linewidth=0.5)
        axis.set_title(name.rpartition("/")[2], fontsize=10)
        axis.tick_params(axis="x", rotation=30)
    axes[0][0].set_ylabel("return (dashed: optimum)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    """Compare and write the three files."""
    parser = argparse.ArgumentParser(description="Compare policies on the Jira environments.")
    parser.add_argument("--env", nargs="*", choices=ENVIRONMENT_IDS, default=list(ENVIRONMENT_IDS))
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--seed", type=int, default=50_000, help="of the first episode")
    parser.add_argument("--runs", type=Path, default=Path("runs/jira"))
    parser.add_argument("--run-seed", type=int, default=0, help="--seed of the training runs")
    parser.add_argument("--untrained", default="", help="folder of the language model before GRPO")
    parser.add_argument("--trained", default="", help="folder of the language model after GRPO (skyrl-nat export)")
    parser.add_argument("--out", type=Path, default=Path("runs/jira/comparison"))
    given = parser.parse_args()
    folders = {"untrained": given.untrained, "grpo": given.trained}
    models = {name: LanguagePolicy(folder) for name, folder in folders.items() if folder}
    seeds = range(given.seed, given.seed + given.episodes)
    rows = [
        {"policy": name, **play(environment_id, policy, seeds)}
        for environment_id in given.env
        for name, policy in policies_for(environment_id, given.runs, given.run_seed, models)
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "comparison.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    (given.out / "comparison.md").write_text(to_markdown(rows), encoding="utf-8")
    plot(rows, given.out / "comparison.png")
    print(to_markdown(rows))


if __name__ == "__main__":
    main()
