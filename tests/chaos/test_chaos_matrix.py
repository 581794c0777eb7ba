"""The part of the fault matrix that CI runs: real runs, real signals. `scripts/chaos_matrix.py` runs all of it."""

import os

import pytest
from chaos.cells import CHAINS
from chaos.drive import Result, only
from chaos.matrix import play_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FAST = [only(chain, lambda cell: cell.is_fast) for chain in CHAINS if not chain.needs_root or os.geteuid() == 0]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Result]:
    found = play_all(FAST, tmp_path_factory.mktemp("chaos"), lambda result: None)
    return {(result.chain, result.cell.name): result for results in found for result in results}


@pytest.mark.parametrize(("chain", "cell"), [(chain.name, cell.name) for chain in FAST for cell in chain.cells])
def test_the_run_goes_on_or_ends_in_one_named_error_and_is_the_undisturbed_one(results, chain: str, cell: str):
    """Names of cells are fault, victim and phase."""
    result = results[chain, cell]
    assert not result.complaints, f"{result.outcome}: {result.verdict}"


def test_the_matrix_has_every_fault_in_every_phase_that_it_can_strike():
    """At least forty cells, no two of one name."""
    names = [f"{chain.name} / {cell.name}" for chain in CHAINS for cell in chain.cells]
    assert len(names) == len(set(names)) >= 40
    for fault in ("SIGKILL", "SIGSTOP", "hangs", "SIGTERM twice", "clock", "exception", "garbage", "corrupted"):
        phases = {cell.phase for chain in CHAINS for cell in chain.cells if fault in cell.name}
        assert {"rollout", "evaluation"} <= phases, fault
