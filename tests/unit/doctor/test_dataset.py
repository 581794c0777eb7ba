"""Data sets that can be learned from, and broken ones: leaks, ids that come twice, files that are none."""

from pathlib import Path

from doctor_parts import config, verdicts, wrong

from skyrl_nat.config.run import RunConfig
from skyrl_nat.data.specs import write_tasks
from skyrl_nat.doctor.dataset import NUM_SAMPLED, Split, check_prompts, check_splits, check_steps, read_split
from skyrl_nat.types import Task


def task(name: str, number: int, difficulty: int = 1) -> Task:
    return Task(task_id=name, family="jira", payload={"issue": number}, difficulty=difficulty)


def read(folder: Path, tasks: list[Task], name: str = "tasks", *, max_difficulty: int = 5) -> Split:
    path = folder / f"{name}.parquet"
    write_tasks(tasks, path)
    return read_split([str(path)], family="jira", max_difficulty=max_difficulty)


def jira() -> RunConfig:
    return config("environment=jira", "environment.max_difficulty=3")


def good(folder: Path) -> tuple[Split, Split]:
    train = read(folder, [task(f"t{number}", number) for number in range(8)], "train")
    return train, read(folder, [task(f"v{number}", 100 + number) for number in range(2)], "validation")


def test_a_sound_set_passes(tmp_path: Path) -> None:
    checks = check_splits(jira(), *good(tmp_path))
    assert set(verdicts(checks).values()) == {"ok", "note"}


def test_an_id_in_both_splits_is_a_leak(tmp_path: Path) -> None:
    train, _ = good(tmp_path)
    held_out = read(tmp_path, [task("t3", 500), task("v1", 101)], "leaking")
    checks = {check.name: check for check in check_splits(jira(), train, held_out)}
    check = checks["held-out ids that are trained on"]
    assert (check.verdict, check.found, check.is_needed) == ("WRONG", "t3", True)
    assert checks["held-out tasks whose content is trained on"].verdict == "ok"


def test_the_same_request_under_another_id_is_a_leak(tmp_path: Path) -> None:
    train, _ = good(tmp_path)
    held_out = read(tmp_path, [task("v0", 3)], "leaking")
    checks = {check.name: check for check in check_splits(jira(), train, held_out)}
    assert checks["held-out tasks whose content is trained on"].found == "v0 is t3"
    assert checks["held-out ids that are trained on"].verdict == "ok"


def test_an_id_that_comes_twice_is_wrong_and_a_content_is_told(tmp_path: Path) -> None:
    _, held_out = good(tmp_path)
    train = Split(num_files=1, ids=["a", "b", "a"], contents={"a": b"1", "b": b"1"}, sample=[])
    checks = {check.name: check for check in check_splits(jira(), train, held_out)}
    assert checks["training tasks: ids that come twice"].found == "a (2x)"
    assert (checks["training tasks: contents that come twice"].found) == "1"


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_text("no parquet")
    split = read_split([str(broken), str(tmp_path / "missing.parquet")], family="jira", max_difficulty=5)
    checks = check_splits(jira(), split, good(tmp_path)[1])
    assert wrong(checks)[0] == "training tasks: files open, each row is a task"
    assert all(f"{name}.parquet" in split.fault for name in ("broken", "missing"))
    assert "\n" not in split.fault


def test_rows_of_another_family_and_sets_that_are_too_hard_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    write_tasks([task("a", 1)], path)
    other = read_split([str(path)], family="task_dag", max_difficulty=5)
    assert "must be task_dag, got jira" in other.fault
    hard = read(tmp_path, [task("a", 1, difficulty=5)], "hard", max_difficulty=3)
    assert (hard.ids, hard.num_left_out, hard.fault) == ([], 1, "")
    assert "training tasks: files open, each row is a task" in wrong(check_splits(jira(), hard, good(tmp_path)[1]))


def test_a_set_that_gives_no_step_is_wrong() -> None:
    few = config("trainer.steps=0", "trainer.epochs=1", "trainer.tasks_per_step=4")
    assert check_steps(few, 3).verdict == "WRONG"
    assert check_steps(few, 4).verdict == "ok"


def test_a_prompt_that_leaves_no_room_is_wrong() -> None:
    chosen = config()
    limit = chosen.rollout.max_total_tokens
    check = check_prompts(chosen, {"short": 10, "long": limit})
    assert (check.verdict, check.found.startswith(f"{limit} (long); 1 leave less than")) == ("WRONG", True)
    assert check_prompts(chosen, {"short": 10, "long": limit - 1}).verdict == "ok"


def test_a_sample_is_spread_over_the_whole_set(tmp_path: Path) -> None:
    split = read(tmp_path, [task(f"t{number}", number) for number in range(10 * NUM_SAMPLED)])
    assert [each.task_id for each in split.sample[:3]] == ["t0", "t10", "t20"]
    assert len(split.sample) == NUM_SAMPLED
