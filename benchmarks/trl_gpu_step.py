"""One TRL GRPOTrainer run with colocated vLLM on a GPU; prints one JSON line. Started by `against_peers.py`.

usage: trl_gpu_step.py MODEL_FOLDER [--tasks 64] [--rollouts 8] [--tokens 256] [--steps 4] [--micro-batch 32]
       [--checkpointing]                      (needs the packages of benchmarks/requirements.txt)
"""

import argparse
import json
import os
import tempfile

import torch
from bars import add_work
from datasets import Dataset
from story_family import SUBJECTS, prompt
from trl import GRPOConfig, GRPOTrainer
from trl_step import StepClock, reward


def main() -> None:
    """Train and print seconds per step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=32, help="sequences")
    parser.add_argument("--checkpointing", action="store_true")
    options = parser.parse_args()
    os.environ |= {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29811",
    }
    clock = StepClock()
    # Everybody gets the same number of prompts a step; numbers make them different ones.
    rows = [
        {"prompt": [{"role": "user", "content": prompt(f"{SUBJECTS[number % len(SUBJECTS)]}, part {number}")}]}
        for number in range(options.tasks * (options.steps + 1))
    ]
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        bf16=True,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=options.tasks * options.rollouts // options.micro_batch,
        num_generations=options.rollouts,
        max_completion_length=options.tokens,
        max_steps=options.steps + 1,
        beta=0.0,
        learning_rate=1e-6,
        gradient_checkpointing=options.checkpointing,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.4,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        seed=0,
        model_init_kwargs={"dtype": "float32"},
    )
    trainer = GRPOTrainer(
        model=options.model, reward_funcs=reward, args=config, train_dataset=Dataset.from_list(rows), callbacks=[clock]
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "completions/mean_length" in entry]
    found = {
        "step_s": clock.seconds,
        "completion_tokens": [entry["completions/mean_length"] for entry in history],
        "logprob_difference": [entry.get("sampling/sampling_logp_difference/mean") for entry in history],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
