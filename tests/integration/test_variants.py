"""Complete runs that differ in their parts: a KL term, a disaggregated placement, the real vLLM and its death."""

import json
import signal

import psutil
import pytest
import small_run
from tiny_model import make_tiny_model

pytestmark = pytest.mark.slow

VLLM = ("engine=vllm", "weight_sync=gloo", "engine.max_num_seqs=8")


def test_kl_run_on_a_disaggregated_placement_starts_at_zero_and_moves_away(tmp_path):
    small_run.run(
        tmp_path,
        "name=kl",
        "trainer.steps=3",
        "algorithm.kl_coefficient=0.1",
        "cluster.placement=disaggregated",
        "cluster.num_engines=2",
        "evaluation.before_and_after=false",
    )
    steps = small_run.metrics(tmp_path, "kl")
    assert abs(steps[0]["loss/kl"]) < 1e-7, "the reference is the policy before its first step"
    assert steps[1]["loss/kl"] > 1e-6
    assert steps[2]["loss/kl"] > steps[1]["loss/kl"]
    for entry in steps:
        expected = entry["loss/policy"] + 0.1 * entry["loss/kl"]
        assert entry["loss/total"] == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.long
def test_lora_run_measures_distance_from_its_own_base_and_goes_on_from_a_checkpoint(tmp_path):
    lora = (
        "name=lora",
        "model.lora.rank=4",
        "optimizer.lr=1e-2",
        "algorithm.kl_coefficient=0.1",
        "weight_sync.verify_checksums=true",
        "evaluation.before_and_after=false",
    )
    small_run.run(tmp_path, *lora, "trainer.steps=2")
    small_run.run(tmp_path, *lora, "trainer.steps=3", "resume=latest")
    steps = small_run.metrics(tmp_path, "lora")
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    assert abs(steps[0]["loss/kl"]) < 1e-7, "the adapters are 0 at the start"
    assert 1e-7 < steps[1]["loss/kl"] < steps[2]["loss/kl"], "a resumed run goes on where the adapters were"
    assert all(entry["loss/rollout_logprob_diff"] < 1e-4 for entry in steps), "engines have the sum of both"
    roles = json.loads((tmp_path / "runs" / "lora" / "topology.json").read_text())["identities"]
    assert "reference" not in roles, "no second model"


@pytest.mark.long
def test_lora_run_on_vllm_pushes_the_adapters_alone(tmp_path):
    make_tiny_model(tmp_path / "model", hidden_size=128)
    lora = (
        *("model.lora.rank=4", "model.lora.alpha=6", "optimizer.lr=1e-2", "trainer.steps=3"),
        *("weight_sync.verify_checksums=true", "evaluation.before_and_after=false", "cluster.num_engines=2"),
    )
    for name, how in (("apart", ()), ("summed", ("engine.adapters=merged",))):
        small_run.run(tmp_path, f"name={name}", *lora, *VLLM, *how)
    apart, summed = (small_run.metrics(tmp_path, name) for name in ("apart", "summed"))
    for entry in (*apart, *summed):
        assert entry["loss/rollout_logprob_diff"] < 1e-4, "engines have the sum of both"
    assert apart[2]["loss/grad_norm"] == pytest.approx(summed[2]["loss/grad_norm"], rel=0.05), "the same run"
    assert apart[0]["weights/pushed_mib"] < 0.3 * summed[0]["weights/pushed_mib"]


@pytest.mark.long
@pytest.mark.timeout(500)
def test_vllm_that_dies_or_stands_still_is_replaced_and_leaves_no_process_behind(tmp_path):
    """The engine's actor, vLLM under it, and vLLM that hangs, of which the actor knows nothing."""
    # Attention kernels of vLLM on CPU want a head size of at least 32.
    make_tiny_model(tmp_path / "model", hidden_size=128)
    limits = ("engine.request_timeout_s=20", "recovery.probe_timeout_s=5")
    process = small_run.start(tmp_path, "name=vllm", *small_run.LONG, *VLLM, *limits)
    try:
        small_run.wait_for_step(tmp_path, "vllm", 2, process)
        for number, is_inside in ((signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGSTOP, True)):
            hurt_vllm(tmp_path, number, is_inside, process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert output.count("engine 0 serves again, with the current weights") == 3
    steps = small_run.metrics(tmp_path, "vllm")
    assert [entry["step"] for entry in steps] == list(range(1, len(steps) + 1))
    assert all(entry["loss/rollout_logprob_diff"] < 1e-4 for entry in steps), "vLLM and trainer agree in fp32"


def hurt_vllm(folder, number: signal.Signals, is_inside: bool, process) -> None:
    engine = psutil.Process(small_run.pid_of(folder, "vllm", "engine"))
    children = engine.children(recursive=True)
    assert children, "vLLM computes in processes of its own"
    for one in children if is_inside else [engine]:
        one.send_signal(number)
    reached = small_run.metrics(folder, "vllm")[-1]["step"]
    small_run.wait_for_step(folder, "vllm", reached + 3, process)
    _, alive = psutil.wait_procs([engine, *children], timeout=10)
    assert not alive, alive


@pytest.mark.long
def test_the_doctor_passes_a_sound_config_and_fails_a_bound_that_it_cannot_meet(tmp_path):
    process = small_run.start(tmp_path, command="doctor")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert "WRONG" not in output.replace("0 WRONG", "")
    process = small_run.start(tmp_path, "alarms.logprob_diff_warn=1e-12", command="doctor")
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 3, output
    assert "mean |engine - trainer log-prob|" in output.splitlines()[-1]


def test_sft_and_kto_learn_from_the_rollouts_of_an_earlier_run(tmp_path):
    quick = ("evaluation.before_and_after=false", "checkpoint.save_final=false", "optimizer.lr=3e-3")
    small_run.run(tmp_path, "name=played", "trainer.steps=4", *quick)
    files = sorted((tmp_path / "runs" / "played" / "rollouts").glob("train_*.jsonl"))
    recorded = f"environment.recorded_files=[{','.join(map(str, files))}]"
    small_run.run(tmp_path, "name=sft", "algorithm=sft", "trainer.steps=8", recorded, *quick)
    losses = [step["loss/policy"] for step in small_run.metrics(tmp_path, "sft")]
    assert losses[-1] < losses[0] - 0.1, "what was played becomes more likely"
    checked = ("evaluation.every_steps=2", "weight_sync.verify_checksums=true")
    small_run.run(tmp_path, "name=kto", "algorithm=kto", "trainer.steps=4", recorded, *quick, *checked)
    steps = small_run.metrics(tmp_path, "kto")
    pushed = [step["weights/pushed_mib"] > 0 for step in steps if "loss/policy" in step]
    assert pushed == [False, True, False, False], "engines play after the second step alone"
    steps = [step for step in steps if "loss/policy" in step]
    assert steps[0]["loss/policy"] == pytest.approx(0.5), "the policy is the reference before its first step"
    assert abs(steps[0]["loss/token_kl"]) < 1e-7 < steps[-1]["loss/token_kl"]
