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
        `torch` and `cuda`, bytes; `host`, `[1253]` numbers of Python's and NumPy's generators, exact in fp64.
    """
    version, words, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    assert (version, name) == (3, "MT19937")
    python = [*words, float("nan") if gauss is None else gauss]
    numbers = [*python, *(float(key) for key in keys), place, has_gauss, cached]
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
    python, numpy = numbers[: _PYTHON_WORDS + 1], numbers[_PYTHON_WORDS + 1 :]
    gauss = None if python[-1] != python[-1] else python[-1]
    random.setstate((3, tuple(map(int, python[:-1])), gauss))
    keys = np.array(numpy[:_NUMPY_WORDS], dtype=np.uint32)
    place, has_gauss, cached = numpy[_NUMPY_WORDS:]
    np.random.set_state(("MT19937", keys, int(place), int(has_gauss), cached))


def seed_random(seed: int, step: int, rank: int) -> None:
    """Begin anew, with numbers that depend on these three alone and have nothing in common between ranks."""
    digest = hashlib.sha256(f"{seed} {step} {rank}".encode()).digest()
    number = int.from_bytes(digest[:4], "big")
    torch.manual_seed(number)  # of GPUs too
    random.seed(number)
    np.random.seed(number)
