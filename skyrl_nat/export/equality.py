"""Whether an engine says what the trainer says: greedy tokens and their log-probs, place by place.

In each place of the trainer's greedy answers an engine is asked for its own greedy token. Two figures come of it: the
difference of both log-probs of that token, and the loss, by which the trainer holds it for less likely than its own
(0 for the same token).
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from skyrl_nat.engines.base import Engine
from skyrl_nat.errors import EngineError, ExportError
from skyrl_nat.export.reference import Answer, Place
from skyrl_nat.types import GenerationRequest, SamplingParams

NUM_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an engine may be from the trainer, in nats."""

    mean: float
    """Mean difference of a log-prob at most."""
    agreement: float
    """Share of places at least in which the greedy token is the same, or its loss within `worst`."""
    worst: float | None = None
    """Largest difference, and largest loss of another token; None sets no limit to a single place."""


TOLERANCES = {
    "float32": Tolerance(mean=1e-3, agreement=1.0, worst=1e-2),
    "float16": Tolerance(mean=2e-2, agreement=1.0, worst=0.15),
    "bfloat16": Tolerance(mean=5e-2, agreement=1.0, worst=0.5),
    "F32": Tolerance(mean=1e-2, agreement=1.0, worst=0.1),
    "F16": Tolerance(mean=2e-2, agreement=1.0, worst=0.15),
    "BF16": Tolerance(mean=5e-2, agreement=1.0, worst=0.5),
    "Q8_0": Tolerance(mean=0.1, agreement=0.8),
    "Q6_K": Tolerance(mean=0.35, agreement=0.7),
    "Q5_K_M": Tolerance(mean=0.6, agreement=0.65),
    "Q5_K_S": Tolerance(mean=0.6, agreement=0.65),
    "Q5_1": Tolerance(mean=0.6, agreement=0.65),
    "Q5_0": Tolerance(mean=0.6, agreement=0.65),
    "Q4_K_M": Tolerance(mean=0.8, agreement=0.6),
    "Q4_K_S": Tolerance(mean=0.9, agreement=0.6),
    "Q4_1": Tolerance(mean=1.3, agreement=0.55),
    "Q4_0": Tolerance(mean=1.3, agreement=0.55),
    "Q3_K_L": Tolerance(mean=1.7, agreement=0.5),
    "Q3_K_M": Tolerance(mean=2.2, agreement=0.45),
    "Q3_K_S": Tolerance(mean=3.0, agreement=0.4),
    "Q2_K": Tolerance(mean=6.0, agreement=0.1),
}
"""Format of the numbers that are computed with, or of a GGUF file's weights -> tolerance.

Those of quantised weights are about twice the mean that `benchmarks/export_tolerances.py` measured, and a tenth less
agreement.
"""


def looser(*formats: str) -> Tolerance:
    """Return the tolerance where several formats take part: of trainer, engine and weights."""
    tolerances = [TOLERANCES[form] for form in formats]
    limits = [each.worst for each in tolerances if each.worst is not None]
    return Tolerance(
        mean=max(each.mean for each in tolerances),
        agreement=min(each.agreement for each in tolerances),
        worst=max(limits) if len(limits) == len(tolerances) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What one engine said."""

    engine: str
    """And what it played, for people."""
    tolerance: Tolerance
    num_places: int
    agreement: float
    """Share of places with the same greedy token, or one whose loss is within `tolerance.worst`."""
    mean: float
    """Of the differences."""
    worst: float
    faults: list[str]
    """What is out of tolerance; empty where the test holds."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)


async def compare(
    engine: Engine,
    name: str,
    answers: Sequence[Answer],
    tolerance: Tolerance,
    show: Callable[[Sequence[int]], str] = str,
) -> Comparison:
    """Ask a started engine in every place of the answers, and compare.

    Args:
        engine: Started.
        name: Of engine and file, for people.
        answers: The trainer's.
        tolerance: Between the two.
        show: Text of tokens, for messages.
    """
    played = await asyncio.gather(
        *(_forced(engine, f"{name}-{number}", answer) for number, answer in enumerate(answers))
    )
    differences: list[float] = []
    same: list[bool] = []
    faults: list[str] = []
    limit = tolerance.worst
    for number, (answer, tokens) in enumerate(zip(answers, played, strict=True)):
        for place, (expected, (token, logprob)) in enumerate(zip(answer.places, tokens, strict=True)):
            difference, loss = _distance(expected, token, logprob)
            differences.append(difference)
            same.append(token == expected.ids[0] or (limit is not None and loss <= limit))
            if limit is not None and not (difference <= limit and same[-1]):
                faults.append(
                    f"prompt {number}, token {place}: the trainer says {show([expected.ids[0]])!r} "
                    f"({expected.ids[0]}) at {expected.logprobs[0]:.4f}, {name} says {show([token])!r} ({token}) at "
                    f"{logprob:.4f}, {difference:.4f} from the trainer's log-prob of it"
                )
    mean, agreement = sum(differences) / len(differences), sum(same) / len(same)
    if not mean <= tolerance.mean:
        faults.insert(0, f"mean difference of a log-prob {mean:.4f}, at most {tolerance.mean}")
    if agreement < tolerance.agreement:
        faults.insert(0, f"share of equal greedy tokens {agreement:.3f}, at least {tolerance.agreement}")
    return Comparison(
        engine=name,
        tolerance=tolerance,
        num_places=len(differences),
        agreement=agreement,
        mean=mean,
        worst=max(differences),
        faults=faults,
    )


def require_equal(comparisons: Sequence[Comparison]) -> None:
    """Refuse what is out of tolerance.

    Raises:
        ExportError: With the first places that differ.
    """
    failed = [f"{each.engine}: {fault}" for each in comparisons for fault in each.faults]
    if failed:
        more = f"; and {len(failed) - NUM_SHOWN} more" if len(failed) > NUM_SHOWN else ""
        raise ExportError(
            f"What is exported must answer as the trainer does, but {'; '.join(failed[:NUM_SHOWN])}{more}. Nothing "
            "was exported; choose another format, or see docs/export.md"
        )


async def _forced(engine: Engine, name: str, answer: Answer) -> list[tuple[int, float]]:
    """Return the engine's greedy token and its log-prob in each place, after the trainer's tokens before it."""
    expected = answer.token_ids
    found: list[tuple[int, float]] = []
    while len(found) < len(expected):
        completion = await engine.generate(
            GenerationRequest(
                request_id=f"{name}-{len(found)}/0",
                prompt_token_ids=[*answer.prompt, *expected[: len(found)]],
                sampling=SamplingParams(max_new_tokens=len(expected) - len(found), temperature=0.0),
            )
        )
        if not completion.token_ids:
            raise EngineError(f"{name} must answer with a token, got none. Look at its log")
        for token, logprob in zip(completion.token_ids, completion.logprobs, strict=True):
            found.append((token, logprob))
            if token != expected[len(found) - 1]:
                break
    return found


def _distance(place: Place, token: int, logprob: float) -> tuple[float, float]:
    """Return difference and loss of an engine's token; of one that the trainer hardly knows, at least so much."""
    if not math.isfinite(logprob):
        return math.inf, math.inf
    if token in place.ids:
        trainers = place.logprobs[place.ids.index(token)]
        return abs(logprob - trainers), place.logprobs[0] - trainers
    least = place.logprobs[-1]
    return max(0.0, logprob - least), place.logprobs[0] - least
