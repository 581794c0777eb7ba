"""References that can be trusted: several versions, written apart from each other, must agree."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_nat.data.making.asker import Asker
from skyrl_nat.data.making.build import Source, all_functions, draft_of
from skyrl_nat.data.making.inputs import NUM_RUNS, choose_inputs, distinct, draw_inputs
from skyrl_nat.data.planner.drafts import json_value, source_of, values_of
from skyrl_nat.environments.nat_agent.compare import is_same
from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle
from skyrl_nat.errors import DataError

NUM_REFERENCES = 3
MIN_AGREEMENT = 0.9
"""Share of drawn inputs on which all versions of a function must agree; below, its description is ambiguous."""
Bodies = Mapping[str, str]


def checked_source(draft: Mapping[str, Any], bodies: Sequence[Bodies], oracle: ReferenceOracle) -> Source:
    """Return a draft as a whole source, with inputs on which all versions of its functions agree.

    Args:
        draft: Of `drafts.SPEC_SCHEMA`.
        bodies: Function -> code, of each version; the first becomes the reference.
        oracle: Runs them.

    Raises:
        DataError: The versions disagree, do not do what the examples show, or are not deterministic.
    """
    source = source_of(draft, bodies[0])
    drafts = {tool["name"]: tool for tool in draft["tools"]}
    rng = random.Random(json.dumps(draft, sort_keys=True))
    ask = Asker(oracle, draft_of(source))
    drawn = {
        tool["name"]: distinct(
            [*values_of(drafts[tool["name"]], drafts[tool["name"]]["samples"]), *draw_inputs(tool, rng)]
        )
        for tool in source["tools"]
    }
    refused = {name: distinct(values_of(tool, tool["refused_samples"])) for name, tool in drafts.items()}
    variants = [{}, {}, *(_sources(source, version) for version in bodies[1:])]
    asked = {name: distinct([*drawn[name], *refused[name]]) for name in drawn}
    rows = {
        name: list(zip(*oracle.answers(ask.hidden, _calls(name, asked[name]), variants), strict=True)) for name in asked
    }
    for name, answers in rows.items():
        _check_examples(drafts[name], ask, variants, oracle)
        if any(not _agree(row[:2]) for row in answers):
            raise DataError(f"{name} must give the same answer twice, and does not")
        agreed = {json.dumps(value) for value, row in zip(asked[name], answers, strict=True) if _agree(row)}
        if len(agreed) < MIN_AGREEMENT * len(answers):
            raise DataError(
                f"{len(bodies)} versions of {name} must agree on {MIN_AGREEMENT:.0%} of the inputs, they do on "
                f"{len(agreed)} of {len(answers)}: its description is ambiguous"
            )
        drawn[name] = [value for value in drawn[name] if json.dumps(value) in agreed]
        refused[name] = [value for value in refused[name] if json.dumps(value) in agreed]
    shown = {name: values_of(tool, [example["input"] for example in tool["examples"]]) for name, tool in drafts.items()}
    choose_inputs(ask, source["tools"], drawn, refused)
    for tool in source["tools"]:
        own = distinct(shown[tool["name"]])
        tool["examples"] = own
        tool["inputs"] = [value for value in tool["inputs"] if value not in own]
    source["e2e"] = _runs(ask, source, drawn)
    return source


def _calls(name: str, values: Sequence[Any]) -> list[Call]:
    return [Call(chain=(name,), input=value) for value in values]


def _sources(source: Source, bodies: Bodies) -> dict[str, str]:
    """Return the functions in another version."""
    changed = [{**tool, "body": bodies.get(tool["name"], "")} for tool in source["tools"]]
    if missing := [tool["name"] for tool in changed if not tool["body"].strip()]:
        raise DataError(f"every version must have code for every tool, missing: {', '.join(missing)}")
    return {name: item.source for name, item in draft_of({**source, "tools": changed}).reference.items()}


def _check_examples(
    tool: Mapping[str, Any], ask: Asker, variants: Sequence[Mapping[str, str]], oracle: ReferenceOracle
) -> None:
    values = values_of(tool, [example["input"] for example in tool["examples"]])
    expected = [json_value(example["output"], tool["name"]) for example in tool["examples"]]
    for number, row in enumerate(oracle.answers(ask.hidden, _calls(tool["name"], values), variants)):
        for value, right, answer in zip(values, expected, row, strict=True):
            is_number = isinstance(right, int) and not isinstance(right, bool) and isinstance(answer.output, float)
            if answer.raises or not is_same(float(right) if is_number else right, answer.output):
                raise DataError(
                    f"version {number} of {tool['name']} must give {right!r} for the example {value!r}, got "
                    f"{answer.raises or answer.output!r}"
                )


def _agree(row: Sequence[Answer]) -> bool:
    first = row[0]
    return all(
        answer.raises == first.raises and (bool(answer.raises) or is_same(first.output, answer.output))
        for answer in row
    )


def _runs(ask: Asker, source: Source, drawn: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Return end-to-end inputs, where no LLM decides."""
    kind = source.get("workflow_type", "single")
    if kind not in ("single", "sequential_executor"):
        return []
    chain = [tool["name"] for tool in all_functions(source)]
    values = [value for value in drawn[chain[0]] if value not in source["tools"][0]["examples"]]
    ask.fetch((chain, value) for value in values)
    good = [value for value in values if not ask.answer(chain[0], value, *chain[1:]).raises]
    if len(good) < NUM_RUNS:
        raise DataError(f"{' then '.join(chain)} must answer {NUM_RUNS} inputs, got {len(good)}")
    return good[-NUM_RUNS:]
