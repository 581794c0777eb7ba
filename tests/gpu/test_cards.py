"""On two GPUs: whoever made the list of visible devices, each worker computes on a card of its own."""

import os
import subprocess
import sys

import pytest
import torch

from skyrl_nat.cluster.placement import visible_devices

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
SHOW = "import torch; print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid)"


def card_of(number: int) -> str:
    return str(torch.cuda.get_device_properties(number).uuid)


def start_worker(rank: int, inherited: str | None) -> subprocess.Popen[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible_devices(str(rank), inherited)}
    return subprocess.Popen([sys.executable, "-c", SHOW], env=environment, stdout=subprocess.PIPE, text=True)


def test_two_workers_compute_on_two_cards_in_the_order_of_the_list() -> None:
    """RY-05."""
    cards = [card_of(0), card_of(1)]
    lists = {None: [0, 1], "": [0, 1], "0,1": [0, 1], "1,0": [1, 0], f"GPU-{cards[1]},GPU-{cards[0]}": [1, 0]}
    workers = {(inherited, rank): start_worker(rank, inherited) for inherited in lists for rank in (0, 1)}
    found = {key: worker.communicate(timeout=120)[0].split() for key, worker in workers.items()}
    for inherited, order in lists.items():
        assert [found[inherited, rank] for rank in (0, 1)] == [["1", cards[number]] for number in order], inherited
