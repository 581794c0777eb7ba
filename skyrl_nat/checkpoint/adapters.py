"""LoRA adapters as the library peft saves them."""

import json
from pathlib import Path

from skyrl_nat.checkpoint.pretrained import write_hf_folder
from skyrl_nat.errors import ConfigError

ADAPTER = "adapter_config.json"


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter and not a whole model."""
    return (folder / ADAPTER).is_file()


def merged_adapter(adapter: Path, base: Path, target: Path) -> Path:
    """Write the sum of a model and its adapter into a new folder, in the model's dtype, and return it.

    The model is whole in this process's memory meanwhile.

    Raises:
        ConfigError: The adapter does not fit the model.
    """
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
    write_hf_folder(target, base, merged.state_dict(), str(merged.dtype).removeprefix("torch."))
    return target
