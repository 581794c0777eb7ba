"""The random numbers of one process as tensors: torch's, the GPU's, Python's and NumPy's."""

import hashlib
import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

_PYTHON_WORDS = 625
_NUMPY_WORDS = 624


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """Return copies of all states, by kind.

    Args:
        device: Of this rank; its generator is among them if it is a GPU.

    Returns:
        `torch` and `cuda`, bytes; `host`, `[1254]` numbers of Python's and NumPy's generators, exact in fp64.
    """
    _, python, gauss = random.getstate()
    _, numpy, *rest = np.random.get_state(legacy=True)
    numbers = [*python, gauss is not None, gauss or 0.0, *map(int, numpy), *rest]
    states = {"torch": torch.get_rng_state(), "host": torch.tensor(numbers, dtype=torch.float64)}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Go on from states of `random_tensors`."""
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    numbers = states["host"].tolist()
    python, (has_gauss, gauss), rest = (
        numbers[:_PYTHON_WORDS],
        numbers[_PYTHON_WORDS:][:2],
        numbers[_PYTHON_WORDS + 2 :],
    )
    random.setstate((3, tuple(map(int, python)), gauss if has_gauss else None))
    place, has_gauss, cached = rest[_NUMPY_WORDS:]
    np.random.set_state(("MT19937", np.array(rest[:_NUMPY_WORDS], dtype=np.uint32), int(place), int(has_gauss), cached))


def seed_random(seed: int) -> None:
    """Begin anew, in all generators of this process.

    Args:
        seed: At least 0 and below 2^32.
    """
    torch.manual_seed(seed)  # of GPUs too
    random.seed(seed)
    np.random.seed(seed)


def new_seed(seed: int, step: int, rank: int) -> int:
    """Return a seed below 2^32 that these three alone decide; those of neighbours have nothing in common."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step} {rank}".encode()).digest()[:4], "big")
