"""Whether an adapter is really served: its tensors fit the model, and its answers are not the model's own."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safetensors import safe_open

from skyrl_nat.deploy.policy_client import PolicyClient
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""Before every name of an adapter, as the library peft writes it."""
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
NUM_PROMPTS = 5
NUM_TOKENS = 8
"""Sampled after each prompt."""
SAME_WITHIN = 1e-5
"""Log-probs of one model, asked twice, differ by no more in fp32; `bfloat16` may need a wider bound."""
Shape = tuple[int, ...]


def check_adapter(adapter: Path, base: Path) -> int:
    """Return how many layers an adapter changes, all of which the model has.

    A server that does not find a tensor's place may leave it out without a word, and answer as the model alone.

    Raises:
        ConfigError: A tensor has no place in the model, or another shape.
    """
    shapes = _shapes(_files_of(base))
    found = _shapes([adapter / WEIGHTS])
    layers: dict[str, dict[str, Shape]] = {}
    strange: list[str] = []
    for name, shape in found.items():
        end = next((end for end in (DOWN, UP) if name.endswith(end)), "")
        layer = f"{name.removeprefix(PREFIX).removesuffix(end)}.weight"
        if not end or not name.startswith(PREFIX) or layer not in shapes:
            strange.append(name)
        else:
            layers.setdefault(layer, {})[end] = shape
    strange += [layer for layer, parts in layers.items() if not _fits(parts, shapes[layer])]
    if strange or not layers:
        raise ConfigError(
            f"Every tensor of the adapter {adapter} must belong to a layer of {base} and fit it, {len(strange)} of "
            f"{len(found)} do not: {', '.join(strange[:3]) or 'there are none'}. Save it with "
            "PeftModel.save_pretrained, without a wrapper around the model"
        )
    return len(layers)


async def check_difference(client: PolicyClient, base_model: str, prompts: Sequence[list[int]]) -> float:
    """Return the largest difference between the log-probs of the served model and of its base.

    Args:
        client: Of the trained model.
        base_model: Name of the untrained one on the same server.
        prompts: Token ids; the first few are asked.

    Raises:
        ConfigError: Both answer alike: the adapter is not in use.
        EngineError: One of them does not answer.
    """
    largest = 0.0
    asked = list(prompts[:NUM_PROMPTS])
    async with PolicyClient(replace(client.endpoint, model=base_model)) as base:
        for number, prompt in enumerate(asked):
            request = GenerationRequest(
                request_id=f"gate-{number}",
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_new_tokens=NUM_TOKENS, temperature=0.0),
            )
            largest = max(largest, _difference(await client.generate(request), await base.generate(request)))
    if not largest > SAME_WITHIN:
        raise ConfigError(
            f"{client.endpoint.model} must answer unlike {base_model}, on {len(asked)} prompts their log-probs differ "
            f"by at most {largest:g}. The adapter is not in use, or was never trained: check its tensors' names"
        )
    return largest


def _difference(one: Completion, other: Completion) -> float:
    """Return how far two greedy answers are apart; infinite where other tokens were sampled."""
    if one.token_ids != other.token_ids:
        return math.inf
    return max((abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True)), default=0.0)


def _fits(parts: dict[str, Shape], shape: Shape) -> bool:
    down, up = parts.get(DOWN, ()), parts.get(UP, ())
    return len(down) == len(up) == 2 and down[0] == up[1] and (up[0], down[1]) == shape


def _files_of(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def _shapes(files: Sequence[Path]) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for file in files:
        try:
            with safe_open(file, framework="numpy") as tensors:
                found |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
        except OSError as error:
            raise ConfigError(f"{file} must be a readable safetensors file, but: {error}. Check the path") from error
    return found
