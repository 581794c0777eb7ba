"""Write a model folder of a known shape with random weights: speed does not depend on what they are.

usage: python benchmarks/random_model.py SHAPE FOLDER TOKENIZER_FOLDER

The tokenizer is taken from a small real model; the vocabulary of the shape stays.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import torch
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
}
TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "vocab*",
    "merges*",
    "chat_template*",
    "generation_config.json",
)


def main() -> None:
    """Write the folder."""
    shape, folder, tokenizer = SHAPES[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    torch.set_default_dtype(torch.bfloat16)
    model = AutoModelForCausalLM.from_config(Qwen2Config(**shape, eos_token_id=2, bos_token_id=1))
    model.save_pretrained(folder)
    for pattern in TOKENIZER_FILES:
        for path in tokenizer.glob(pattern):
            shutil.copy(path, folder / path.name)
    print(folder, sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
