"""Run folders as the dashboard reads them, written by the trainer's own writers; no model is trained."""

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tiny_model import make_tiny_tokenizer

from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.monitoring.tracker import JsonlBackend
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.recorder import RolloutRecorder
from skyrl_nat.types import FinishReason, Message, Outcome, RewardResult, Rollout, RolloutGroup, StageReport, Task, Turn

HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"> \u202e é 🙂'
PROMPT: list[Message] = [
    {"role": "system", "content": "You close tickets."},
    {"role": "user", "content": "WEB-11 is Open.\nAnswer with one tool."},
]
DONE: list[Message] = [{"role": "user", "content": "The issue was read."}]
WIDTH = 0.25


@cache
def codec() -> ChatCodec:
    """Return the codec of the tiny model."""
    return ChatCodec(make_tiny_tokenizer())


def dialogue(
    name: str, texts: Sequence[str], reward: float | None, *, outcome: Outcome = Outcome.FINISHED, version: int = 0
) -> Rollout:
    """Return a rollout in which the policy said these texts, each closed by the end token."""
    tokens, mask, turns = codec().prompt_tokens(PROMPT), [], []
    mask = [False] * len(tokens)
    for number, text in enumerate(texts):
        said = [*codec().encode(text), codec().eos_token_id]
        turns.append(_turn(text, len(tokens), len(said)))
        tokens, mask = tokens + said, mask + [True] * len(said)
        if number + 1 < len(texts):
            told = codec().continuation_tokens(DONE)
            tokens, mask = tokens + told, mask + [False] * len(told)
    return Rollout(
        rollout_id=name,
        task=Task(task_id="WEB-11", family="jira", payload={}),
        token_ids=tokens,
        loss_mask=mask,
        rollout_logprobs=[-WIDTH * (place % 7) if bit else 0.0 for place, bit in enumerate(mask)],
        token_versions=[version if bit else -1 for bit in mask],
        turns=turns,
        prompt=PROMPT,
        outcome=outcome,
        reason="" if outcome is Outcome.FINISHED else "turn limit",
        reward=None if reward is None else _verdict(reward),
    )


def _turn(text: str, num_prompt: int, num_said: int) -> Turn:
    return Turn(
        completion_text=text,
        observations=DONE,
        num_prompt_tokens=num_prompt,
        num_completion_tokens=num_said,
        finish_reason=FinishReason.STOP,
        generate_s=0.5,
        environment_s=0.01,
        reward=0.0,
    )


def _verdict(total: float) -> RewardResult:
    is_success = total >= 1.0
    evidence = "" if is_success else "not used: resolve_issue, close_issue"
    return RewardResult(
        total=total,
        parts={"progress": min(1.0, total + WIDTH), "verdict": float(is_success), "economy": 1.0},
        is_success=is_success,
        findings=[] if is_success else [evidence],
        stages=[
            StageReport(name="order", is_ok=True, seconds=0.002),
            StageReport(name="final_state", is_ok=is_success, seconds=0.004, evidence=evidence),
        ],
    )


def groups_of(step: int) -> list[RolloutGroup]:
    """Return two groups of which each outcome that matters has one rollout."""
    version = step - 1
    first = [
        dialogue(f"{step}-0-0", ["get_issue", "close_issue"], 1.0, version=version),
        dialogue(f"{step}-0-1", ["close_issue"], 0.25, version=version),
        dialogue(f"{step}-0-2", [HOSTILE, "get_issue"], 0.5, version=version),
    ]
    second = [
        dialogue(f"{step}-1-0", ["get_issue"] * 4, 0.5, outcome=Outcome.TRUNCATED, version=version),
        dialogue(f"{step}-1-1", [], None, outcome=Outcome.INFRASTRUCTURE_FAILURE, version=version),
    ]
    return [
        RolloutGroup(task=rollouts[0].task, index=2 * step + place, rollouts=rollouts)
        for place, rollouts in enumerate([first, second])
    ]


def trained(groups: Sequence[RolloutGroup]) -> dict[str, Any]:
    """Return columns as `batching.trained` makes them; every third token is clipped."""
    rollouts = [rollout for group in groups for rollout in group.valid_rollouts]
    sizes = [rollout.num_loss_tokens for rollout in rollouts]
    total = sum(sizes)
    return {
        "sample_ids": np.array([rollout.rollout_id for rollout in rollouts]),
        "sizes": np.array(sizes),
        "logprobs": np.linspace(-1.0, -0.5, total, dtype=np.float32),
        "advantages": np.repeat([(-1.0) ** place for place in range(len(sizes))], sizes).astype(np.float32),
        "clipped": np.arange(total) % 3 == 0,
    }


def metrics_of(step: int, slope: float) -> dict[str, float]:
    """Return the figures of one step."""
    shares = {"rollout": 0.4, "train": 0.3, "push": 0.05, "offload": 0.0, "idle": 0.25}
    return {
        "rollout/reward/mean": 0.3 + slope * (1 - math.exp(-step / 6)),
        "rollout/success/mean": slope * (1 - math.exp(-step / 9)),
        "loss/total": 0.1 / step,
        "loss/grad_norm": math.nan if step == 3 else 1.0 + 1.0 / step,
        "loss/token_entropy": 2.0 * math.exp(-step / 8) + 0.1,
        "loss/clip_fraction": 0.02 * (step % 3),
        "time/step_s": 2.0 + 0.1 * (step % 4),
        "time/train_s": 0.6,
        "gpu/count": 2.0,
        "alarm/count": 0.0,
        **{f"gpu/{part}/share": share for part, share in shares.items()},
    }


def write_run(root: Path, name: str, *, steps: int = 8, slope: float = 0.5, records_tokens: bool = True) -> Path:
    """Write a run of Jira dialogues and return its folder."""
    folder = root / name
    folder.mkdir(parents=True)
    overrides = [f"name={name}", f"root_dir={root}", "environment=jira", f"trainer.steps={steps}", "optimizer.lr=1e-4"]
    save_config(load_config([*overrides, f"seed={len(name)}"]), folder / "config.yaml")
    (folder / "versions.json").write_text(json.dumps({"python": "3.11", "torch": "2.11"}))
    (folder / "batch_plan.json").write_text(json.dumps({"steps": steps}))
    (folder / "tokenizer.json").write_text(make_tiny_tokenizer().backend_tokenizer.to_str())
    record, recorder = JsonlBackend(folder), RolloutRecorder(folder / "rollouts")
    for step in range(1, steps + 1):
        groups = groups_of(step)
        recorder.write(step, groups)
        if records_tokens:
            recorder.write_trained(step, trained(groups))
        record.log(step, metrics_of(step, slope))
    recorder.write(steps, groups_of(steps), label="eval")
    record.log(steps, {"eval/rollout/reward/mean": 0.75})
    record.close()
    return folder
