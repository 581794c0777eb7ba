"""GGUF files of a Hugging Face folder, and what is read back from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from skyrl_nat.engines.model_folder import read_config, vocab_size
from skyrl_nat.errors import ConfigError, ExportError
from skyrl_nat.export import llama_tools

WHOLE_FORMATS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""Format of a checkpoint -> the one in which llama.cpp gets it."""
_CONTROL, _USER_DEFINED = 3, 4
"""`gguf.TokenType` of special tokens, and of other added ones."""
_K_BLOCK = 256
"""Numbers that a K quant takes together."""
_AROUND = ("{}", "a{}b", "x {} y", "{}{}", "\n{}\n")
"""Texts in which added tokens are looked for."""


def write_gguf(folder: Path, target: Path, name: str, quantisations: Sequence[str], scratch: Path) -> dict[str, Path]:
    """Write `<name>-<quantisation>.gguf` files, and check what is read back from them.

    Args:
        folder: A whole, complete Hugging Face folder.
        target: Folder of the files.
        name: Of the model.
        quantisations: Of `llama_tools.QUANTISATIONS`.
        scratch: For the file that all others are made of.

    Returns:
        Files by quantisation.

    Raises:
        ExportError: llama.cpp refuses, or something of the model is lost.
    """
    config = read_config(folder)
    whole = WHOLE_FORMATS.get(str(config.get("dtype") or config.get("torch_dtype")), "F32")
    first = scratch / f"{name}-{whole}.gguf"
    llama_tools.convert(folder, first, whole)
    check_gguf(first, folder)
    files: dict[str, Path] = {}
    for form in quantisations:
        files[form] = target / f"{name}-{form}.gguf"
        if form == whole:
            first.rename(files[form])
            first = files[form]
        else:
            llama_tools.quantise(first, files[form], form)
            check_gguf(files[form], folder)
    if first.parent == scratch:
        first.unlink()
    return files


def warnings_of_types(files: Mapping[str, Path]) -> list[str]:
    """Return which files hold weights in another type than their name says.

    K quants work on blocks of 256 numbers; where a row is no multiple of that, llama.cpp takes a larger type.

    Args:
        files: By quantisation.
    """
    told: list[str] = []
    for form, file in files.items():
        matrices = [tensor for tensor in _reader(file).tensors if len(tensor.shape) > 1]
        others = [tensor for tensor in matrices if int(tensor.shape[0]) % _K_BLOCK] if "_K" in form else []
        share = sum(int(tensor.n_elements) for tensor in others) / sum(int(tensor.n_elements) for tensor in matrices)
        if others:
            types = ", ".join(sorted({str(tensor.tensor_type.name) for tensor in others}))
            told.append(
                f"{file.name} holds {share:.0%} of its weights as {types}: their rows are no multiple of {_K_BLOCK}"
            )
    return told


def check_gguf(file: Path, folder: Path) -> None:
    """Refuse a file whose tokens or chat template are not those of the Hugging Face folder.

    The rows of the embedding that the tokenizer has no token for are named `[PAD<id>]` by the converter.

    Raises:
        ExportError: With all that differs.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    faults = [*_table_faults(file, vocab_size(folder), tokenizer), *_encoding_faults(file, tokenizer)]
    if faults:
        raise ExportError(
            f"{file.name} must hold the tokens and the chat template of the model, but {'; '.join(faults[:8])}. "
            "Nothing was exported"
        )


def _table_faults(file: Path, wanted: int, tokenizer: Any) -> list[str]:
    """Return what differs in the tables of a file."""
    reader = _reader(file)
    tokens: list[str] = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds: list[int] = reader.fields["tokenizer.ggml.token_type"].contents()
    rows = next(int(tensor.shape[1]) for tensor in reader.tensors if tensor.name == "token_embd.weight")
    faults = [] if len(tokens) == rows == wanted else [f"{len(tokens)} tokens, {rows} rows, vocab_size={wanted}"]
    template = reader.fields.get("tokenizer.chat_template")
    if (template.contents() if template else "") != str(tokenizer.chat_template or ""):
        faults.append("its chat template is another one")
    for number, added in tokenizer.added_tokens_decoder.items():
        if number >= len(tokens) or kinds[number] not in (_CONTROL, _USER_DEFINED):
            faults.append(f"added token {added.content!r} ({number}) is not marked as one")
        elif added.special and kinds[number] != _CONTROL:
            faults.append(f"special token {added.content!r} ({number}) is an ordinary one")
    return faults


def _encoding_faults(file: Path, tokenizer: Any) -> list[str]:
    """Return texts that llama.cpp cuts into other tokens than the tokenizer does."""
    texts = [form.format(*[added.content] * 2) for added in tokenizer.added_tokens_decoder.values() for form in _AROUND]
    dialogue = [{"role": "user", "content": "Add 1234 and 5,\n\tplease: naïve, 你好 🙂!"}]
    if tokenizer.chat_template:
        texts.append(str(tokenizer.apply_chat_template(dialogue, tokenize=False, add_generation_prompt=True)))
    expected = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    return [
        f"{text!r} becomes the tokens {found[:12]} instead of {wanted[:12]}"
        for text, found, wanted in zip(texts, llama_tools.tokens_of(file, texts), expected, strict=True)
        if found != wanted
    ]


def _reader(file: Path) -> Any:
    try:
        from gguf import GGUFReader  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise ConfigError(
            "An export to GGUF needs the package gguf, which is not installed. pip install 'skyrl-nat[gguf]'"
        ) from error
    return GGUFReader(file)
