"""An export appears when it is complete and its test holds, and nothing of it before."""

import json
from pathlib import Path

import pytest
import torch
from exported_subjects import SETTINGS, STEP, local_topology, make_run
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

from skyrl_nat.cli import EXIT_BAD_INPUT, EXIT_FAILED, main
from skyrl_nat.export import exporting

ADAPTERS = ("model.lora.rank=4", "model.lora.targets=[q_proj,up_proj]")
QUICK = ("--engines", "hf", "--prompts", "2", "--tokens", "4")


@pytest.fixture(autouse=True)
def ranks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "start_topology", local_topology)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "plain", model)


@pytest.fixture(scope="module")
def lora_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "adapted", model, *ADAPTERS)


@pytest.fixture(scope="module")
def exported(lora_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run's adapters alone, and with their sum."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "start_topology", local_topology)
        assert export(lora_run, folder / "adapter", "--format", "lora") == 0
        assert export(lora_run, folder / "merged", "--format", "merged") == 0
    return folder


def export(subject: Path, folder: Path, *options: str) -> int:
    return main(["export", str(subject), str(folder), *QUICK, *options])


def record(folder: Path) -> dict:
    return json.loads((folder / "export.json").read_text())


def test_a_run_becomes_a_folder_with_its_card_and_its_test(run: Path, model: Path, tmp_path: Path):
    assert export(run, tmp_path / "out") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"step {STEP} of the run `plain`" in card and "success 100.0%" not in card
    assert "Greedy play of 1 held-out tasks" in card and "recorded rollouts of the run" in card
    test = json.loads((tmp_path / "out" / "equality.json").read_text())
    (engine,) = test["engines"]
    assert engine["engine"] == "hf" and engine["faults"] == [] and engine["agreement"] == 1.0
    assert engine["num_places"] == sum(len(each["token_ids"]) for each in test["trainer"]) > 0
    assert record(tmp_path / "out") | {"subject": "plain", "step": STEP, "format": "hf"} == record(tmp_path / "out")
    moved, start = (load_file(folder / "model.safetensors") for folder in (tmp_path / "out", model))
    assert all(not torch.equal(moved[name], tensor) for name, tensor in start.items())
    # What was exported can be exported.
    assert export(tmp_path / "out", tmp_path / "again", *SETTINGS) == 0
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(torch.equal(again[name], tensor) for name, tensor in moved.items())


def test_a_failed_test_leaves_nothing_and_names_prompt_and_token(run: Path, tmp_path: Path, monkeypatch, capsys):
    """EX-08: a file that looks fine and plays something else."""

    def corrupt(folder: Path) -> list[str]:
        tensors = load_file(folder / "model.safetensors")
        tensors["model.layers.0.mlp.down_proj.weight"] *= -1
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return []

    monkeypatch.setattr(exporting, "complete", corrupt)
    assert export(run, tmp_path / "out") == EXIT_FAILED
    told = capsys.readouterr().err
    assert "must answer as the trainer does, but hf: " in told and "prompt 0, token" in told
    assert list(tmp_path.iterdir()) == []


def test_a_model_with_a_number_that_is_not_finite_leaves_nothing(model: Path, tmp_path: Path, capsys):
    """EX-08."""
    broken = make_tiny_model(tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    assert export(broken, tmp_path / "out", *SETTINGS) == EXIT_FAILED
    assert "model.norm.weight holds numbers that are not finite" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_adapters_are_exported_alone_and_merged_and_both_play_as_the_policy(
    exported: Path, model: Path, tmp_path: Path
):
    """EX-04."""
    adapter = exported / "adapter"
    assert not (adapter / "model.safetensors").exists()
    assert record(adapter)["merged_adapters"] == []
    assert len(record(exported / "merged")["merged_adapters"]) == 1
    merged = AutoModelForCausalLM.from_pretrained(exported / "merged")
    start = load_file(model / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
    assert not torch.equal(merged.model.layers[0].self_attn.q_proj.weight, start)
    # The adapter's folder is a subject itself, alone or as a sum with its model.
    base = f"model.path={model}"
    assert export(adapter, tmp_path / "copy", "--format", "lora", base, *SETTINGS) == 0
    assert export(adapter, tmp_path / "sum", "--format", "merged", base, *SETTINGS) == 0
    one, other = (load_file(folder / "model.safetensors") for folder in (exported / "merged", tmp_path / "sum"))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    copied, made = (load_file(folder / "adapter_model.safetensors") for folder in (tmp_path / "copy", adapter))
    assert all(torch.equal(copied[name], made[name]) for name in made)


def test_an_adapter_that_was_merged_is_not_merged_again(exported: Path, tmp_path: Path, capsys):
    """EX-04."""
    twice = f"model.path={exported / 'merged'}"
    assert export(exported / "adapter", tmp_path / "twice", "--format", "merged", twice, *SETTINGS) == EXIT_BAD_INPUT
    assert "must be the model without the adapter" in capsys.readouterr().err
    assert not (tmp_path / "twice").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--format", "merged"), "--format merged must be used with a run that trains adapters"),
        (("--format", "lora"), "--format lora must be used with a run that trains adapters"),
        (("--system", "x"), "--system and --ollama must be used with --format ollama"),
        (("--quantise", "Q9_K"), "--quantise must be names out of Q2_K"),
        (("--engines", "hf,llama"), "--engines must be names out of hf, vllm, gguf"),
        (("--tokens", "0"), "--tokens must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_exported_is_refused_at_once(run: Path, tmp_path: Path, capsys, options, sentence: str):
    assert export(run, tmp_path / "out", *options) == EXIT_BAD_INPUT
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(run: Path, tmp_path: Path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert export(run, tmp_path / "out") == EXIT_BAD_INPUT
    assert "must be new" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]
