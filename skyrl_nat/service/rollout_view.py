"""One rollout for people: every turn, and for every token all that is known of it."""

import itertools
import math
from typing import Any

from skyrl_nat.service.rollout_files import Label
from skyrl_nat.service.routes.errors import ServiceError
from skyrl_nat.service.run_folders import RunFolder
from skyrl_nat.service.token_authors import Author, authors_of, turns_of
from skyrl_nat.service.token_texts import open_texts
from skyrl_nat.service.trained_tokens import TrainedColumns, read_trained

NO_TEXTS = (
    "The run's tokenizer was not found, so that tokens are shown by number and nobody can tell the template from the "
    "environment. Copy tokenizer.json of the model into the run folder."
)
NOT_RECORDED = (
    "Advantages, trainer log-probs and clip states of this step were not recorded. Train with "
    "tracking.record_tokens=true."
)
NOT_TRAINED = "This rollout was not trained on: its outcome, or the config, kept it out of the batch."
ONLY_PLAYED = "Rollouts of evaluations are not trained on."
_COPIED = (
    "rollout_id",
    "task_id",
    "family",
    "difficulty",
    "outcome",
    "reason",
    "reward",
    "reward_parts",
    "is_success",
    "is_by_turn",
    "findings",
    "suspicions",
    "stages",
    "score_s",
    "num_tokens",
    "num_loss_tokens",
    "metrics",
    "segment_starts",
    "prompt",
)


def view_rollout(run: RunFolder, record: dict[str, Any], *, step: int, label: Label) -> dict[str, Any]:
    """Return one rollout with turns, tokens and reward parts.

    Args:
        run: Where it was played.
        record: Its line.
        step: Of the run.
        label: What it was played for.

    Raises:
        ServiceError: The line is no recorded rollout, or an older one.
    """
    try:
        return _view(run, record, step, label)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ServiceError(
            422, "broken_record", f"the line must be a recorded rollout, but: {error!r:.200}. Look at the file"
        ) from error


def _view(run: RunFolder, record: dict[str, Any], step: int, label: Label) -> dict[str, Any]:
    mask = [bit == "1" for bit in record["loss_mask"]]
    texts = open_texts(run)
    pieces: list[str] | None = None
    authors: list[Author | None] = [Author.POLICY if bit else None for bit in mask]
    if texts is not None:
        pieces = texts.pieces(record["token_ids"])
        authors = list(authors_of(record, mask, pieces, [texts.is_markup(one) for one in record["token_ids"]]))
    turns = turns_of(mask, [turn["num_completion_tokens"] for turn in record["turns"]])
    trained = read_trained(run, step) if label is Label.TRAIN else None
    num_segments = len(record["segment_starts"])
    columns = trained.of(record["rollout_id"], num_sampled=sum(mask), num_segments=num_segments) if trained else None
    tokens = _tokens(record, mask, columns)
    for place, token in enumerate(tokens):
        token["text"] = None if pieces is None else pieces[place]
        token["author"], token["turn"] = authors[place], turns[place]
    shown = {name: _plain(record.get(name)) for name in _COPIED}
    notes = {"texts": None if pieces is not None else NO_TEXTS, "training": _training_note(label, trained, columns)}
    return {"run": run.id, "step": step, "label": label, **shown, "turns": _turns(record), "tokens": tokens} | {
        "notes": notes
    }


def _tokens(record: dict[str, Any], mask: list[bool], columns: TrainedColumns | None) -> list[dict[str, Any]]:
    """Return what is recorded of every token; numbers of sampled ones only."""
    versions = itertools.chain.from_iterable([version] * count for version, count in record["token_versions"])
    sampled = zip(itertools.count(), record["rollout_logprobs"], versions)
    found: list[dict[str, Any]] = []
    for token_id, bit in zip(record["token_ids"], mask, strict=True):
        number, logprob, version = next(sampled) if bit else (-1, None, None)
        found.append(
            {
                "id": token_id,
                "in_loss": bit,
                "rollout_logprob": _plain(logprob),
                "policy_version": version,
                "trainer_logprob": None,
                "advantage": None,
                "clipped": None,
                **(columns.at(number) if bit and columns else {}),
            }
        )
    return found


def _turns(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "number": number,
            "author": Author.POLICY,
            "text": str(turn["completion"]),
            "observations": [
                {"role": str(told["role"]), "content": str(told["content"])} for told in turn["observations"]
            ],
            **{
                name: _plain(turn[name])
                for name in (
                    "num_prompt_tokens",
                    "num_completion_tokens",
                    "finish_reason",
                    "generate_s",
                    "environment_s",
                    "reward",
                )
            },
        }
        for number, turn in enumerate(record["turns"], 1)
    ]


def _training_note(label: Label, trained: object | None, columns: object | None) -> str | None:
    if label is Label.EVAL:
        return ONLY_PLAYED
    if trained is None:
        return NOT_RECORDED
    return None if columns is not None else NOT_TRAINED


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: a number that is not finite is None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
