"""A Hugging Face folder: made whole, and refused where what is in it does not fit together."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from skyrl_nat.engines.model_folder import is_head_tied, read_config, vocab_size
from skyrl_nat.errors import ExportError

INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"
TEMPLATE = "chat_template.jinja"
NUM_SHOWN = 8


class Weights:
    """The tensors of a folder's safetensors files, read one at a time."""

    def __init__(self, folder: Path) -> None:
        """Look at all files.

        Raises:
            ExportError: With every file that is missing, empty or damaged, and every tensor that is missing.
        """
        named = self._named(folder)
        self.files: dict[str, Path] = {}
        faults: list[str] = []
        for file in sorted(set(named.values())) or [WHOLE]:
            path = folder / file
            if not path.is_file():
                faults.append(f"{file} is missing")
            elif not path.stat().st_size:
                faults.append(f"{file} is empty")
            else:
                faults += self._open(path)
        is_whole = not faults
        faults += [f"{name} is not in {file}" for name, file in named.items() if is_whole and name not in self.files]
        refuse(folder, faults)

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """Yield names and tensors."""
        for name in self.files:
            yield name, self.read(name)

    def read(self, name: str) -> Tensor:
        """Return one tensor."""
        # A file that stays open keeps in memory whatever was read of it.
        with safe_open(self.files[name], framework="pt") as opened:
            return opened.get_tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        with safe_open(self.files[name], framework="pt") as opened:
            return tuple(opened.get_slice(name).get_shape())

    def _named(self, folder: Path) -> dict[str, str]:
        """Return tensor -> file of an index; {} where one file holds all."""
        if (folder / WHOLE).is_file() or not (folder / INDEX).is_file():
            return {}
        return json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]

    def _open(self, path: Path) -> list[str]:
        try:
            with safe_open(path, framework="pt") as opened:
                self.files |= dict.fromkeys(opened.keys(), path)
        except (OSError, SafetensorError) as error:
            return [f"{path.name} is damaged ({error})"]
        return []


def refuse(folder: Path, faults: list[str]) -> None:
    """Refuse a folder with its faults; does nothing without any.

    Raises:
        ExportError: With the faults.
    """
    if faults:
        more = f" and {len(faults) - NUM_SHOWN} more" if len(faults) > NUM_SHOWN else ""
        raise ExportError(
            f"A model must be whole to be exported, but in {folder}: {'; '.join(faults[:NUM_SHOWN])}{more}. Copy or "
            "save it again"
        )


def check_model(folder: Path) -> None:
    """Refuse a model whose parts are incomplete or do not fit together; reads one tensor at a time.

    Raises:
        ExportError: With every missing or damaged file, every tensor with a number that is not finite, a vocabulary
            that does not fit, tied tensors that differ, or a quantised base.
    """
    config = read_config(folder)
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unknown")
        refuse(folder, [f"its weights are quantised ({method}); take the full-precision model"])
    weights = Weights(folder)
    refuse(folder, [f"{name} holds numbers that are not finite" for name, tensor in weights if not _is_finite(tensor)])
    inner, outer = _embeddings(folder)
    refuse(folder, [*_vocabulary_faults(folder, weights, inner), *_tie_faults(folder, weights, inner, outer)])


def complete(folder: Path) -> list[str]:
    """Add what every reader looks for: the chat template in both its places, and a generation config.

    Returns:
        Warnings: `chat_template.jinja` wins over a template in `tokenizer_config.json` that differs from it, as it does
        in transformers, so that prompts stay those of training.
    """
    warnings_ = _unite_templates(folder)
    if not (folder / "generation_config.json").is_file():
        GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    return warnings_


def _unite_templates(folder: Path) -> list[str]:
    file, settings = folder / TEMPLATE, folder / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    apart = file.read_text(encoding="utf-8") if file.is_file() else None
    inside = config.get("chat_template")
    chosen = inside if apart is None else apart
    if not isinstance(chosen, str):
        return []
    told = []
    if isinstance(inside, str) and inside != chosen:
        told = [f"{TEMPLATE} and tokenizer_config.json hold different chat templates; exported is {TEMPLATE}"]
    file.write_text(chosen, encoding="utf-8")
    settings.write_text(json.dumps(config | {"chat_template": chosen}, indent=2) + "\n", encoding="utf-8")
    return told


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _embeddings(folder: Path) -> tuple[str, str]:
    """Return the names of input and output embedding."""
    with warnings.catch_warnings(), init_empty_weights(include_buffers=False):
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    names = {id(part): f"{name}.weight" for name, part in model.named_modules()}
    return names[id(inner)], names[id(outer)]


def _vocabulary_faults(folder: Path, weights: Weights, inner: str) -> list[str]:
    if inner not in weights.files:
        return [f"{inner} is missing"]
    rows, said = weights.shape(inner)[0], vocab_size(folder)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    highest = max(tokenizer.get_vocab().values())
    faults = []
    if rows != said:
        faults.append(f"{inner} has {rows} rows, config.json says vocab_size={said}")
    if highest >= rows:
        faults.append(f"the tokenizer has ids up to {highest}, {inner} has {rows} rows only")
    return faults


def _tie_faults(folder: Path, weights: Weights, inner: str, outer: str) -> list[str]:
    is_tied = is_head_tied(folder)
    if not is_tied:
        return [] if outer in weights.files else [f"{outer} is missing, and config.json ties nothing to {inner}"]
    if outer not in weights.files:
        return []
    one, other = weights.read(inner), weights.read(outer)
    if one.shape == other.shape and torch.equal(one, other):
        return []
    apart = float((one.float() - other.float()).abs().max()) if one.shape == other.shape else float("nan")
    return [
        f"config.json ties {outer} to {inner}, but they differ by up to {apart:.4g}; set tie_word_embeddings to false "
        "to keep both"
    ]
