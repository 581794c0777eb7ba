"""Stable-Baselines3 on the Jira environments: what `train_ppo.py` and `train_dqn.py` share."""

import argparse
import datetime
import importlib.metadata
import json
import platform
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import (
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv

from skyrl_nat.environments.jira.env import ENVIRONMENT_IDS, JiraEnv
from skyrl_nat.environments.jira.optimum import optimal_return

NUM_ENVIRONMENTS = 8
NUM_EPISODES = 24
"""Episodes of the last evaluation, which the metadata tell of."""
EVALUATE_EVERY = 2_000
"""Steps over all environments between evaluations; checkpoints come ten times as seldom."""
TOLERANCE = 1e-6
ALGORITHMS: dict[str, type[BaseAlgorithm]] = {"ppo": PPO, "dqn": DQN}
# PPO needs much entropy: with little it stays with the first few right steps, where the next wrong one costs more than
# it has learned to earn. 0.2 reached the optimum in 21 of 21 runs (7 seeds), 0.01 in 0 of 3 (seed 0).
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"learning_rate": 1e-3, "n_steps": 64, "batch_size": 128, "n_epochs": 10, "gamma": 0.99, "ent_coef": 0.2},
    "dqn": {
        "learning_rate": 1e-3,
        "buffer_size": 50_000,
        "learning_starts": 1_000,
        "batch_size": 64,
        "train_freq": 1,
        "gradient_steps": 4,
        "target_update_interval": 500,
        "exploration_fraction": 0.4,
        "exploration_final_eps": 0.05,
        "gamma": 0.99,
    },
}
PACKAGES = ("skyrl-nat", "gymnasium", "stable-baselines3", "torch", "numpy")


def main(algorithm: str, default_timesteps: int) -> None:
    """Read the command line, train and print the metadata."""
    parser = argparse.ArgumentParser(description=f"Train {algorithm.upper()} on a Jira environment.")
    parser.add_argument("--env", choices=ENVIRONMENT_IDS, default=ENVIRONMENT_IDS[0])
    parser.add_argument("--timesteps", type=int, default=default_timesteps, help="at most; the optimum ends it earlier")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="folder (default: runs/jira/<algorithm>-<env>-<seed>)")
    given = parser.parse_args()
    out = given.out or Path("runs/jira") / f"{algorithm}-{given.env.rpartition('/')[2]}-{given.seed}"
    print(json.dumps(train(algorithm, given.env, timesteps=given.timesteps, seed=given.seed, out=out), indent=2))


def train(algorithm: str, environment_id: str, *, timesteps: int, seed: int, out: Path) -> dict[str, Any]:
    """Train until an evaluation has the optimal return or the steps are used up, and return the metadata.

    Args:
        algorithm: Key of `ALGORITHMS`.
        environment_id: One of `ENVIRONMENT_IDS`.
        timesteps: Steps over all environments at most.
        seed: Of environments, exploration and weights.
        out: Gets `model.zip`, `best_model.zip`, `checkpoints/`, `evaluations.npz`, `tensorboard/` and `metadata.json`.
    """
    torch.set_num_threads(1)  # the networks are tiny
    out.mkdir(parents=True, exist_ok=True)
    optimum = optimum_of(environment_id)
    environments = make_environments(environment_id, NUM_ENVIRONMENTS, seed)
    judges = make_environments(environment_id, 1, seed + 10_000)
    model = ALGORITHMS[algorithm](
        "MlpPolicy",
        environments,
        seed=seed,
        device="cpu",
        tensorboard_log=str(out / "tensorboard"),
        policy_kwargs={"net_arch": [64, 64]},
        **SETTINGS[algorithm],
    )
    started = time.monotonic()
    model.learn(timesteps, callback=_callbacks(judges, out, optimum), tb_log_name=algorithm)
    seconds = time.monotonic() - started
    model.save(out / "model.zip")
    rewards = returns_of(model, judges)
    metadata = {
        "algorithm": algorithm,
        "environment": environment_id,
        "seed": seed,
        "steps": model.num_timesteps,
        "steps_at_most": timesteps,
        "seconds": round(seconds, 1),
        "episodes": len(rewards),
        "reward_mean": float(np.mean(rewards)),
        "reward_min": float(np.min(rewards)),
        "reward_max": float(np.max(rewards)),
        "optimal_return": optimum,
        "is_optimal": bool(np.min(rewards) >= optimum - TOLERANCE),
        "settings": SETTINGS[algorithm],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }
    (out / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    environments.close()
    judges.close()
    return metadata


def make_environments(environment_id: str, num_environments: int, seed: int) -> VecEnv:
    """Return environments that are stepped together, each with a seed of its own and a Monitor around it."""
    return make_vec_env(environment_id, n_envs=num_environments, seed=seed, env_kwargs={"render_mode": None})


def optimum_of(environment_id: str) -> float:
    """Return the lowest of the optimal returns of an environment's issues, by exact search."""
    environment = gymnasium.make(environment_id).unwrapped
    assert isinstance(environment, JiraEnv)
    return min(optimal_return(issue, environment.max_steps) for issue in environment.issues)


def returns_of(model: BaseAlgorithm, environments: VecEnv) -> list[float]:
    """Return the sum of rewards of each of `NUM_EPISODES` episodes, played without exploration."""
    rewards, _ = evaluate_policy(
        model, environments, n_eval_episodes=NUM_EPISODES, deterministic=True, return_episode_rewards=True
    )
    return [float(reward) for reward in rewards]


def load(folder: Path) -> BaseAlgorithm:
    """Return the model that `train` left in a folder."""
    algorithm = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))["algorithm"]
    return ALGORITHMS[algorithm].load(folder / "model.zip", device="cpu")


def _callbacks(judges: VecEnv, out: Path, optimum: float) -> CallbackList:
    every = EVALUATE_EVERY // NUM_ENVIRONMENTS  # callbacks count steps of one environment
    evaluation = EvalCallback(
        judges,
        callback_on_new_best=StopTrainingOnRewardThreshold(optimum - TOLERANCE),
        n_eval_episodes=8,
        eval_freq=every,
        log_path=str(out),
        best_model_save_path=str(out),
        verbose=0,
    )
    return CallbackList([evaluation, CheckpointCallback(10 * every, str(out / "checkpoints"))])
