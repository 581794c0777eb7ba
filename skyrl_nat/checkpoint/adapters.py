"""LoRA adapters as the library peft saves them."""

import hashlib
import json
from pathlib import Path
from typing import Any

from skyrl_nat.checkpoint.pretrained import write_hf_folder
from skyrl_nat.errors import ConfigError

ADAPTER = "adapter_config.json"
RECORD = "export.json"
"""File beside a model: what it was made of; `merged_adapters` are those whose sum it is."""


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter and not a whole model."""
    return (folder / ADAPTER).is_file()


def adapter_digest(folder: Path) -> str:
    """Return the SHA-256 of an adapter's weights."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("adapter_model.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def read_record(folder: Path) -> dict[str, Any]:
    """Return what a model's folder says about its making; {} where it says nothing."""
    file = folder / RECORD
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def merged_adapters(folder: Path) -> list[str]:
    """Return the digests of the adapters that were merged into a model."""
    return list(read_record(folder).get("merged_adapters", []))


def merged_adapter(adapter: Path, base: Path, target: Path) -> Path:
    """Write the sum of a model and its adapter into a new folder, in the model's dtype, and return it.

    The model is whole in this process's memory meanwhile.

    Raises:
        ConfigError: The adapter does not fit the model or is merged into it already, or the model is quantised.
    """
    digest, known = adapter_digest(adapter), merged_adapters(base)
    if digest in known:
        raise ConfigError(
            f"model.path must be the model without the adapter in {adapter}, got {base}, which has it. Give the base"
        )
    if json.loads((base / "config.json").read_text(encoding="utf-8")).get("quantization_config"):
        raise ConfigError(
            f"model.path must be the full-precision model that an adapter is merged into, got {base}, which is "
            "quantised: the sum would be rounded. Add model.path=FOLDER"
        )
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    try:
        merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()  # pyright: ignore[reportCallIssue]
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        trained_on = json.loads((adapter / ADAPTER).read_text(encoding="utf-8")).get("base_model_name_or_path")
        raise ConfigError(
            f"model.path must be the model that the adapter in {adapter} was trained on ({trained_on}), got {base}: "
            f"{str(error).splitlines()[0]}. Add model.path=FOLDER"
        ) from error
    # Of tied weights the one is kept that every reader looks for; by themselves they are kept under the first name.
    weights = {name: tensor for name, tensor in merged.state_dict().items() if name not in merged.all_tied_weights_keys}
    write_hf_folder(target, base, weights, str(merged.dtype).removeprefix("torch."))
    record = {"merged_adapters": [*known, digest]}
    (target / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return target
