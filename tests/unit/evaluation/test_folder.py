"""An evaluation that was stopped goes on, and another one is never mixed into it."""

import json
import math
from pathlib import Path

import pytest
from evaluated import group

from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.evaluation.folder import ABOUT, GREEDY, TIMING, EvaluationFolder, require_free

PLAYED = [group(0, [1.0]), group(1, [0.5]), group(2, [0.25])]


def opened(folder: Path, **about) -> EvaluationFolder:
    return EvaluationFolder(folder, {"model": "m", "seed": 0, **about})


def test_what_was_played_before_a_kill_is_there(tmp_path):
    """In any order; the last line may be torn, and a group without all its lines is played again."""
    before = opened(tmp_path / "e")
    for one in (PLAYED[2], PLAYED[0]):
        before.keep(GREEDY, one)
    with (tmp_path / "e" / "greedy.part.jsonl").open("ab") as file:
        file.write(b'{"rollout_id": "eval-1-0", "tas')
    kept = opened(tmp_path / "e").kept(GREEDY)
    assert sorted(kept) == [0, 2]
    assert kept[2].rollouts[0].reward == PLAYED[2].rollouts[0].reward


def test_of_a_group_of_several_a_part_is_nothing(tmp_path):
    folder = opened(tmp_path / "e")
    folder.keep("sampled", group(0, [1.0, 0.0]))
    folder.keep("sampled", group(1, [1.0, 0.0]))
    path = tmp_path / "e" / "sampled.part.jsonl"
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:3]) + b"\n")
    assert sorted(folder.kept("sampled", num_rollouts=2)) == [0]


def test_tasks_without_a_verdict_are_played_again(tmp_path):
    """EV-08: infrastructure errors are run again, in an evaluation that was ended, too."""
    folder = opened(tmp_path / "e")
    folder.finish(GREEDY, [PLAYED[0], group(1, [None])])
    assert sorted(folder.kept(GREEDY)) == [0]
    folder.keep(GREEDY, PLAYED[1])
    assert sorted(opened(tmp_path / "e").kept(GREEDY)) == [0, 1]


def test_seconds_are_apart_and_the_rest_is_the_same_bytes(tmp_path):
    folders = [opened(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        folder.finish(GREEDY, PLAYED)
    first, second = ((tmp_path / name / "greedy.jsonl").read_bytes() for name in ("a", "b"))
    assert first == second
    assert json.loads((tmp_path / "a" / TIMING).read_text())[GREEDY]["rollout/generate_s/mean"] == 0.5
    again = opened(tmp_path / "a")
    kept = again.kept(GREEDY)
    assert all(math.isnan(one.score_s) for one in kept.values())
    again.finish(GREEDY, list(kept.values()))
    assert (tmp_path / "a" / "greedy.jsonl").read_bytes() == first
    assert json.loads((tmp_path / "a" / TIMING).read_text())[GREEDY]["rollout/generate_s/mean"] == 0.5
    assert not (tmp_path / "a" / "greedy.part.jsonl").exists()


def test_another_evaluation_is_refused_by_what_differs(tmp_path):
    opened(tmp_path / "e")
    with pytest.raises(ConfigError, match=r"--out must be a folder of the same evaluation.* another model, seed\."):
        EvaluationFolder(tmp_path / "e", {"model": "other", "seed": 1})


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds neither"):
        require_free(tmp_path)
    with pytest.raises(ConfigError, match="holds neither"):
        opened(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="must be a folder"):
        require_free(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "thesis.txt"]


def test_a_broken_word_about_it_is_one_sentence(tmp_path):
    (tmp_path / ABOUT).write_text("[1]")
    with pytest.raises(DataError, match=r"about\.json must be a JSON object"):
        opened(tmp_path)
