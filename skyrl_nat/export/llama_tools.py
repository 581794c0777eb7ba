"""llama.cpp as PyPI packages it: its own converter, from the sources of llama-cpp-python, and its own quantiser."""

import ctypes
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.checkpoint.pretrained import cache_folder, locked
from skyrl_nat.errors import ConfigError, ExportError

VERSION = "0.3.36"
"""Of llama-cpp-python, whose sources hold the converter that belongs to the llama.cpp it is compiled from."""
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
"""Of those sources."""
CONVERTER = "convert_hf_to_gguf.py"
_TAKEN = (CONVERTER, "LICENSE", "conversion/", "gguf-py/gguf/")
QUANTISATIONS = (
    "Q2_K",
    "Q3_K_S",
    "Q3_K_M",
    "Q3_K_L",
    "Q4_0",
    "Q4_1",
    "Q4_K_S",
    "Q4_K_M",
    "Q5_0",
    "Q5_1",
    "Q5_K_S",
    "Q5_K_M",
    "Q6_K",
    "Q8_0",
    "BF16",
    "F16",
    "F32",
)
"""What a GGUF file's weights may be."""
NUM_LINES = 6
"""Of a program's output that an error shows."""


def convert(folder: Path, file: Path, form: str) -> None:
    """Write a GGUF file of a Hugging Face folder with llama.cpp's converter, which reads one tensor at a time.

    Args:
        folder: A whole model.
        file: To write.
        form: `F32`, `F16` or `BF16`.

    Raises:
        ConfigError: The converter cannot be had.
        ExportError: It refuses the model.
    """
    command = [sys.executable, str(_converter()), str(folder), "--outfile", str(file), "--outtype", form.lower()]
    # Nothing of the model is looked up elsewhere.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode or not file.is_file():
        raise ExportError(
            f"llama.cpp's converter must take the model, but: {_last_lines(done.stderr)}. It knows the architectures "
            "and tokenizers of its own list; export another format"
        )


def quantise(source: Path, target: Path, form: str) -> None:
    """Write a GGUF file in another format with llama.cpp's quantiser.

    Args:
        source: Of converted weights.
        target: To write.
        form: One of `QUANTISATIONS`.

    Raises:
        ConfigError: llama-cpp-python is not installed.
        ExportError: llama.cpp refuses.
    """
    library = require_library()
    from llama_cpp._logger import llama_log_callback

    told: list[str] = []

    @library.llama_log_callback
    def keep(level: int, text: bytes, data: Any) -> None:
        told.append(text.decode(errors="replace"))

    parameters = library.llama_model_quantize_default_params()
    parameters.ftype = getattr(library, "LLAMA_FTYPE_ALL_F32" if form == "F32" else f"LLAMA_FTYPE_MOSTLY_{form}")
    parameters.nthread = os.cpu_count() or 1
    library.llama_log_set(keep, ctypes.c_void_p(0))
    try:
        code = library.llama_model_quantize(os.fsencode(source), os.fsencode(target), ctypes.byref(parameters))
    finally:
        # The package's own, which lives as long as the library: one that is collected would be called none the less.
        library.llama_log_set(llama_log_callback, ctypes.c_void_p(0))
    if code or not target.is_file():
        raise ExportError(
            f"llama.cpp must quantise {source.name} to {form}, but: {_last_lines(''.join(told))}. Choose another "
            "--quantise"
        )


def tokens_of(file: Path, texts: Sequence[str], *, adds_bos: bool = False) -> list[list[int]]:
    """Return what llama.cpp makes of texts, special tokens in them included.

    Args:
        file: GGUF; only its vocabulary is read.
        texts: To cut.
        adds_bos: Put the start token before each, if the file says so.
    """
    llama = require_library().Llama(str(file), vocab_only=True, verbose=False)
    try:
        return [llama.tokenize(text.encode(), add_bos=adds_bos, special=True) for text in texts]
    finally:
        llama.close()


def require_library() -> Any:
    """Return the module `llama_cpp`.

    Raises:
        ConfigError: It is not installed, or of another version than the converter.
    """
    try:
        import llama_cpp
    except ImportError as error:
        raise ConfigError(
            "An export to GGUF needs the package llama-cpp-python, which is not installed. pip install "
            f"'skyrl-nat[gguf]'; it compiles llama.cpp, so that a C++ compiler must be there ({error})"
        ) from error
    if llama_cpp.__version__ != VERSION:
        raise ConfigError(
            f"An export to GGUF needs llama-cpp-python {VERSION}, found {llama_cpp.__version__}. pip install "
            "'skyrl-nat[gguf]'"
        )
    return llama_cpp


def _converter() -> Path:
    """Return the converter's path; fetched once, whatever number of processes asks at the same time.

    Raises:
        ConfigError: It cannot be fetched.
    """
    target = cache_folder() / f"llama.cpp-{VERSION}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent / f"{target.name}.lock"), tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            if not target.is_dir():
                _unpack(_download(Path(scratch)), Path(scratch) / "sources").rename(target)
    return target / CONVERTER


def _download(scratch: Path) -> Path:
    """Return llama-cpp-python's sources, from pip's cache if it was compiled here."""
    wanted = scratch / "requirements.txt"
    wanted.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    options = ["--no-deps", "--no-binary", "llama-cpp-python", "--require-hashes", "--dest", str(scratch), "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(scratch.glob("llama_cpp_python-*.tar.gz"))
    if done.returncode or not found:
        raise ConfigError(
            f"llama.cpp's converter must come from the sources of llama-cpp-python {VERSION} on PyPI, but: "
            f"{_last_lines(done.stderr)}. Without a network, copy {cache_folder()}/llama.cpp-{VERSION} from a machine "
            "that has one"
        )
    return found[0]


def _unpack(archive: Path, target: Path) -> Path:
    """Unpack what the converter needs and return its folder."""
    prefix = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/"
    with tarfile.open(archive) as opened:
        members = [
            member
            for member in opened.getmembers()
            if member.isfile() and member.name.removeprefix(prefix).startswith(_TAKEN) and member.name != prefix
        ]
        opened.extractall(target, [each for each in members if each.name.startswith(prefix)], filter="data")
    found = target / prefix
    if not (found / CONVERTER).is_file():
        raise ConfigError(f"The sources of llama-cpp-python {VERSION} must hold {CONVERTER}, {archive.name} does not")
    return Path(shutil.move(str(found), str(target.with_name("converter"))))


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-NUM_LINES:]) or "it said nothing"
