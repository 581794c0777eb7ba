"""Dialogues as text, such as imitation episodes and preference sets, become recorded rollouts.

A row has `messages` (a dialogue whose assistant messages are learned), or a `prompt` (whose assistant messages are not)
and what follows it: a `completion`, or `messages`. `label` (true, false) or `reward` (0 to 1) says how good it is;
without either it counts as good. Rows with the same `task_id` form a group. `loss` and old log-probs are the trainer's
own: a text has none.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import FinishReason, Message, Outcome, RewardResult, Rollout, Task, Turn

SUCCESS_FROM = 0.5
"""A reward that makes a row without label a good one."""
ROLES = ("system", "user", "assistant", "tool")


def is_dialogue(row: Mapping[str, Any]) -> bool:
    """Return whether a row is text, and not a rollout that was recorded with its tokens."""
    return "token_ids" not in row and ("messages" in row or "completion" in row)


def rows_of_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file; `messages` and `prompt` may be JSON text.

    Raises:
        DataError: The file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    yield {name: _plain(value) for name, value in row.items() if value is not None}
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"Recorded file {path} must be a readable parquet file: {error}. Check the path") from error


def group_of(row: Mapping[str, Any], number: int) -> str:
    """Return what names the group of a row: its task, else the row itself."""
    return str(row.get("task_id") or f"row{number}")


def rollout_of_dialogue(row: Mapping[str, Any], rollout_id: str, codec: ChatCodec) -> Rollout:
    """Return a row as a rollout without log-probs of its own.

    Raises:
        ValueError: The dialogue does not alternate as it must, or the reward is no number from 0 to 1.
    """
    prompt, answers = _split(row)
    token_ids, mask = list(codec.prompt_tokens(prompt)), []
    mask += [False] * len(token_ids)
    turns: list[Turn] = []
    for text, observations in answers:
        sampled = [*codec.encode(text), codec.eos_token_id]
        between = codec.continuation_tokens(observations) if observations else []
        turns.append(_turn(text, observations, len(token_ids), len(sampled)))
        token_ids += [*sampled, *between]
        mask += [True] * len(sampled) + [False] * len(between)
    total, is_success = _reward(row)
    return Rollout(
        rollout_id=rollout_id,
        task=Task(task_id=group_of(row, 0), family="recorded", payload={}),
        token_ids=token_ids,
        loss_mask=mask,
        rollout_logprobs=[0.0] * len(mask),
        token_versions=[-1] * len(mask),
        turns=turns,
        prompt=prompt,
        outcome=Outcome.FINISHED,
        reward=RewardResult(total=total, parts={"recorded": total}, is_success=is_success),
    )


Answers = list[tuple[str, list[Message]]]


def _split(row: Mapping[str, Any]) -> tuple[list[Message], Answers]:
    """Return the prompt, and every answer to learn with what was said after it."""
    if "completion" in row:
        return _messages(row["prompt"]), [(_text(row["completion"]), [])]
    prompt = _messages(row["prompt"]) if "prompt" in row else []
    messages = [*prompt, *_messages(row["messages"])]
    learned = range(len(prompt), len(messages))
    first = next((i for i in learned if messages[i]["role"] == "assistant"), None)
    if not first or messages[-1]["role"] != "assistant":
        raise ValueError("messages must open with a prompt and end with an assistant message")
    answers: Answers = []
    for message in messages[first:]:
        if message["role"] != "assistant":
            answers[-1][1].append(message)
        elif answers and not answers[-1][1]:
            raise ValueError("two assistant messages must not follow each other")
        else:
            answers.append((message["content"], []))
    return messages[:first], answers


def _messages(value: Any) -> list[Message]:
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, Sequence) or not items:
        raise ValueError(f"messages must be a list with at least one message, got {str(value)[:60]!r}")
    for item in items:
        if item["role"] not in ROLES:
            raise ValueError(f"a role must be one of {', '.join(ROLES)}, got {item['role']!r}")
    return [{"role": item["role"], "content": _text(item["content"])} for item in items]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a message must be text, got {value!r}")
    return value


def _reward(row: Mapping[str, Any]) -> tuple[float, bool]:
    label, reward = row.get("label"), row.get("reward")
    if label is not None and not isinstance(label, bool):
        raise ValueError(f"label must be true or false, got {label!r}")
    if reward is None:
        is_good = True if label is None else label
        return float(is_good), is_good
    if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not math.isfinite(reward):
        raise ValueError(f"reward must be a finite number, got {reward!r}")
    return float(reward), reward >= SUCCESS_FROM if label is None else label


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _turn(text: str, observations: list[Message], num_prompt: int, num_sampled: int) -> Turn:
    return Turn(
        completion_text=text,
        observations=observations,
        num_prompt_tokens=num_prompt,
        num_completion_tokens=num_sampled,
        finish_reason=FinishReason.STOP,
        generate_s=0.0,
        environment_s=0.0,
    )
