"""What lies in conf/: every preset composes, and is what its name says."""

from pathlib import Path

import pytest

from skyrl_nat.config.load import config_dir, config_from_file, load_config, save_config
from skyrl_nat.data.specs import load_tasks


def presets(group: str) -> list[str]:
    return sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))


@pytest.mark.parametrize("algorithm", presets("algorithm"))
def test_every_algorithm_preset_composes_under_its_own_name(algorithm: str):
    recorded = ["environment.recorded_files=[train.jsonl]"] if algorithm in ("kto", "offline_grpo", "sft") else []
    assert load_config([f"algorithm={algorithm}", *recorded]).algorithm.name == algorithm


@pytest.mark.parametrize("experiment", presets("experiment"))
def test_every_experiment_composes_for_the_device_of_its_name_and_is_in_the_readme(experiment: str, tmp_path: Path):
    config = load_config([f"experiment={experiment}"])
    is_cpu = experiment.endswith("_cpu")
    assert config.cluster.device == ("cpu" if is_cpu else "cuda")
    assert (config.engine.dtype, config.model.compute_dtype) == (("float32",) * 2 if is_cpu else ("bfloat16",) * 2)
    save_config(config, tmp_path / "config.yaml")
    assert config_from_file(tmp_path / "config.yaml") == config
    tasks = load_tasks(config.environment.train_files, family=config.environment.family)
    steps = config.total_steps(len(tasks))
    assert steps >= config.evaluation.every_steps
    assert f"`{experiment}`" in (config_dir().parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("experiment", presets("experiment"))
def test_an_experiment_with_the_smallest_model_on_a_card_keeps_it_near_its_engine(experiment: str):
    """Plain bf16 is further away than the alarm allows (docs/gpu.md)."""
    config = load_config([f"experiment={experiment}"])
    model, engine = config.model, config.engine
    is_near = all((model.fp32_head, model.fp32_residual, engine.fp32_head, engine.fp32_residual))
    assert is_near or config.cluster.device == "cpu" or model.path != "smollm2-135m-instruct"


def test_dapo_preset_has_the_papers_bounds():
    algorithm = load_config(["algorithm=dapo"]).algorithm
    assert (algorithm.clip_low, algorithm.clip_high, algorithm.mask_truncated) == (0.2, 0.28, True)


def test_flow_grpo_is_on_policy_near_the_reference_and_stops_where_it_drifts_away():
    config = load_config(["algorithm=flow_grpo"])
    assert (config.trainer.staleness, config.trainer.updates_per_batch) == (0, 1)
    assert config.algorithm.kl_coefficient > 0
    assert (config.alarms.reference_kl_warn, config.alarms.reference_kl_stop) == (0.1, 0.5)


def test_agenthands_h100x8_is_what_its_name_says():
    config = load_config(["experiment=agenthands_h100x8"])
    assert config.model.path == "Qwen/Qwen2.5-Coder-32B-Instruct"
    assert config.cluster.num_gpus_per_node == 8
    assert (config.trainer.epochs, config.checkpoint.every_epochs) == (100, 10)
    assert "wandb" in config.tracking.backends
