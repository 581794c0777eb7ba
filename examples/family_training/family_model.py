"""Write a model of some million random weights whose tokenizer is made of a family's training dialogues.

usage: family_model.py FAMILY FOLDER [--seed N]

It learns on two cores within minutes (`on_cpu.sh`); nothing is downloaded. Held-out tasks are not read.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from stages import DIALOGUES
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from skyrl_nat.data.specs import load_tasks

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""As in SmolLM2."""
WORDS = {
    # Tools by their whole names: made of parts, a small model's first mistakes are names that no tool has.
    "jira": r" ?[A-Za-z_]+|[0-9]| ?[^\sA-Za-z0-9_]+|\s+",
    "task_dag": r" ?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s+",
}
"""Family -> what no token crosses."""
VOCABULARY = {"jira": 1024, "task_dag": 2048}
"""Family -> tokens at most. Plans copy words of their request: of whole ones, no letter is forgotten on the way."""
SHAPE: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


def texts_of(family: str) -> Iterator[str]:
    """Yield every message of the reference dialogues of the training tasks."""
    for episode in DIALOGUES[family](load_tasks([f"builtin:{family}/train"])):
        yield from (message["content"] for message in [*episode.get("prompt", []), *episode["messages"]])


def make_tokenizer(texts: Iterator[str], words: str, num_tokens: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with SmolLM2's template.

    Args:
        texts: What it is made of.
        words: Regular expression of what no token crosses.
        num_tokens: At most.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    unknown, begin, end = SPECIAL_TOKENS
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=begin,
        eos_token=end,
        pad_token=end,
        unk_token=unknown,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=DIALOGUES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tokenizer = make_tokenizer(texts_of(options.family), WORDS[options.family], VOCABULARY[options.family])
    torch.manual_seed(options.seed)
    shape = SHAPE | {"vocab_size": len(tokenizer), "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    model = LlamaForCausalLM(LlamaConfig(**shape, dtype=torch.float32))
    model.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)
    num_weights = sum(weights.numel() for weights in model.parameters())
    print(json.dumps({"folder": str(options.folder), "num_weights": num_weights, "num_tokens": len(tokenizer)}))


if __name__ == "__main__":
    main()
