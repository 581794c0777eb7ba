"""`skyrl-nat export` of a run, with policy ranks on Ray as in training, played by both engines."""

import json
from pathlib import Path

import pytest
import small_run
from safetensors.torch import load_file
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

from skyrl_nat.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.long]
ADAPTERS = ("model.lora.rank=4", "model.lora.targets=[q_proj,up_proj]")
SHORT = ("trainer.steps=1", "name=adapted", "checkpoint.save_final=true", "evaluation.before_and_after=false")
QUICK = ("--engines", "hf,vllm", "--prompts", "2", "--tokens", "4")


def test_a_run_with_adapters_is_exported_whole_and_as_adapters_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tiny_model(tmp_path / "model", hidden_size=128)  # vLLM on a CPU takes no smaller heads
    small_run.run(tmp_path, *ADAPTERS, *SHORT)
    for form, file in (("hf", "model.safetensors"), ("lora", "adapter_model.safetensors")):
        out = tmp_path / form
        assert main(["export", str(tmp_path / "runs" / "adapted"), str(out), "--format", form, *QUICK]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(out)
        test = json.loads((out / "equality.json").read_text())
        assert test["prompts"] == "recorded rollouts of the run"
        assert [(each["engine"], each["faults"]) for each in test["engines"]] == [("hf", []), ("vllm", [])]
        assert (out / file).is_file() and not list(tmp_path.glob(f".{form}.*"))
    alone, beside = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("lora", "hf/adapter"))
    assert alone.keys() == beside.keys() and all((alone[name] == beside[name]).all() for name in alone)
    AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
