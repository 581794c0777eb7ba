"""One TRL GRPOTrainer run on the benchmark's work; prints one JSON line. Started by `cpu_step.py`.

usage: trl_step.py MODEL_FOLDER NUM_STEPS      (needs the packages of benchmarks/requirements.txt)
"""

import json
import sys
import tempfile
import time

import torch
from datasets import Dataset
from story_family import SUBJECTS, prompt, share_of_vowels
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class StepClock(TrainerCallback):
    """Notes how long each training step takes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0

    def on_step_begin(self, *arguments: object, **keywords: object) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, *arguments: object, **keywords: object) -> None:
        """Stop it."""
        self.seconds.append(time.perf_counter() - self._started)


REWARD_S: list[float] = []


def reward(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """Score completions as the benchmark's own family does."""
    started = time.perf_counter()
    rewards = [share_of_vowels(completion[0]["content"]) for completion in completions]
    REWARD_S.append(time.perf_counter() - started)
    return rewards


def main(model: str, num_steps: int) -> None:
    """Train and print seconds per step and its generation share."""
    torch.set_num_threads(2)
    clock, generation = StepClock(), []
    rows = [{"prompt": [{"role": "user", "content": prompt(subject)}]} for subject in SUBJECTS] * num_steps
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=64,
        max_steps=num_steps,
        beta=0.0,
        learning_rate=1e-6,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        seed=0,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, args=config, train_dataset=Dataset.from_list(rows), callbacks=[clock]
    )
    generate = trainer._generate_and_score_completions

    def timed(*arguments: object, **keywords: object) -> object:
        started = time.perf_counter()
        result = generate(*arguments, **keywords)
        generation.append(time.perf_counter() - started)
        return result

    trainer._generate_and_score_completions = timed
    trainer.train()
    lengths = [
        entry["completions/mean_length"] for entry in trainer.state.log_history if "completions/mean_length" in entry
    ]
    print(
        json.dumps(
            {"step_s": clock.seconds, "generation_s": generation, "reward_s": REWARD_S, "completion_tokens": lengths}
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
