"""The commands as a user calls them: what they print, what they refuse, and that they load no torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from skyrl_nat.cli import main

ROOT = Path(__file__).parents[3]
PROBE = (
    "import sys; from skyrl_nat.cli import main; code = main(sys.argv[1:]); "
    "loaded = sorted({'torch', 'transformers', 'ray', 'vllm'} & set(sys.modules)); "
    "print('loaded', loaded, file=sys.stderr); sys.exit(code)"
)


@pytest.mark.parametrize(
    "words",
    [
        ["hardware"],
        ["hardware", "--json"],
        ["plan", "experiment=smoke_cpu"],
        ["plan", "experiment=agenthands_h100x8", "--card", "h100", "--json"],
    ],
)
def test_neither_command_loads_torch(words: list[str]):
    found = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stderr
    assert "loaded []" in found.stderr


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that ends well and return what it prints."""
    assert main(list(words)) == 0
    return capsys.readouterr().out


def test_a_plan_holds_config_batch_words_memory_seconds_and_cost(capsys):
    found = json.loads(
        output_of(capsys, "plan", "experiment=agenthands_h100x1", "--card", "h100", "--price", "2", "--json")
    )
    assert found["config"]["trainer"]["tasks_per_step"] == 16
    assert found["batch_plan"]["rollouts per step"] == 128
    assert all(isinstance(number, int) for number in found["batch_plan"].values())
    assert set(found["memory"]["phases_gib"]) == {"training", "rollout", "push"}
    assert found["memory"]["peak_gib"] == pytest.approx(
        max(sum(parts.values()) for parts in found["memory"]["phases_gib"].values())
    )
    seconds = found["seconds"]
    assert seconds["step"] >= seconds["rollout"] + seconds["train"]
    run = found["run"]
    assert run["hours"] == pytest.approx(found["batch_plan"]["steps"] * seconds["step"] / 3600)
    assert run["cost"] == pytest.approx(2 * run["hours"])
    assert found["recommended"][0]["step_s"] > 0


def test_a_plan_is_read_as_tables(capsys):
    printed = output_of(capsys, "plan", "experiment=agenthands_h100x8", "--card", "h200")
    for text in ("micro-batches per rank", "KV cache", "optimizer", "rollout  train", "Recommended", "8 x NVIDIA H200"):
        assert text in printed


def test_a_recommended_layout_is_a_config_that_can_be_planned(capsys):
    words = ["plan", "experiment=agenthands_h100x1", "cluster.num_gpus_per_node=4", "cluster.num_policy_ranks=4"]
    words += ["cluster.num_engines=4", "--card", "h100", "--json"]
    best = json.loads(output_of(capsys, *words))["recommended"]
    again = json.loads(output_of(capsys, *words, *best[0]["overrides"].split()))
    assert again["seconds"]["step"] == pytest.approx(best[0]["step_s"])
    assert best[0]["step_s"] <= 1.02 * min(each["step_s"] for each in best)


def test_told_lengths_take_the_place_of_guessed_ones(capsys):
    words = ["plan", "experiment=agenthands_h100x1", "--card", "h100", "--json"]
    guessed = json.loads(output_of(capsys, *words))
    told = json.loads(output_of(capsys, *words, "--mean-tokens", "300"))
    assert told["workload"]["sampled_tokens"] == 300
    assert told["seconds"]["step"] < guessed["seconds"]["step"]
    assert any("guessed" in note for note in guessed["notes"])
    assert not told["notes"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["plan", "experiment=agenthands_h100x1", "engine.gpu_memory_fraction=0.05"], "Add engine.gpu_memory_fraction"),
        (["plan", "experiment=smoke_cpu", "--sweep"], "cluster.device must be cuda"),
        (["plan", "experiment=smoke_cpu", "--max-gpus", "4096"], "--max-gpus must be <= 1024"),
        (["plan", "experiment=smoke_cpu", "--plot", "x.svg"], "--plot must come with --sweep"),
        (["plan", "experiment=smoke_cpu", "--spread", "9"], "--spread must be in"),
        (["plan", "experiment=smoke_cpu", "--mean-tokens", "0"], "--mean-tokens must be >= 1"),
        (["plan", "trainer.steps=0", "trainer.epochs=1", "trainer.tasks_per_step=100000"], "at least one step of"),
        (["plan", "environment.recorded_files=[/nowhere.jsonl]", "algorithm=sft"], "must be readable text"),
        (["hardware", "--profile", "mine"], "--profile must be one of cpu_only, gpu, workstation, h100x8, auto"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_code_2(capsys, words: list[str], text: str):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert text in printed.err
    assert len(printed.err.splitlines()) == 1


def test_a_sweep_is_a_table_and_a_picture(capsys, tmp_path: Path):
    words = ["plan", "experiment=jira_h100x1", "--card", "h100", "--sweep", "--mean-tokens", "20", "--max-gpus"]
    rows = json.loads(output_of(capsys, *words, "4", "--scale-batch", "--json", "--plot", str(tmp_path / "sweep.svg")))
    assert {row["gpus"] for row in rows} == {1, 2, 4}
    assert {row["placement"] for row in rows} == {"colocated", "disaggregated"}
    assert [row["tasks_per_step"] for row in rows if row["placement"] == "colocated"] == [32, 64, 128]
    picture = (tmp_path / "sweep.svg").read_text()
    assert "rollouts per second" in picture
    assert "cost of 1,000 rollouts" in picture
    table = output_of(capsys, *words, "1").splitlines()
    assert table[0].startswith("GPUs  placement")
    assert table[2].startswith("1     colocated")


def test_a_profile_is_printed_one_override_a_line(capsys):
    printed = output_of(capsys, "hardware", "--profile", "gpu", "--overrides")
    assert "model.lora.rank=32" in printed.splitlines()
    found = json.loads(output_of(capsys, "hardware", "--profile", "gpu", "--json"))
    assert found["profile"]["overrides"] == printed.splitlines()
    assert found["hardware"]["cpu"]["num_cores"] >= 1


def test_recorded_rollouts_count_as_their_groups(capsys, tmp_path: Path):
    """As in training, where each task with recorded rollouts is one group."""
    rows = [{"task_id": f"t{number % 3}", "messages": [{"role": "user", "content": "a"}]} for number in range(7)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "plan",
        "experiment=smoke_cpu",
        "algorithm=sft",
        f"environment.recorded_files=[{file}]",
        "trainer.tasks_per_step=1",
        "--json",
    ]
    assert json.loads(output_of(capsys, *words))["batch_plan"]["training tasks"] == 3
