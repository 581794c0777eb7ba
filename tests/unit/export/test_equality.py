"""An engine that differs from the trainer is refused with the place in which it does."""

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from skyrl_nat.errors import EngineError, ExportError
from skyrl_nat.export.equality import TOLERANCES, Comparison, compare, looser, require_equal
from skyrl_nat.export.llama_tools import QUANTISATIONS
from skyrl_nat.export.reference import Answer, Place
from skyrl_nat.types import Completion, FinishReason, GenerationRequest

ROOT = Path(__file__).parents[3]
FLOAT = TOLERANCES["float32"]
PROMPT = [1, 2, 3]


def place(*likeliest: int, first: float = -0.5, step: float = 1.0) -> Place:
    return Place(ids=list(likeliest), logprobs=[first - step * number for number in range(len(likeliest))])


class ScriptedEngine:
    """Says what it is told to in each place, and ends at its end token like any other."""

    def __init__(self, says: list[tuple[int, float]], end: int = -1) -> None:
        self.says = says
        self.end = end
        self.asked: list[int] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        known = len(request.prompt_token_ids) - len(PROMPT)
        assert request.sampling.temperature == 0.0
        self.asked.append(known)
        said = self.says[known : known + request.sampling.max_new_tokens]
        ids = [token for token, _ in said]
        if self.end in ids:
            said = said[: ids.index(self.end) + 1]
        return Completion(
            token_ids=[token for token, _ in said],
            logprobs=[logprob for _, logprob in said],
            finish_reason=FinishReason.LENGTH,
            token_versions=[0] * len(said),
        )


ANSWER = Answer(prompt=PROMPT, places=[place(7, 8), place(9, 8), place(4, 5)])
EQUAL = [(7, -0.5), (9, -0.5), (4, -0.5)]


def compared(says: list[tuple[int, float]], tolerance=FLOAT, answer: Answer = ANSWER) -> Comparison:
    return asyncio.run(compare(ScriptedEngine(says), "engine", [answer], tolerance))


def test_the_same_tokens_and_log_probs_are_equal():
    found = compared([(7, -0.5), (9, -0.505), (4, -0.5)], replace(FLOAT, mean=0.01))
    assert found.faults == [] and (found.num_places, found.agreement) == (3, 1.0)
    assert found.worst == pytest.approx(0.005) and found.mean == pytest.approx(0.005 / 3)
    require_equal([found])


def test_an_engine_is_asked_again_from_the_trainer_s_token_on_where_it_says_another():
    engine = ScriptedEngine([(7, -0.5), (8, -0.4), (4, -0.5)])
    found = asyncio.run(compare(engine, "engine", [ANSWER], FLOAT))
    assert engine.asked == [0, 2]
    assert found.num_places == 3 and found.agreement == pytest.approx(2 / 3)
    with pytest.raises(
        ExportError, match=r"prompt 0, token 1: the trainer says .* \(9\) at -0\.5000, engine says .* \(8\)"
    ):
        require_equal([found])


def test_an_end_token_that_comes_too_early_is_one_difference_and_hides_nothing():
    engine = ScriptedEngine([(2, -0.5), (9, -0.5), (4, -3.0)], end=2)
    found = asyncio.run(compare(engine, "engine", [ANSWER], FLOAT))
    places = [fault for fault in found.faults if fault.startswith("prompt 0, token")]
    assert [fault.split(":")[0] for fault in places] == ["prompt 0, token 0", "prompt 0, token 2"]


def test_tokens_that_the_trainer_holds_for_as_good_as_its_own_are_ties():
    tied = Answer(prompt=PROMPT, places=[place(7, 8, step=1e-4)])
    assert compared([(8, -0.5001)], answer=tied).faults == []
    assert compared([(8, -0.5001)], answer=Answer(prompt=PROMPT, places=[place(7, 8)])).faults


def test_a_log_prob_out_of_tolerance_is_a_fault_though_all_tokens_are_equal():
    found = compared([(7, -0.5), (9, -0.55), (4, -0.5)])
    assert found.agreement == 1.0
    assert any("0.0500 from the trainer's log-prob" in fault for fault in found.faults)


def test_a_token_that_the_trainer_does_not_know_counts_with_the_least_that_is_sure():
    found = compared([(99, -0.1), (9, -0.5), (4, -0.5)])
    assert found.worst == pytest.approx(1.4)  # the trainer's second token is at -1.5


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_a_log_prob_that_is_not_finite_is_never_equal(value: float):
    for tolerance in (FLOAT, TOLERANCES["Q2_K"]):
        assert compared([(7, value), (9, -0.5), (4, -0.5)], tolerance).faults


def test_a_quantised_model_may_differ_in_places_but_not_in_too_many():
    wide = TOLERANCES["Q4_K_M"]
    assert wide.worst is None
    places = [place(7, 8) for _ in range(20)]
    few = [(8 if number < 4 else 7, -1.5 if number < 4 else -0.6) for number in range(20)]
    many = [(8 if number < 10 else 7, -1.5 if number < 10 else -0.6) for number in range(20)]
    assert compared(few, wide, Answer(prompt=PROMPT, places=places)).faults == []
    [fault] = compared(many, wide, Answer(prompt=PROMPT, places=places)).faults
    assert fault.startswith("share of equal greedy tokens 0.500, at least 0.6")


def test_an_engine_that_says_nothing_is_refused():
    with pytest.raises(EngineError, match="must answer with a token, got none"):
        compared([])


def test_where_several_formats_take_part_the_loosest_limit_holds():
    assert looser("float32", "Q4_K_M", "bfloat16") == TOLERANCES["Q4_K_M"]
    mixed = looser("float32", "bfloat16")
    assert (mixed.worst, mixed.mean) == (TOLERANCES["bfloat16"].worst, TOLERANCES["bfloat16"].mean)


def test_tolerances_stand_on_what_was_measured_and_none_is_stricter_than_one_of_more_bits():
    results = json.loads((ROOT / "benchmarks" / "results" / "export_tolerances.json").read_text())["results"]
    for form in QUANTISATIONS:
        tolerance, measured = TOLERANCES[form], [each["found"][form] for each in results.values()]
        mean, agreement = max(each["mean"] for each in measured), min(each["agreement"] for each in measured)
        assert tolerance.mean > 1.9 * mean, form
        if tolerance.worst is None:
            assert tolerance.mean < 2.4 * mean and agreement - 0.2 < tolerance.agreement < agreement - 0.09, form
    quantised = [each for each in TOLERANCES.values() if each.worst is None]
    assert quantised == sorted(quantised, key=lambda each: (each.mean, -each.agreement))
    assert sorted((each.agreement for each in quantised), reverse=True) == [each.agreement for each in quantised]


def test_every_quantisation_has_its_tolerance_and_the_docs_say_the_same():
    assert set(QUANTISATIONS) <= set(TOLERANCES)
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    rows = [
        f"| {name} | {each.mean:g} | {each.agreement:.0%} | {'no limit' if each.worst is None else f'{each.worst:g}'} |"
        for name, each in TOLERANCES.items()
    ]
    assert "\n".join(rows) in text
