"""What is read back from a GGUF file without llama.cpp."""

from pathlib import Path

import gguf
import numpy as np

from skyrl_nat.export.gguf import warnings_of_types


def write(file: Path, **matrices: tuple[int, gguf.GGMLQuantizationType]) -> Path:
    """Write a file of zeros with two rows in each matrix, of so many numbers and of that type."""
    writer = gguf.GGUFWriter(file, "llama")
    for name, (row, kind) in matrices.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor(name, np.zeros((2, row // block * size), np.uint8), raw_dtype=kind)
    writer.add_tensor("norm", np.zeros(64, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_a_file_in_k_quants_says_what_llama_cpp_could_not_take(tmp_path: Path) -> None:
    kinds = gguf.GGMLQuantizationType
    mixed = write(tmp_path / "mixed.gguf", down=(512, kinds.Q4_K), up=(1536, kinds.Q5_0))
    assert warnings_of_types({"Q4_K_M": mixed}) == [], "both rows are multiples of 256"
    odd = write(tmp_path / "odd.gguf", down=(512, kinds.Q4_K), up=(576, kinds.Q5_0), out=(64, kinds.Q8_0))
    (told,) = warnings_of_types({"Q4_K_M": odd, "Q8_0": odd})
    assert told == "odd.gguf holds 56% of its weights as Q5_0, Q8_0: their rows are no multiple of 256"
