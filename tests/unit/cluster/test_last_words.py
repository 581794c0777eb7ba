"""What is told of a worker that died."""

from pathlib import Path

from skyrl_nat.cluster.last_words import LONGEST_LINE, MEMORY_HINT, num_memory_kills, read_end, with_hint

DIED = "\nThe actor died unexpectedly before finishing this task.\n\tclass_name: AsyncHost\n"


def test_end_of_the_log_is_what_the_worker_wrote_last_without_rays_own_lines(tmp_path: Path) -> None:
    log = tmp_path / "worker.err"
    log.write_text(f":job_id:01000000\none\n\ntwo\n[2026-11-29 W 1 2] core_worker\nthree\n{'x' * 999}\n")
    assert read_end(log) == ["two", "three", "x" * LONGEST_LINE]
    assert read_end(tmp_path / "gone")[0].startswith("(it cannot be read")


def test_worker_that_said_why_gets_no_word_on_memory() -> None:
    """RY-07."""
    told = with_hint(DIED, ["  raise ValueError", "ValueError: no"], 0)
    assert told == (
        "The actor died unexpectedly before finishing this task; its log ends with:   raise ValueError / ValueError: no"
    )


def test_memory_is_named_when_the_kernel_or_ray_ended_a_process_for_it() -> None:
    """RY-07."""
    for told in (
        with_hint(DIED, ["ValueError: no"], 1),
        with_hint("Task was killed: node running low on memory.", [], 0),
    ):
        assert told.endswith(f"; its node ran out of memory. {MEMORY_HINT}")


def test_silent_end_suggests_a_look_at_the_memory() -> None:
    """RY-07."""
    assert "it left no traceback, as when the kernel ends a process for want of memory" in with_hint(DIED, ["hi"], 0)


def test_kills_are_a_count() -> None:
    assert num_memory_kills() >= 0
