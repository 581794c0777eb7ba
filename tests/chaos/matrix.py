"""All chains against one undisturbed run."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos.armed import HANGS
from chaos.cells import BLOCK, Chain
from chaos.drive import ChainRun, Result
from chaos.judge import Record, complaints, complaints_of_stall, complaints_of_whole


def play_all(
    chains: Sequence[Chain], work: Path, report: Callable[[Result], None], num_at_once: int = 1
) -> Iterator[list[Result]]:
    """Play an undisturbed run and every chain, and judge them; whoever stops taking results ends all runs.

    Args:
        chains: What to play; those without cells are left out.
        work: An empty folder.
        report: Gets each result as soon as its outcome is known, before it is judged.
        num_at_once: Chains that are played at once: most of the time a run waits for a deadline.

    Yields:
        The judged results of each chain, in order.
    """
    chains = [chain for chain in chains if chain.cells]
    longest = max(chain.num_steps for chain in chains)
    undisturbed = play_undisturbed(longest, work)
    runs = [ChainRun(chain, work) for chain in chains]
    with ThreadPoolExecutor(num_at_once) as pool:
        try:
            yield from pool.map(lambda run: play_chain(run, undisturbed, report), runs)
        finally:
            for run in runs:
                run.cut_off()


def play_undisturbed(num_steps: int, work: Path) -> Record:
    """Return what a run without faults is."""
    reference = ChainRun(Chain(name="undisturbed", cells=()), work)
    record = Record.read(reference.play(num_steps=num_steps))
    wrong = reference.complaints + complaints_of_whole(record)
    wrong += complaints(record, record, range(1, num_steps + 1), is_exact=True)
    if wrong:
        raise AssertionError(f"the undisturbed run must be in order, found {wrong[:5]}")
    return record


def play_chain(played: ChainRun, undisturbed: Record, report: Callable[[Result], None]) -> list[Result]:
    """Play and judge one chain; what is wrong with the run as a whole is said of its last cell."""
    chain, results = played.chain, played.results
    try:
        record = Record.read(played.play(report))
    except (OSError, AssertionError, ImportError, subprocess.SubprocessError) as error:
        for result in results:
            result.complaints.append(f"the chain could not be played: {type(error).__name__}: {error}")
        return results
    for number, result in enumerate(results):
        first = chain.first_step(number)
        result.complaints += complaints(
            record,
            undisturbed,
            range(first + 1, first + BLOCK + 1),
            is_exact=chain.is_exact,
            staleness=chain.staleness,
        )
        if result.cell.fault == HANGS:
            step = first + result.cell.offset + 1
            result.complaints += complaints_of_stall(record, step, *result.cell.point, chain.staleness)
    results[-1].complaints += played.complaints + complaints_of_whole(record)
    return results
