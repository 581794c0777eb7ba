"""Tokens as pieces of text, with the `tokenizers` library alone. Joined, the pieces are the text."""

import codecs
import functools
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders

from skyrl_nat.service.run_folders import RunFolder

FILE = "tokenizer.json"
LONGEST_WAIT = 64
"""Tokens in a row that may end within a character before their text is given as it is."""
_HALF = "\ufffd"


def _byte_signs() -> dict[str, int]:
    """Return which byte each character of a byte-level vocabulary stands for: itself where it can be printed."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_signs()


class TokenTexts:
    """The tokenizer of one run."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Take a tokenizer."""
        self._tokenizer = tokenizer
        self._markup = frozenset(tokenizer.get_added_tokens_decoder())

    def is_markup(self, token_id: int) -> bool:
        """Return whether a token is one that templates write and text does not hold, for instance `<|im_end|>`."""
        return token_id in self._markup

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """Return the text that each token completes.

        A character whose bytes are spread over several tokens is the piece of the last one, the others are empty;
        bytes that are no text become U+FFFD.
        """
        if isinstance(self._tokenizer.decoder, decoders.ByteLevel):
            return self._pieces_of_bytes(token_ids)
        found: list[str] = []
        begin = read = 0
        before = ""
        for end in range(1, len(token_ids) + 1):
            # What comes before is decoded again: some decoders drop the blank that begins a text.
            text = self._decode(token_ids[begin:end])
            if text.endswith(_HALF) and end - read < LONGEST_WAIT and end < len(token_ids):
                found.append("")
                continue
            found.append(text[len(before) :])
            begin, read = read, end
            before = self._decode(token_ids[begin:end])
        return found

    def _pieces_of_bytes(self, token_ids: Sequence[int]) -> list[str]:
        """Return the pieces where each token stands for bytes."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        found = [decoder.decode(self._bytes_of(token_id)) for token_id in token_ids]
        if found:
            found[-1] += decoder.decode(b"", final=True)
        return found

    def _bytes_of(self, token_id: int) -> bytes:
        token = self._tokenizer.id_to_token(token_id) or ""
        if token_id in self._markup:
            return token.encode()
        return bytes(_BYTES[sign] for sign in token if sign in _BYTES)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)


def open_texts(run: RunFolder) -> TokenTexts | None:
    """Return the tokenizer of a run: its own copy, or the one of the model it began with; None without either."""
    own = run.file(FILE)
    if own is None:
        model = run.config().get("model")
        path = model.get("path") if isinstance(model, dict) else None
        own = Path(path) / FILE if isinstance(path, str) else None
    try:
        if own is None or not own.is_file():
            return None
        return _open(own, own.stat().st_mtime_ns)
    # The library raises Exception itself for a broken file.
    except Exception:  # noqa: BLE001
        return None


@functools.lru_cache(maxsize=4)
def _open(path: Path, changed: int) -> TokenTexts:
    del changed
    return TokenTexts(Tokenizer.from_file(str(path)))
