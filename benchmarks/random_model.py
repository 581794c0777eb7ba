"""Write a model folder of a known shape with random weights: speed does not depend on what they are.

usage: python benchmarks/random_model.py SHAPE FOLDER TOKENIZER_FOLDER

The tokenizer is taken from a small real model; the vocabulary of the shape stays. A file of at most 5 GB is made at a
time, in memory of this machine, so that 32B need 66 GB of disk and about 6 GB of memory. Two cores write 1.5B in 20 s;
32B would take them some seven minutes.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config

COMMON: dict[str, Any] = {
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-1.5b": {
        **COMMON,
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "tiny": {
        **COMMON,
        "vocab_size": 49152,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "qwen2.5-7b": {
        **COMMON,
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    "qwen2.5-32b": {
        **COMMON,
        "vocab_size": 152064,
        "hidden_size": 5120,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
    },
}
TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "vocab*",
    "merges*",
    "chat_template*",
    "generation_config.json",
)


def values(name: str, empty: Tensor) -> Tensor:
    """Return what a new model has there: norms of one, no biases, small random weights."""
    if name.endswith("norm.weight"):
        return torch.ones(empty.shape)
    found = torch.zeros(empty.shape)
    return found if name.endswith("bias") else found.normal_(std=0.02)


def write_weights(model: torch.nn.Module, folder: Path) -> None:
    """Write a model that has no memory, file by file."""
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    plan = split_torch_state_dict_into_shards(tensors, max_shard_size="5GB")
    for file, names in plan.filename_to_tensors.items():
        save_file({name: values(name, tensors[name]) for name in names}, folder / file, metadata={"format": "pt"})
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Write the folder; its config last, since with it the folder counts as whole."""
    shape, folder, tokenizer = SHAPES[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(Qwen2Config(**shape, eos_token_id=2, bos_token_id=1))
    model.config.dtype = torch.bfloat16
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(model, folder)
    for pattern in TOKENIZER_FILES:
        for path in tokenizer.glob(pattern):
            shutil.copy(path, folder / path.name)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    print(folder, sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
