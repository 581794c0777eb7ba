"""A random two-layer Llama with a real tokenizer, as a Hugging Face folder, in well under two seconds."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
"""Ids 0, 1 and 2, as in SmolLM2: unknown, begin, end (also the padding token)."""
TINIEST = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
"""Shape of models of other kinds than Llama, of which only the kind matters."""

_LINES = [
    "user assistant system the agent uses a tool and returns the answer",
    '{"name": "add", "arguments": {"a": 1, "b": 2}}',
    "def run(value: int) -> int:\n    return value + 1\n",
]


def make_tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer of 300 ids with a ChatML template."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_LINES, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_tiny_model(
    folder: str | Path,
    seed: int = 0,
    *,
    hidden_size: int = 32,
    num_heads: int = 4,
    num_layers: int = 2,
    tie_word_embeddings: bool = True,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Path:
    """Write a random Llama (2 key/value heads; about 20k parameters by default) and its tokenizer.

    Args:
        folder: Created if missing.
        seed: Seed of the weights; the caller's random state is left alone.
        hidden_size: Width; a multiple of twice the heads.
        num_heads: Query heads; even.
        num_layers: Decoder layers.
        tie_word_embeddings: Share the embedding with the LM head.
        tokenizer: A real one, with the same ids of begin and end, where the tiny one will not do.

    Returns:
        The folder.
    """
    folder = Path(folder)
    tokenizer = tokenizer or make_tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=tie_word_embeddings,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        initializer_range=0.2,
        dtype=torch.float32,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
