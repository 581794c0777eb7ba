"""Facts that an engine reads from a model folder before it loads anything."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from skyrl_nat.errors import EngineError
from skyrl_nat.types import GenerationRequest


def require_folder(model_path: str) -> Path:
    """Return the local folder of a model.

    Raises:
        EngineError: It is not a folder with a `config.json`.
    """
    folder = Path(model_path)
    if not (folder / "config.json").is_file():
        raise EngineError(
            f"An engine's model must be a local folder with a config.json, found {model_path!r}. "
            "Resolve hub ids to a folder first."
        )
    return folder


def read_config(folder: Path) -> dict[str, Any]:
    """Return `config.json`."""
    return json.loads((folder / "config.json").read_text())


def is_head_tied(folder: Path) -> bool:
    """Return whether the output head is the embedding."""
    config = read_config(folder)
    text_config = config.get("text_config", config)
    return bool(config.get("tie_word_embeddings", text_config.get("tie_word_embeddings", False)))


def num_query_heads(folder: Path) -> int:
    """Return the query heads of an attention layer."""
    config = read_config(folder)
    return int(config.get("text_config", config)["num_attention_heads"])


def vocab_size(folder: Path) -> int:
    """Return the number of token ids that the model can sample, padding of its matrices included."""
    config = read_config(folder)
    return int(config.get("text_config", config)["vocab_size"])


def kv_bytes_per_token(folder: Path, dtype: torch.dtype) -> int:
    """Return the bytes of keys and values that one token needs over all layers."""
    config = read_config(folder)
    config = config.get("text_config", config)
    num_heads = config["num_attention_heads"]
    num_kv_heads = config.get("num_key_value_heads") or num_heads
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    return 2 * config["num_hidden_layers"] * num_kv_heads * head_dim * dtype.itemsize


def read_stop_token_ids(folder: Path) -> list[int]:
    """Return the end-of-sequence ids of `generation_config.json` and `config.json`, sorted."""
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        file = folder / name
        found = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
        ids.update(found if isinstance(found, list) else [] if found is None else [found])
    return sorted(ids)


def request_seed(engine_seed: int, request: GenerationRequest) -> int:
    """Return the seed of a request's random stream: its own, or one drawn from engine seed and id.

    The id enters so that neither two requests nor two replicas with one engine seed share a stream.
    """
    if request.sampling.seed is not None:
        return request.sampling.seed
    digest = hashlib.sha256(f"{engine_seed}/{request.request_id}".encode()).digest()
    return int.from_bytes(digest[:7], "little")


def require_room(request: GenerationRequest, max_model_len: int) -> int:
    """Return how many tokens may be sampled: what is asked for, lowered to the room left.

    Raises:
        EngineError: The prompt is empty or leaves no room for one token.
    """
    num_prompt_tokens = len(request.prompt_token_ids)
    if not 1 <= num_prompt_tokens < max_model_len:
        raise EngineError(
            f"A prompt must have 1 to {max_model_len - 1} tokens, found {num_prompt_tokens} in request "
            f"{request.request_id}. Shorten the prompt or raise rollout.max_total_tokens."
        )
    if request.sampling.max_new_tokens < 1:
        raise EngineError(
            f"max_new_tokens must be >= 1, found {request.sampling.max_new_tokens} in request "
            f"{request.request_id}. Ask for at least one token."
        )
    return min(request.sampling.max_new_tokens, max_model_len - num_prompt_tokens)
