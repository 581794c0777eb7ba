"""How far every type of GGUF file is from the trainer: what the tolerances of an export's test stand on.

SmolLM2-135M-Instruct is exported by `skyrl-nat export --format gguf` in every type, and tested as always. The package
carries that model in Q4_1, on whose grid some types lose hardly anything, and its rows of 576 numbers take no K quants.
So it is exported as it is, and once more with every number moved within half a step of that grid, and widened by zeros
to rows of 768, which changes no answer.

usage: python benchmarks/export_tolerances.py [--types Q4_K_M,Q8_0] [--output benchmarks/results/export_tolerances.json]
"""

import argparse
import json
import math
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from bars import versions
from gguf import GGUFReader
from safetensors.torch import load_file, save_file
from torch import Tensor

from skyrl_nat.checkpoint.pretrained import BUILTIN_NAME, resolve_model, write_hf_folder
from skyrl_nat.cli import main as skyrl_nat
from skyrl_nat.export.equality import TOLERANCES, Tolerance
from skyrl_nat.export.llama_tools import QUANTISATIONS, VERSION

HERE = Path(__file__).resolve().parent
PLAIN = ["environment.validation_files=[]"]
"""No held-out tasks: plain questions are asked, whose answers have more places in which another token is as good."""
BLOCK, STEPS = 32, 15
"""Numbers of a block in Q4_1, and steps between its smallest and its largest."""
HEAD = 64
OLD, NEW = 576, 768
OLD_KV, NEW_KV = 3 * HEAD, 4 * HEAD


def off_the_grid(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return a matrix with every number moved by at most half a step of its block in Q4_1."""
    if tensor.dim() < 2:
        return tensor
    blocks = tensor.reshape(-1, BLOCK)
    step = (blocks.amax(1, keepdim=True) - blocks.amin(1, keepdim=True)) / STEPS
    return (blocks + step * (torch.rand(blocks.shape, generator=generator) - 0.5)).reshape(tensor.shape)


def widened(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor of the same function with rows of 768 numbers.

    Three query heads and one key and value head more see nothing and say nothing. A norm divides by the root of the
    mean over more numbers, and makes up for it in its weight.
    """
    sizes = {OLD: NEW, OLD_KV: NEW_KV}
    larger = torch.zeros([sizes.get(size, size) for size in tensor.shape])
    larger[tuple(slice(size) for size in tensor.shape)] = tensor
    return larger * math.sqrt(OLD / NEW) if "norm" in name else larger


def write_moved(folder: Path) -> Path:
    """Write the moved and widened model."""
    source = resolve_model(BUILTIN_NAME)
    generator = torch.Generator().manual_seed(0)
    tensors = load_file(source / "model.safetensors")
    moved = {name: widened(name, off_the_grid(tensor, generator)) for name, tensor in tensors.items()}
    write_hf_folder(folder, source, {}, "float32")
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": NEW, "num_attention_heads": NEW // HEAD, "num_key_value_heads": NEW_KV // HEAD}
    config["rms_norm_eps"] *= OLD / NEW
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def shares(file: Path) -> dict[str, float]:
    """Return the share of the weights in each type that llama.cpp chose."""
    count: Counter[str] = Counter()
    for tensor in GGUFReader(file).tensors:
        count[tensor.tensor_type.name] += int(tensor.n_elements)
    return {name: round(number / count.total(), 4) for name, number in count.most_common()}


def measure(model: str, types: list[str], out: Path) -> dict[str, Any]:
    """Export once and return what the test found of each type."""
    form = ["--format", "gguf", "--engines", "gguf", "--quantise", ",".join(types)]
    code = skyrl_nat(["export", model, str(out), *form, *PLAIN])
    if code:
        raise SystemExit(code)
    test = json.loads((out / "equality.json").read_text())
    found = {
        each["engine"].removeprefix("gguf "): {name: each[name] for name in ("mean", "agreement", "worst")}
        for each in test["engines"]
    }
    for name, each in found.items():
        (file,) = out.glob(f"*-{name}.gguf")
        each |= {"mib": round(file.stat().st_size / 2**20, 1), "types": shares(file)}
    shutil.rmtree(out)
    return {"prompts": len(test["trainer"]), "places": test["engines"][0]["num_places"], "found": found}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default=",".join(QUANTISATIONS))
    parser.add_argument("--output", type=Path, default=HERE / "results" / "export_tolerances.json")
    options = parser.parse_args()
    types = options.types.split(",")
    for name in types:  # measured, not judged
        TOLERANCES[name] = Tolerance(mean=math.inf, agreement=0.0)
    with tempfile.TemporaryDirectory() as folder:
        out, moved = Path(folder) / "out", str(write_moved(Path(folder) / "moved"))
        results = {"as it is": measure(BUILTIN_NAME, types, out), "moved and widened": measure(moved, types, out)}
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": versions() | {"llama-cpp-python": VERSION},
        "command": "python benchmarks/export_tolerances.py",
        "work": "SmolLM2-135M-Instruct in fp32, plain questions; differences in nats",
        "results": results,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
