"""Sizes of a decoder, from its `config.json` or, for models that are not on this disk, from a table of known ones."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from skyrl_nat.errors import ConfigError
from skyrl_nat.monitoring.flops import ModelShape

_QWEN25: dict[str, Any] = {"num_key_value_heads": 8, "vocab_size": 152064, "attention_bias": True}
_QWEN25_SMALL: dict[str, Any] = {
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "attention_bias": True,
    "tie_word_embeddings": True,
}


def _sizes(hidden: int, inner: int, layers: int, heads: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }


KNOWN: dict[str, dict[str, Any]] = {
    "smollm2-135m": _sizes(576, 1536, 30, 9)
    | {"num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True},
    "smollm2-360m": _sizes(960, 2560, 32, 15)
    | {"num_key_value_heads": 5, "vocab_size": 49152, "tie_word_embeddings": True},
    "smollm2-1.7b": _sizes(2048, 8192, 24, 32)
    | {"num_key_value_heads": 32, "vocab_size": 49152, "tie_word_embeddings": True},
    "qwen2.5-0.5b": _QWEN25_SMALL | _sizes(896, 4864, 24, 14),
    "qwen2.5-1.5b": _QWEN25_SMALL | _sizes(1536, 8960, 28, 12),
    "qwen2.5-3b": _QWEN25_SMALL | _sizes(2048, 11008, 36, 16),
    "qwen2.5-7b": _QWEN25 | _sizes(3584, 18944, 28, 28) | {"num_key_value_heads": 4},
    "qwen2.5-14b": _QWEN25 | _sizes(5120, 13824, 48, 40),
    "qwen2.5-32b": _QWEN25 | _sizes(5120, 27648, 64, 40),
    "qwen2.5-72b": _QWEN25 | _sizes(8192, 29568, 80, 64),
}
"""Config values by name and size; variants of one size (`-Coder`, `-Instruct`) share them. From the models' own
`config.json`."""

_VARIANTS = ("-coder", "-instruct", "-math", "-base")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A Llama- or Qwen-like decoder: all layers alike, full attention, a gated MLP."""

    hidden: int
    inner: int
    """Width of the MLP."""
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocabulary: int
    is_tied: bool
    """Whether the LM head is the embedding."""
    has_attention_bias: bool

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the sizes in a `config.json`.

        Raises:
            ConfigError: It has experts, or lacks a size.
        """
        config = config.get("text_config") or config
        if config.get("num_experts") or config.get("num_local_experts"):
            raise ConfigError(
                "model.path must be a dense model to be planned, got one with experts. Train it unplanned"
            )
        try:
            heads = config["num_attention_heads"]
            return cls(
                hidden=config["hidden_size"],
                inner=config["intermediate_size"],
                num_layers=config["num_hidden_layers"],
                num_heads=heads,
                num_kv_heads=config.get("num_key_value_heads") or heads,
                head_size=config.get("head_dim") or config["hidden_size"] // heads,
                vocabulary=config["vocab_size"],
                is_tied=bool(config.get("tie_word_embeddings", False)),
                has_attention_bias=bool(config.get("attention_bias", config.get("model_type") == "qwen2")),
            )
        except KeyError as error:
            raise ConfigError(
                f"model.path must hold a config.json with {error.args[0]}, got none. Use a Llama- or Qwen-like model"
            ) from None

    @property
    def width(self) -> int:
        """Query heads x head size."""
        return self.num_heads * self.head_size

    @property
    def kv_width(self) -> int:
        """Key heads x head size."""
        return self.num_kv_heads * self.head_size

    @property
    def layer_parameters(self) -> int:
        """Of one layer: four attention matrices, three of the MLP, two norms, biases of q, k and v."""
        matrices = self.hidden * (2 * self.width + 2 * self.kv_width) + 3 * self.hidden * self.inner
        biases = self.width + 2 * self.kv_width if self.has_attention_bias else 0
        return matrices + biases + 2 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Of the embedding, or of the LM head."""
        return self.vocabulary * self.hidden

    @property
    def root_parameters(self) -> int:
        """Outside the layers: embedding, head unless tied, last norm."""
        return self.embedding_parameters * (1 if self.is_tied else 2) + self.hidden

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return self.num_layers * self.layer_parameters + self.root_parameters

    def lora_parameters(self, rank: int, targets: list[str]) -> int:
        """Return the parameters of adapters: rank x (inputs + outputs) for each target in each layer."""
        sizes = {
            "q_proj": self.hidden + self.width,
            "k_proj": self.hidden + self.kv_width,
            "v_proj": self.hidden + self.kv_width,
            "o_proj": self.width + self.hidden,
            "gate_proj": self.hidden + self.inner,
            "up_proj": self.hidden + self.inner,
            "down_proj": self.inner + self.hidden,
        }
        return self.num_layers * rank * sum(sizes.get(name, 0) for name in targets)

    def kv_bytes_per_token(self, num_bytes: int) -> int:
        """Return keys and values of one token over all layers, in a format of so many bytes."""
        return 2 * self.num_layers * self.kv_width * num_bytes

    @property
    def cost(self) -> ModelShape:
        """What counts FLOPs."""
        return ModelShape(
            num_matmul_parameters=self.num_layers
            * (self.hidden * (2 * self.width + 2 * self.kv_width) + 3 * self.hidden * self.inner)
            + self.embedding_parameters,
            num_layers=self.num_layers,
            attention_width=self.width,
            kv_width=self.kv_width,
        )


def find_decoder(path: str) -> Decoder:
    """Return the sizes of `model.path`: of its folder, of the hub's copy on this disk, or from `KNOWN`.

    Raises:
        ConfigError: None of them knows it.
    """
    for folder in (Path(path).expanduser(), *_hub_copies(path)):
        if (folder / "config.json").is_file():
            return Decoder.of_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    name = path.rstrip("/").rpartition("/")[2].lower()
    for variant in _VARIANTS:
        name = name.replace(variant, "")
    if name not in KNOWN:
        raise ConfigError(
            f"model.path must be a folder with config.json or one of the known sizes ({', '.join(KNOWN)}), "
            f"got {path!r}. Download the model's config.json and name its folder"
        )
    return Decoder.of_config(KNOWN[name])


def _hub_copies(path: str) -> list[Path]:
    """Return folders of the hub's cache that hold a model of this id."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return sorted((cache / f"models--{path.replace('/', '--')}" / "snapshots").glob("*"))
