"""What the chat template and tokenizer do to a dialogue; no model needed."""

from collections.abc import Sequence

from skyrl_nat.config.rollout import History
from skyrl_nat.doctor.check import Check, equal
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Message

ANSWER = "<think>\nFirst this, then that.\n</think>\n\nThe answer is 4."
OBSERVATION: Message = {"role": "user", "content": 'Tool says: {"value": 4}\n\u00e9\U0001f600'}


def check_template(codec: ChatCodec, prompts: Sequence[list[Message]], history: History) -> list[Check]:
    """Return the checks of rows 42 to 46; the first of them is that dialogues grow by exact prefixes.

    Args:
        codec: Of the user's model.
        prompts: First messages of some of the user's tasks.
        history: `rollout.history`.
    """
    prompt = codec.prompt_tokens(prompts[0])
    sampled = [*codec.encode(ANSWER), codec.eos_token_id]
    between = codec.continuation_tokens([OBSERVATION])
    messages: list[Message] = [*prompts[0], {"role": "assistant", "content": ANSWER}, OBSERVATION]
    rendered = codec.prompt_tokens(messages)
    grown = [*prompt, *sampled]
    keeps = rendered[: len(grown)] == grown
    return [
        _grows(codec.show([*grown, *between]), codec.show(rendered), keeps=keeps),
        _start_tokens(codec, prompts),
        _round_trip(codec, sampled[:-1]),
        Check(
            rows="43",
            name=f"template keeps earlier answers (history={history})",
            expected="yes" if history is History.render else "any",
            found="yes" if keeps else "no: turns become segments",
            is_ok=None,
        ),
        Check(
            rows="44",
            name="tokens between turns, outside the loss",
            expected=">= 1",
            found=f"{len(between)}: {codec.show(between[:4])!r}...",
            is_ok=len(between) > 0,
        ),
        equal("46", "token that closes an answer", codec.closing_token(), codec.eos_token_id),
    ]


def _grows(put_together: str, rendered: str, *, keeps: bool) -> Check:
    """Rows 43 and 44: a turn's prompt is the one before, what was sampled, and what the template puts between.

    A template that drops earlier answers renders another text: then nothing can be compared.
    """
    return Check(
        rows="43, 44",
        name="turns put together are the dialogue that the template renders",
        expected="the same text",
        found="the same text" if put_together == rendered else f"{put_together[-60:]!r} for {rendered[-60:]!r}",
        is_ok=put_together == rendered if keeps else None,
        advice="Use a template whose output only grows, or another model",
        is_needed=keeps,
    )


def _start_tokens(codec: ChatCodec, prompts: Sequence[list[Message]]) -> Check:
    """Row 45: no prompt has two start tokens."""
    worst = max(codec.num_start_tokens(codec.prompt_tokens(messages)) for messages in prompts)
    return Check(rows="45", name="start tokens of a prompt", expected="<= 1", found=str(worst), is_ok=worst <= 1)


def _round_trip(codec: ChatCodec, sampled: list[int]) -> Check:
    """Row 42: not relied upon; a tokenizer that fails it is no fault, one that passes makes logs readable."""
    is_same = codec.encode(codec.decode(sampled)) == sampled
    return Check(
        rows="42",
        name="text of an answer gives its tokens back",
        expected="any (tokens are kept)",
        found="yes" if is_same else "no",
        is_ok=None,
    )
