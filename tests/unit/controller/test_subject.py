"""What `skyrl-nat evaluate` takes what it was given for."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_model import make_tiny_model

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.controller.subject import opened
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import Task


def make_run(folder: Path) -> Path:
    run = folder / "runs" / "mine"
    run.mkdir(parents=True)
    save_config(load_config(["seed=7"]), run / "config.yaml")
    return run


def test_a_run_keeps_its_config_name_and_folder(tmp_path):
    run = make_run(tmp_path)
    with opened(str(run), "best", ["evaluation.num_tasks=3"]) as subject:
        assert (subject.is_run, subject.name, subject.config.seed) == (True, "mine", 7)
        assert (subject.config.run_dir, subject.config.resume) == (run, "best")
        assert subject.config.evaluation.num_tasks == 3
        one, other = subject.folder({"step": 12, "seed": 0}), subject.folder({"step": 12, "seed": 1})
        assert one.parent == other.parent == run / "evaluations"
        assert one.name.startswith("step_000012-") and one != other
        assert subject.scratch.parent == run
    assert [path.name for path in run.iterdir()] == ["config.yaml"]


def test_a_checkpoint_is_one_of_its_run(tmp_path):
    run = make_run(tmp_path)
    manager = CheckpointManager(run / "checkpoints")
    part = manager.begin(3)
    (part / "data.bin").write_text("weights")
    checkpoint = manager.commit(part, {"step": 3})
    with opened(str(checkpoint), "latest", []) as subject:
        assert (subject.is_run, subject.name, subject.config.resume) == (True, "mine", str(checkpoint))


def test_a_model_is_played_with_the_given_config_and_leaves_no_run(tmp_path):
    model = make_tiny_model(tmp_path / "model")
    with opened(str(model), "latest", ["seed=3", f"root_dir={tmp_path / 'runs'}"]) as subject:
        config = subject.config
        assert (subject.is_run, subject.name, config.seed, config.model.path) == (False, "model", 3, str(model))
        assert config.resume == "never" and config.tracking.backends == []
        folder = subject.folder({"step": 0})
        assert folder.parent == tmp_path / "runs" / "evaluations" and folder.name.startswith("model-")
    assert not (tmp_path / "runs").exists()


def test_two_models_tasks_or_seeds_are_about_different_things(tmp_path):
    def about(model: Path, seed: int = 0, hidden: str = "x", samples: int = 0) -> dict:
        task = Task(task_id="t", family="f", payload={}, hidden={"answer": hidden})
        run = SimpleNamespace(
            step=0, started_from=None, model_path=model, data=SimpleNamespace(validation_tasks=[task])
        )
        with opened(str(model), "latest", [f"seed={seed}"]) as subject:
            return subject.about(run, samples)  # type: ignore[arg-type]

    one, two = make_tiny_model(tmp_path / "a" / "model", seed=0), make_tiny_model(tmp_path / "b" / "model", seed=1)
    same = make_tiny_model(tmp_path / "c" / "model", seed=0)
    assert about(one) == about(same)
    assert [name for name, value in about(one).items() if about(two)[name] != value] == ["weights"]
    assert [name for name, value in about(one).items() if about(one, seed=1)[name] != value] == ["seed"]
    assert [name for name, value in about(one).items() if about(one, hidden="y")[name] != value] == ["tasks"]
    assert [name for name, value in about(one).items() if about(one, samples=4)[name] != value] == ["samples"]


def test_a_gguf_file_is_played_by_its_own_engine_with_the_named_tokenizer(tmp_path):
    model, file = make_tiny_model(tmp_path / "model"), tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    with opened(str(file), "latest", [f"model.path={model}"]) as subject:
        config = subject.config
        assert (config.engine.kind, config.engine.gguf) == (EngineKind.gguf, str(file))
        assert (config.model.path, subject.is_run, subject.name) == (str(model), False, "tiny.gguf")


def test_a_checkpoint_is_asked_of_runs_only(tmp_path):
    with (
        pytest.raises(ConfigError, match="--checkpoint must be used with a run's folder"),
        opened(str(make_tiny_model(tmp_path / "model")), "best", []),
    ):
        pass
