"""From a recipe to a source: inputs drawn, asked, and chosen so that they notice mistakes."""

import random
from typing import Any

from skyrl_nat.data.making.asker import Asker
from skyrl_nat.data.making.build import Source, all_functions, draft_of
from skyrl_nat.data.making.inputs import NUM_DRAWN, NUM_RUNS, check_variety, choose_inputs, distinct, draw_inputs
from skyrl_nat.data.synthesis.compose import Recipe
from skyrl_nat.data.synthesis.family import ToolVariant
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.errors import DataError


def complete(recipe: Recipe, oracle: ReferenceOracle) -> Source:
    """Return the source of a task: examples, hidden inputs, refused inputs and end-to-end inputs for every function.

    Raises:
        DataError: The tools do not work together, or no choice of inputs notices enough mistakes.
    """
    rng = random.Random(f"{recipe.seed}/inputs")
    tools = [_source_of(tool, rng) for tool in recipe.tools]
    workflow = None if recipe.workflow is None else _source_of(recipe.workflow, rng)
    if workflow is not None:
        workflow["uses"] = [tool.name for tool in recipe.tools]
    source: Source = {
        "id": recipe.name,
        "difficulty": recipe.difficulty,
        "description": recipe.description,
        "tools": tools,
    }
    if workflow is not None:
        source["workflow"] = workflow
    if recipe.workflow_type:
        source["workflow_type"] = recipe.workflow_type
    if recipe.num_tests:
        source["whole"] = {"tests": recipe.num_tests, "mcp": list(recipe.mcp)}
    ask = Asker(oracle, draft_of(source))
    variants = [*recipe.tools, *([recipe.workflow] if recipe.workflow else [])]
    functions = all_functions(source)
    drawn = {v.name: distinct([*v.edges, *draw_inputs(t, rng)]) for t, v in zip(functions, variants, strict=True)}
    choose_inputs(ask, functions, drawn, {variant.name: distinct(variant.errors) for variant in variants})
    source["e2e"] = _runs(ask, recipe, source, rng)
    return source


def _source_of(variant: ToolVariant, rng: random.Random) -> Source:
    tool: Source = {
        "name": variant.name,
        "args": dict(variant.args),
        "returns": variant.returns,
        "does": rng.choice(list(variant.does)),
        "behaviour": list(variant.behaviour),
        "body": variant.body,
        "draw": dict(variant.draw),
        "laws": list(variant.laws),
    }
    if variant.raises:
        tool["raises"] = variant.raises
    if variant.options:
        tool["options"] = {
            name: {"type": option.type, "default": option.default, "set": option.set}
            for name, option in variant.options.items()
        }
    return tool


def _runs(ask: Asker, recipe: Recipe, source: Source, rng: random.Random) -> list[Any]:
    """Return end-to-end inputs, where no LLM decides; refuses chains that hardly ever work."""
    if recipe.workflow_type and recipe.workflow_type != "sequential_executor":
        return []
    functions = all_functions(source)
    chain = [tool["name"] for tool in (functions if recipe.workflow_type else functions[-1:])]
    seen = [*functions[0]["examples"], *functions[0]["inputs"]] if recipe.workflow_type else []
    values = distinct(draw_inputs(functions[0] if recipe.workflow_type else functions[-1], rng))
    ask.fetch((chain, value) for value in values)
    good = [(value, ask.answer(chain[0], value, *chain[1:])) for value in values]
    given = [(value, answer.output) for value, answer in good if not answer.raises]
    check_variety("+".join(chain), functions[-1]["returns"], [output for _, output in given])
    if len(given) < NUM_DRAWN // 2:
        raise DataError(f"{' then '.join(chain)} must answer most inputs, got {len(given)} of {len(values)}")
    shown = functions[-1]["examples"] if not recipe.workflow_type else seen
    fresh = [value for value, output in given if value not in shown and output not in ("", [])]
    if len(fresh) < NUM_RUNS:
        raise DataError(f"{' then '.join(chain)} must have {NUM_RUNS} end-to-end inputs, got {len(fresh)}")
    return fresh[:NUM_RUNS]
