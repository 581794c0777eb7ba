"""A reward worker that takes its process along: it is started anew, with a bound, and in the end the run says why."""

from pathlib import Path

import dying_family
import pytest
import small_run
from chaos.family import remove_memory_groups
from letter_family import write_letter_tasks

from skyrl_nat.cluster.last_words import MEMORY_HINT

pytestmark = pytest.mark.long

MAX_RESTARTS = 2
LIMITS = (
    f"recovery.max_worker_restarts={MAX_RESTARTS}",
    "trainer.max_dropped_groups=4",
    "evaluation.before_and_after=false",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("judge")


def train(folder: Path, name: str, dies_at: int, how: str, *overrides: str) -> tuple[int, str, int]:
    """Train, and return exit code, output and how many processes have judged."""
    (folder / name).mkdir()
    log = folder / name / "judges"
    dies = (f"DIES_AT={dies_at}", f"DIES_HOW={how}", f"DIES_LOG={log}")
    tasks = write_letter_tasks(folder / name, dying_family.NAME)
    process = small_run.start(
        folder, f"name={name}", *LIMITS, *(f"cluster.environment.{text}" for text in dies), *tasks, *overrides
    )
    output, _ = process.communicate(timeout=300)
    return process.returncode, output, len(log.read_text().split())


@pytest.mark.timeout(400)
def test_one_that_exits_on_its_tenth_call_loses_no_step(folder: Path):
    """RY-07: 8 rollouts a step; those that were judged or waited when it went are judged again."""
    code, output, num_judges = train(folder, "tenth", 10, "exit", "trainer.steps=3")
    assert code == 0, output
    assert [entry["step"] for entry in small_run.metrics(folder, "tenth")] == [1, 2, 3]
    assert all(entry["rollout/num_valid"] == 8 for entry in small_run.metrics(folder, "tenth")), output
    assert 1 < num_judges <= 1 + MAX_RESTARTS


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", ["exit", "memory"])
def test_one_that_goes_on_every_call_ends_the_run_with_its_name_and_last_words(folder: Path, how: str):
    """RY-07: after the bound; who is killed without a word may have taken too much memory."""
    code, output, num_judges = train(folder, how, 1, how)
    remove_memory_groups()
    assert code == 3, output
    assert num_judges == 1 + MAX_RESTARTS
    said = [line for line in output.splitlines() if line.startswith("skyrl-nat: ")]
    assert len(said) == 1, output
    for words in ("reward 0 on node ", "must stay alive during `score`, it died: ", dying_family.LAST_WORDS):
        assert words in said[0]
    assert MEMORY_HINT in said[0]
    assert said[0].endswith("go on with resume=latest")
    assert "Traceback" not in output
    assert not small_run.metrics(folder, how), "a lost verdict is no reward"
