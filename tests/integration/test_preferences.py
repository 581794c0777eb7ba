"""Training on recorded dialogues from a file: preferences and groups move a policy also where it was shown nothing."""

import asyncio
import json
import random
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import make_tiny_model
from toy_run import ToyRun, open_run, train

from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.recorded import RecordedGroups
from skyrl_nat.types import Rollout, RolloutGroup

NUM_TRAINED, NUM_HELD_OUT, NUM_STEPS = 24, 24, 30
LORA = ("model.lora.rank=8", "optimizer.lr=1e-2")
RECORDED = "environment.recorded_files=[rows.jsonl]"


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), hidden_size=64, tie_word_embeddings=False)


def rows(first: int, count: int, **verdicts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return a good and a bad completion for every prompt: only their last sign differs."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghij", k=4)) for _ in range(first + count)][first:]
    return [
        {
            "prompt": [{"role": "user", "content": f"say {word}"}],
            "completion": f"run {word}{sign}",
            "task_id": word,
            **{name: pair[number] for name, pair in verdicts.items()},
        }
        for word in words
        for number, sign in enumerate("!?")
    ]


def read(path: Path, found: list[dict[str, Any]], folder: Path) -> list[RolloutGroup]:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    recorded = RecordedGroups.read([path], lambda: ChatCodec.from_folder(folder))
    assert recorded is not None
    return [asyncio.run(recorded.play(task, index)) for index, task in enumerate(recorded.tasks)]


@torch.inference_mode()
def logprob(run: ToyRun, rollout: Rollout) -> float:
    ids = torch.tensor([rollout.token_ids])
    logprobs = run.sampler.model(ids, use_cache=False).logits[0, :-1].log_softmax(-1)
    picked = logprobs.gather(1, ids[0, 1:, None])[:, 0]
    return float(picked[torch.tensor(rollout.loss_mask[1:])].sum())


def margins(run: ToyRun, groups: list[RolloutGroup]) -> list[float]:
    """Return for every prompt how much likelier its good completion is than its bad one, in nats."""
    return [logprob(run, group.rollouts[0]) - logprob(run, group.rollouts[1]) for group in groups]


def sign_test(differences: Sequence[float]) -> float:
    """Return the one-sided probability of so many positive differences by chance."""
    wins, total = sum(value > 0 for value in differences), len(differences)
    return sum(comb(total, number) for number in range(wins, total + 1)) / 2**total


@pytest.mark.parametrize(
    ("overrides", "verdicts"),
    [
        (("algorithm=kto",), {"label": (True, False)}),
        (("algorithm=offline_grpo",), {"reward": (1.0, 0.0)}),
        (("algorithm=kto", *LORA), {"label": (True, False)}),
        (("algorithm=offline_grpo", *LORA), {"reward": (1.0, 0.0)}),
    ],
    ids=["kto", "offline_grpo", "kto, LoRA", "offline_grpo, LoRA"],
)
def test_good_completions_gain_over_bad_ones_on_prompts_that_were_not_trained(
    folder: Path, tmp_path: Path, overrides: tuple[str, ...], verdicts: dict[str, Any]
) -> None:
    trained = read(tmp_path / "trained.jsonl", rows(0, NUM_TRAINED, **verdicts), folder)
    held_out = read(tmp_path / "held_out.jsonl", rows(NUM_TRAINED, NUM_HELD_OUT, **verdicts), folder)
    assert not {group.task.task_id.rpartition("/")[2] for group in trained} & {
        group.task.task_id.rpartition("/")[2] for group in held_out
    }
    with open_run(folder, *overrides, RECORDED) as run:
        before = margins(run, held_out)
        history = train(run, NUM_STEPS, trained)
        gained = [after - start for after, start in zip(margins(run, held_out), before, strict=True)]
    assert all(metrics["loss/grad_norm"] > 0 for metrics in history)
    assert sign_test(gained) < 0.01
    assert sum(gained) / len(gained) > 1.0


def test_swapped_labels_teach_the_opposite(folder: Path, tmp_path: Path) -> None:
    """The control: what is gained comes from the labels."""
    swapped = read(tmp_path / "trained.jsonl", rows(0, NUM_TRAINED, label=(False, True)), folder)
    held_out = read(tmp_path / "held_out.jsonl", rows(NUM_TRAINED, NUM_HELD_OUT, label=(True, False)), folder)
    with open_run(folder, "algorithm=kto", RECORDED) as run:
        before = margins(run, held_out)
        train(run, NUM_STEPS, swapped)
        lost = [start - after for after, start in zip(margins(run, held_out), before, strict=True)]
    assert sign_test(lost) < 0.01
