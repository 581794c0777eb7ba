"""Every rollout as one JSON line: all turns, the reward's parts, the outcome."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.types import Rollout, RolloutGroup


class RolloutRecorder:
    """Writes `<folder>/<label>_<step>.jsonl`; a step played again after a resume replaces its file."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if needed."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, groups: Sequence[RolloutGroup], label: str = "train") -> Path:
        """Write all rollouts of one batch and return the file's path."""
        path = self._folder / f"{label}_{step:06d}.jsonl"
        lines = [rollout_record(rollout, group.index) for group in groups for rollout in group.rollouts]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        part = path.with_suffix(".part")
        # A lone surrogate in model text must not lose the batch; it becomes U+FFFD.
        part.write_text(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), encoding="utf-8")
        part.replace(path)
        return path


def rollout_record(rollout: Rollout, index: int) -> dict[str, Any]:
    """Return what is logged of one rollout: text, tokens' versions as a range, reward, outcome."""
    reward = rollout.reward
    return {
        "rollout_id": rollout.rollout_id,
        "task_id": rollout.task.task_id,
        "index": index,
        "difficulty": rollout.task.difficulty,
        "outcome": str(rollout.outcome),
        "reason": rollout.reason,
        "reward": None if reward is None else reward.total,
        "reward_parts": {} if reward is None else reward.parts,
        "is_success": reward is not None and reward.is_success,
        "is_by_turn": reward is not None and reward.is_by_turn,
        "findings": [] if reward is None else reward.findings,
        "suspicions": [] if reward is None else reward.suspicions,
        "stages": [] if reward is None else [dataclasses.asdict(stage) for stage in reward.stages],
        "num_tokens": len(rollout.token_ids),
        "num_loss_tokens": rollout.num_loss_tokens,
        "oldest_version": rollout.oldest_version,
        "newest_version": max(rollout.token_versions, default=-1),
        "prompt": rollout.prompt,
        "turns": [
            {
                "completion": turn.completion_text,
                "observations": turn.observations,
                "num_prompt_tokens": turn.num_prompt_tokens,
                "num_completion_tokens": turn.num_completion_tokens,
                "finish_reason": str(turn.finish_reason),
                "generate_s": round(turn.generate_s, 4),
                "environment_s": round(turn.environment_s, 4),
                "reward": turn.reward,
            }
            for turn in rollout.turns
        ],
        "metrics": rollout.metrics,
        "segment_starts": rollout.segment_starts,
        "token_ids": rollout.token_ids,
        "loss_mask": "".join("1" if bit else "0" for bit in rollout.loss_mask),
        "rollout_logprobs": [
            round(value, 6)
            for value, sampled in zip(rollout.rollout_logprobs, rollout.loss_mask, strict=True)
            if sampled
        ],
    }
