"""A whole training run in one process, without Ray: a tiny Llama learns answers that are known.

Config, update, policy and reference are the real ones. Tokens are drawn by a plain transformers model that takes the
policy's weights after every batch, and its log-probs are recorded as an engine's are.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from policy_ranks import free_port
from tiny_model import make_tiny_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from skyrl_nat.batching.advantages import has_signal
from skyrl_nat.cluster.group import BaseModelCalls
from skyrl_nat.config.algorithm import DynamicSampling
from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.update import Coefficients, update_policy
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task
from skyrl_nat.workers.base import ModelWorker
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.reference import ReferenceWorker

VOCABULARY = 8
ANSWERS = {(2, 1): (1, 1, 1), (1, 2): (2, 2, 2, 2), (2, 3): (3, 3, 3, 3), (3, 4): (4, 4, 4)}
"""Right answer by prompt: its last token, again and again, at two lengths."""
LONGEST = max(len(answer) for answer in ANSWERS.values())
NUM_ROLLOUTS = 16
SEED = 1
DEFAULTS = (
    "optimizer.lr=3e-3",
    f"trainer.tasks_per_step={len(ANSWERS)}",
    f"trainer.rollouts_per_task={NUM_ROLLOUTS}",
)


def make_toy_model(folder: Path) -> Path:
    """Write a random one-layer Llama of 8 tokens and width 16; return the folder. The tokenizer is not read."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
        tie_word_embeddings=False,
        initializer_range=0.2,
        dtype=torch.float32,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        LlamaForCausalLM(config).save_pretrained(folder)
    make_tiny_tokenizer().save_pretrained(folder)
    return folder


class Sampler:
    """The engine of a toy run: plain transformers, one forward pass of all rows per token."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.generator = torch.Generator().manual_seed(SEED)

    def load(self, weights: dict[str, Tensor]) -> None:
        """Take the policy's weights; names and shapes must be those of the model."""
        self.model.load_state_dict(weights)

    @torch.inference_mode()
    def sample(self, num_rollouts: int) -> dict[tuple[int, int], tuple[Tensor, Tensor]]:
        """Return tokens `[R, LONGEST]` and their log-probs for every prompt."""
        prompts = torch.tensor(list(ANSWERS)).repeat_interleave(num_rollouts, dim=0)
        ids, columns = prompts, []
        for _ in range(LONGEST):
            logprobs = self.model(ids, use_cache=False, logits_to_keep=1).logits[:, -1].log_softmax(-1)
            token = torch.multinomial(logprobs.exp(), 1, generator=self.generator)
            columns.append(logprobs.gather(1, token))
            ids = torch.cat([ids, token], dim=1)
        tokens, picked = ids[:, 2:].split(num_rollouts), torch.cat(columns, dim=1).split(num_rollouts)
        return {prompt: (tokens[i], picked[i]) for i, prompt in enumerate(ANSWERS)}

    @torch.inference_mode()
    def score(self, prompt: tuple[int, int], answer: Sequence[int]) -> list[float]:
        """Return the log-prob of every token of an answer."""
        ids = torch.tensor([[*prompt, *answer]])
        logprobs = self.model(ids, use_cache=False).logits[0, 1:-1].log_softmax(-1)
        return logprobs.gather(1, ids[0, 2:, None])[:, 0].tolist()

    def play(self, index: int, num_rollouts: int = NUM_ROLLOUTS) -> list[RolloutGroup]:
        """Return one sampled and scored group per prompt; `index` is the place of the first in the stream."""
        groups = []
        for place, (prompt, (tokens, logprobs)) in enumerate(self.sample(num_rollouts).items(), index):
            length = len(ANSWERS[prompt])
            rows = zip(tokens[:, :length].tolist(), logprobs[:, :length].tolist(), strict=True)
            rollouts = [make_rollout(f"{place}-{i}", prompt, *row) for i, row in enumerate(rows)]
            groups.append(RolloutGroup(task=rollouts[0].task, index=place, rollouts=rollouts))
        return groups

    def demonstrate(self, num_rollouts: int = NUM_ROLLOUTS) -> list[RolloutGroup]:
        """Return one group of right answers per prompt, with the log-probs that they have now."""
        groups = []
        for place, (prompt, answer) in enumerate(ANSWERS.items()):
            logprobs = self.score(prompt, answer)
            rollouts = [make_rollout(f"right-{place}-{i}", prompt, answer, logprobs) for i in range(num_rollouts)]
            groups.append(RolloutGroup(task=rollouts[0].task, index=place, rollouts=rollouts))
        return groups

    def mean_log_ratio(self, rollouts: Sequence[Rollout]) -> float:
        """Return the mean over rollouts of log-prob now minus log-prob when recorded, in nats per rollout."""
        changes = []
        for rollout in rollouts:
            first, second, *answer = rollout.token_ids
            changes.append(sum(self.score((first, second), answer)) - sum(rollout.rollout_logprobs))
        return _mean(changes)


def make_rollout(name: str, prompt: tuple[int, int], tokens: Sequence[int], logprobs: Sequence[float]) -> Rollout:
    """Return a scored rollout: the reward is the share of right tokens, and success is all of them."""
    answer = ANSWERS[prompt]
    reward = sum(found == right for found, right in zip(tokens, answer, strict=True)) / len(answer)
    return Rollout(
        rollout_id=name,
        task=Task(task_id=f"{prompt[0]}{prompt[1]}", family="toy", payload={}),
        token_ids=[*prompt, *tokens],
        loss_mask=[False, False] + [True] * len(tokens),
        rollout_logprobs=[0.0, 0.0, *logprobs],
        token_versions=[-1, -1] + [0] * len(tokens),
        turns=[],
        prompt=[],
        outcome=Outcome.FINISHED,
        reward=RewardResult(total=reward, parts={}, is_success=reward == 1.0),
    )


@dataclass
class LocalRank:
    """One rank as a worker group: calls happen here and now."""

    worker: ModelWorker
    size: int = 1

    async def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call the worker with the arguments of the only rank."""
        (only,) = arguments
        return [getattr(self.worker, method)(*only)]


@dataclass
class ToyRun:
    """What `update_policy` needs of a run, and the engine."""

    config: RunConfig
    policy: LocalRank
    reference: LocalRank | BaseModelCalls | None
    sampler: Sampler
    coefficients: Coefficients
    step: int = 0

    def play(self) -> list[RolloutGroup]:
        """Return a batch of the policy as it is now; flat groups are left out where the config says so."""
        groups = self.sampler.play(self.step * len(ANSWERS))
        if self.config.algorithm.dynamic_sampling is not DynamicSampling.filter:
            return groups
        # A real run plays on until a group tells something; at the optimum none ever would.
        return [group for group in groups if has_signal(group, self.config.algorithm)] or groups

    def mean_reward(self) -> float:
        """Return the mean reward of a fresh sample of 64 rollouts per prompt."""
        return _mean([rollout.reward.total for rollout in self._fresh()])

    def success_rate(self) -> float:
        """Return the share of a fresh sample that is right from beginning to end."""
        return _mean([rollout.reward.is_success for rollout in self._fresh()])

    def _fresh(self) -> list[Rollout]:
        return [rollout for group in self.sampler.play(0, 64) for rollout in group.rollouts]


@contextmanager
def open_run(folder: Path, *overrides: str) -> Iterator[ToyRun]:
    """Open a run on the model in a folder, with `load_config`'s overrides; its workers are closed at the end."""
    config = load_config([*DEFAULTS, f"model.path={folder}", *overrides])
    policy = PolicyWorker(
        optimizer=config.optimizer, algorithm=config.algorithm, total_steps=300, **_common_settings(config)
    )
    has_own = config.algorithm.needs_reference and not config.model.lora.rank
    reference = ReferenceWorker(**_common_settings(config)) if has_own else None
    workers = [policy, reference] if reference else [policy]
    try:
        for worker in workers:
            worker.init_process_group(0, 1, "127.0.0.1", free_port(), 60)
            worker.build()
        yield ToyRun(
            config=config,
            policy=LocalRank(policy),
            reference=_reference_of(config, policy, reference),
            sampler=Sampler(folder),
            coefficients=Coefficients(config.algorithm.kl_coefficient, config.algorithm.entropy_coefficient),
        )
    finally:
        for worker in workers:
            worker.close()


def train(run: ToyRun, num_steps: int, recorded: Sequence[RolloutGroup] = ()) -> list[dict[str, float]]:
    """Do that many optimizer steps, with new weights for the engine after every batch; return a batch's metrics each.

    Args:
        run: Opened.
        num_steps: A multiple of `trainer.updates_per_batch`.
        recorded: Groups to learn from in the place of sampled ones.
    """
    return asyncio.run(_train(run, num_steps // run.config.trainer.updates_per_batch, recorded))


async def _train(run: ToyRun, num_batches: int, recorded: Sequence[RolloutGroup]) -> list[dict[str, float]]:
    history = []
    for _ in range(num_batches):
        history.append(await update_policy(run, recorded or run.play()))
        run.sampler.load(run.policy.worker.export_weights())
        run.step += 1
    return history


def _reference_of(
    config: RunConfig, policy: PolicyWorker, own: ReferenceWorker | None
) -> LocalRank | BaseModelCalls | None:
    if own is None and config.algorithm.needs_reference:
        return BaseModelCalls(LocalRank(policy))  # pyright: ignore[reportArgumentType]
    return LocalRank(own) if own else None


def _common_settings(config: RunConfig) -> dict[str, Any]:
    return {
        "model_path": config.model.path,
        "model": config.model,
        "device": "cpu",
        "temperature": config.rollout.temperature,
        "num_threads": 1,
        "seed": config.seed,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
