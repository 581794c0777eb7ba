"""The prompts on which an export is tested: recorded ones, else those of held-out tasks, else a few plain ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyrl_nat.config.run import RunConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.errors import ExportError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.types import Message, Rollout

NUM_FILES = 4
"""Newest rollout files of a run that are read."""
PLAIN: list[list[Message]] = [
    [{"role": "user", "content": text}]
    for text in (
        "What is the capital of France?",
        "Write a Python function that adds two numbers.",
        "Name three tools that an agent which books flights needs.",
        'Answer with JSON: {"name": "add", "arguments": {"a": 1, "b": 2}}',
        "Erkläre in einem Satz, was ein Häuschen ist: 你好, 🙂.",
        "List the days of the week,\n\n  one per line.",
        "Continue: 1, 1, 2, 3, 5, 8,",
        "Say hello.",
    )
]
"""For a model that was never trained here and comes without tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Prompts and where they are from."""

    token_ids: list[list[int]]
    source: str


async def find_prompts(run_dir: Path | None, config: RunConfig, codec: ChatCodec, *, count: int, room: int) -> Prompts:
    """Return different prompts to test with.

    Args:
        run_dir: Of the run whose rollouts are taken; None of a model.
        config: For the held-out tasks.
        codec: Of the model.
        count: Prompts wanted; fewer where there are no more.
        room: Tokens of one at most.

    Raises:
        ExportError: None is short enough.
    """
    tried: list[int] = []
    recorded = [] if run_dir is None else _first(_recorded(run_dir / "rollouts"), count, room, tried)
    if recorded:
        return Prompts(token_ids=recorded, source="recorded rollouts of the run")
    of_tasks = _first(await _of_tasks(config, codec, count), count, room, tried)
    if of_tasks:
        return Prompts(token_ids=of_tasks, source="held-out tasks")
    plain = _first((codec.prompt_tokens(messages) for messages in PLAIN), count, room, tried)
    if not plain:
        raise ExportError(
            f"A prompt to test with must have at most {room} tokens, the shortest found has {min(tried)}. Raise "
            "rollout.max_total_tokens and trainer.micro_batch_tokens"
        )
    return Prompts(token_ids=plain, source="plain questions")


def _first(
    prompts: Sequence[list[int]] | Iterator[list[int]], count: int, room: int, tried: list[int]
) -> list[list[int]]:
    """Return the first different ones that fit; the lengths of all that were looked at are noted."""
    found: dict[tuple[int, ...], list[int]] = {}
    for prompt in prompts:
        tried.append(len(prompt))
        if len(prompt) <= room:
            found.setdefault(tuple(prompt), prompt)
        if len(found) == count:
            break
    return list(found.values())


def _recorded(folder: Path) -> Iterator[list[int]]:
    """Yield first prompts of recorded rollouts, newest files first, then what came before their last turns."""
    files = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)[:NUM_FILES]
    rollouts = [rollout for file in files for group in read_groups(file) for rollout in group.rollouts]
    for rollout in rollouts:
        if any(rollout.loss_mask):
            yield rollout.token_ids[: rollout.loss_mask.index(True)]
    for rollout in rollouts:
        if len(rollout.segment_starts) <= 1 and any(rollout.loss_mask):
            yield rollout.token_ids[: _last_turn(rollout)]


def _last_turn(rollout: Rollout) -> int:
    """Return where the last completion begins."""
    last = len(rollout.loss_mask) - 1 - rollout.loss_mask[::-1].index(True)
    while last > 0 and rollout.loss_mask[last - 1]:
        last -= 1
    return last


async def _of_tasks(config: RunConfig, codec: ChatCodec, count: int) -> list[list[int]]:
    """Return the first prompts of held-out tasks, made by their own environment."""
    environment = config.environment
    if not environment.validation_files:
        return []
    tasks = load_tasks(
        environment.validation_files, family=environment.family, max_difficulty=environment.max_difficulty
    )
    worker = EnvironmentWorker(environment.family, environment, max_turns=config.rollout.max_turns)
    prompts: list[list[int]] = []
    for number, task in enumerate(tasks[:count]):
        name = f"export-{number}"
        prompts.append(codec.prompt_tokens(await worker.create(name, task.visible())))
        await worker.close(name)
    return prompts
