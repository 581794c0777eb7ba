"""Checks of engine against trainer, on right and on wrong numbers."""

import torch
from torch import Tensor

from skyrl_nat.doctor.agreement import (
    Played,
    check_agreement,
    check_layouts,
    check_neighbours,
    check_record,
    check_repeatable,
    check_streams,
)
from skyrl_nat.types import Completion, FinishReason, TrainingSample

LOGPROBS = [-0.5, -3.0, -1.0, -2.0]


def answer(tokens: list[int], logprobs: list[float], reason: FinishReason = FinishReason.STOP) -> Played:
    completion = Completion(token_ids=tokens, logprobs=logprobs, finish_reason=reason, token_versions=[0] * len(tokens))
    return Played(prompt=[7, 8], completion=completion)


def sample() -> TrainingSample:
    return answer([1, 2, 3, 4], LOGPROBS).sample("a", "prompt")


def trainer(values: list[float]) -> dict[str, Tensor]:
    return {"a": torch.tensor([0.0, 0.0, *values])}


def verdicts(values: list[float]) -> list[str]:
    return [check.verdict for check in check_agreement([sample()], trainer(values), limit=0.02)]


def test_equal_logprobs_agree_and_a_shift_does_not() -> None:
    assert verdicts(LOGPROBS) == ["ok", "ok", "ok"]
    assert verdicts([*LOGPROBS[1:], LOGPROBS[0]]) == ["WRONG", "WRONG", "WRONG"]


def test_a_wrong_temperature_is_found() -> None:
    """Row 33: half the temperature doubles the logits; log-probs move by more than the limit."""
    assert verdicts([2 * value for value in LOGPROBS])[:2] == ["WRONG", "WRONG"]
    assert verdicts([value + 0.019 for value in LOGPROBS])[:2] == ["ok", "ok"]
    assert verdicts([value + 0.021 for value in LOGPROBS])[:2] == ["WRONG", "ok"]
    assert verdicts([float("nan")] * 4)[:2] == ["WRONG", "WRONG"]


def test_layouts_passes_and_neighbours_by_their_bits() -> None:
    first, near, far = trainer(LOGPROBS), trainer([v + 2e-5 for v in LOGPROBS]), trainer([v + 1e-3 for v in LOGPROBS])
    assert check_layouts(first, near, "float32").verdict == "ok"
    assert check_layouts(first, far, "float32").verdict == "WRONG"
    assert check_repeatable(first, first).verdict == "ok"
    assert check_repeatable(first, near).verdict == "WRONG"
    both, leaked = first | {"b": first["a"]}, near | {"b": near["a"]}
    assert check_neighbours(both, first | {"b": near["a"]}, "b").verdict == "ok"
    assert check_neighbours(both, leaked, "b").found == "a"


def test_equal_answers_to_one_prompt_are_found() -> None:
    """Row 64."""
    assert check_streams([answer([1], [-1.0])] * 4).verdict == "WRONG"
    assert check_streams([answer([1], [-1.0])] * 3 + [answer([2], [-1.0])]).verdict == "ok"


def test_an_engine_that_misreports_its_tokens_is_found() -> None:
    """Rows 36, 37 and 47."""
    good = answer([1, 2], [-1.0, -0.5])
    assert [check.verdict for check in check_record([good], 8, eos=0)] == ["ok", "ok", "ok"]
    short = answer([1, 2], [-1.0])
    positive = answer([1, 2], [-1.0, 0.5])
    made_up = answer([1, 0], [-1.0, -0.5], FinishReason.LENGTH)
    for place, bad in enumerate((short, positive, made_up)):
        found = [check.verdict for check in check_record([good, bad], 8, eos=0)]
        assert found == ["WRONG" if number == place else "ok" for number in range(3)]
