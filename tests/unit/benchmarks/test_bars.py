"""The arithmetic behind the bars, without engines."""

import argparse
import asyncio
import contextlib
import importlib
import json
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
NAMES = "async_vs_sync bars large_model lognormal_story scaling story_run validators_wait weight_push"
async_vs_sync, bars, large_model, lognormal_story, scaling, story_run, validators_wait, weight_push = map(
    importlib.import_module, NAMES.split()
)


def test_result_names_machine_and_versions_and_failed_part(tmp_path):
    found = bars.attempt("part", lambda: {"x": [][0]})
    assert found["error"] == "IndexError: list index out of range"
    bars.write_result(tmp_path / "a" / "P0.json", "P0", None, "s", 1.0, is_met=False, raw=found)
    result = json.loads((tmp_path / "a" / "P0.json").read_text())
    assert result["card"] == "cpu" or "NVIDIA" in result["card"]
    assert {"torch", "python", "transformers", "ray"} <= set(result["versions"])
    assert (result["value"], result["met"]) == (None, False)


def test_overrides_may_follow_a_list_of_names():
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", nargs="+")
    options, overrides = bars.parse(parser, ["--names", "a", "b", "engine=hf", "+engine.extra.x=1"])
    assert (options.names, overrides) == (["a", "b"], ["engine=hf", "+engine.extra.x=1"])


STARTER = """
import argparse, subprocess, sys, time
import bars
bars.parse(argparse.ArgumentParser(), [])
run = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
bars.RUNS.add(run)
print(run.pid, flush=True)
time.sleep(60)
"""


def test_a_script_that_is_told_to_end_takes_its_runs_with_it():
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True, cwd=Path(bars.__file__).parent
    )
    run = psutil.Process(int(starter.stdout.readline()))
    starter.send_signal(signal.SIGTERM)
    assert starter.wait(20) == 143
    with contextlib.suppress(psutil.NoSuchProcess):
        run.wait(5)
    assert not run.is_running()


def test_lengths_are_lognormal_cut_at_eight_means_and_the_same_in_every_run():
    lengths = [lognormal_story.limit_of(index, number, 200) for index in range(2000) for number in range(8)]
    assert max(lengths) == 8 * 200
    assert statistics.mean(lengths) == pytest.approx(200, rel=0.05)
    assert statistics.median(lengths) == pytest.approx(200 * 0.6065, rel=0.05), "exp(-1/2) of the mean"
    assert lengths[:3] == [lognormal_story.limit_of(0, number, 200) for number in range(3)]


def test_the_bar_of_pushes_wants_both_layouts():
    quick, slow = {"median_s": 0.3}, {"median_s": 0.6}
    assert weight_push.verdict({"colocated": quick}, 0.5) == (0.3, "s of the slower push, measured: colocated", True)
    assert weight_push.verdict({"colocated": quick, "apart": quick}, 0.5)[::2] == (0.3, True)
    assert weight_push.verdict({"colocated": quick, "apart": slow}, 0.5)[::2] == (0.6, False)
    assert weight_push.verdict({"colocated": quick, "apart": {"error": "x"}}, 0.5)[::2] == (None, False)


def test_the_work_of_a_step_goes_to_the_trainer_and_to_the_peer_alike():
    parser = argparse.ArgumentParser()
    bars.add_work(parser)
    options = parser.parse_args(["m", "--tasks", "2", "--tokens", "40000"])
    assert bars.work_arguments(options) == ["m", "--tasks", "2", "--rollouts", "8", "--tokens", "40000"]
    chosen = story_run.work_overrides(options)
    assert {"model.path=m", "trainer.tasks_per_step=2", "trainer.rollouts_per_task=8"} <= set(chosen)
    assert {"rollout.max_total_tokens=40256", "trainer.micro_batch_tokens=40256"} <= set(chosen)


def test_slope_is_of_the_card_that_grows_most():
    flat, growing = [100.0] * 4, [100.0, 101.0, 102.0, 103.0]
    assert large_model.slope(list(zip(flat, flat, strict=True))) == 0.0
    assert large_model.slope(list(zip(flat, growing, strict=True))) == pytest.approx(1 / 101.5)


def test_peaks_are_by_step_and_card():
    watch = large_model.MemoryWatch(Path("nowhere"))
    watch.samples = [(0.0, 0, [1.0, 5.0]), (0.5, 0, [3.0, 4.0]), (1.0, 1, [2.0, 2.0])]
    assert watch.peaks() == [[3.0, 5.0], [2.0, 2.0]]


def test_a_peak_is_held_against_the_plan_of_a_run_that_ended_well():
    raw = {"plan": {"peak_gib": 70.0}, "step_peaks_gib": [[60.0, 77.0], [61.0, 62.0]], "error": "", "num_steps": 2}
    assert large_model.verdict("I1", raw, 2)[::3] == (pytest.approx(1.1), True)
    assert not large_model.verdict("I1", raw, 3)[-1], "a step is missing"
    assert not large_model.verdict("I1", {**raw, "plan": {"peak_gib": 60.0}}, 2)[-1], "28 % off"
    assert not large_model.verdict("I1", {**raw, "error": "exit code 1"}, 2)[-1]
    assert large_model.verdict("I1", {"error": "x"}, 2)[::3] == (None, False)
    assert large_model.verdict("P7", {"slope": -0.005, "error": ""}, 2)[::3] == (-0.005, True)


def test_scaling_is_of_tokens_a_second_and_card_and_its_worst_part_counts():
    one, two, four = (
        {"completion_tokens": n, "train": t, "rollout": r} for n, t, r in ((9, 1, 3), (9, 1, 4), (18, 2, 6))
    )
    found = scaling.efficiencies({1: one, 2: two, 4: four})
    assert found == {1: {"train": 1, "rollout": 1}, 2: {"train": 1, "rollout": 0.75}, 4: {"train": 1, "rollout": 1}}
    assert scaling.verdict(found) == 0.75 / 0.95
    assert scaling.verdict({}) is scaling.verdict({1: found[1]}) is None


def test_cards_are_split_between_engines_and_policy(monkeypatch):
    monkeypatch.setattr(story_run.torch.cuda, "is_available", lambda: True)
    found = async_vs_sync.places(["4+4", "6+2"], ["s0", "s2", "colocated"])
    assert list(found) == ["4+4-s0", "4+4-s2", "colocated", "6+2-s0", "6+2-s2"]
    assert {"cluster.num_engines=6", "cluster.num_policy_ranks=2", "trainer.staleness=2"} <= set(found["6+2-s2"])
    assert {"cluster.num_engines=8", "cluster.num_policy_ranks=8", "trainer.staleness=0"} <= set(found["colocated"])
    assert list(async_vs_sync.places(["1+1"], ["s1"])) == ["s1"]
    spread = story_run.layout(num_gpus=8, is_apart=True, gpus_per_engine=4)
    assert {"cluster.num_engines=1", "cluster.num_gpus_per_engine=4", "cluster.num_policy_ranks=4"} <= set(spread)


WORK = "import sys, time\nwhile time.process_time() < 0.5: pass\n"


def test_cpu_seconds_are_of_all_processes_below_also_of_those_that_ended():
    ended = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {WORK!r}])\nprint(flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", ended], stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        used = validators_wait.cpu_seconds({"reward": {process.pid}, "environment": set()})
        process.stdin.close()
    assert 0.4 < used["reward"] < 3, "in ticks of 10 ms"
    assert used["environment"] == 0


def test_an_engine_waits_for_a_verdict_only_while_it_has_no_request(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(validators_wait.time, "monotonic", lambda: clock.now)
    watch = validators_wait.Watch()
    watch.num_engines = 2

    async def scenario():
        watch.add("score", 1)
        clock.now += 50  # outside the phase
        async with watch.phase(contextlib.nullcontext):
            watch.add("engine 0", 1)
            clock.now += 3  # engine 1 waits for the verdict
            watch.add("engine 0", -1)
            clock.now += 2  # both wait
            watch.add("score", -1)
            clock.now += 1  # both idle, but nobody judges

    asyncio.run(scenario())
    assert watch.waits == [3 + 2 * 2]
    assert watch.seconds == {"busy": 3, "waits for score": 7, "waits for neither": 2}


def test_a_run_that_does_not_end_in_time_is_ended_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(story_run.sys, "executable", "/bin/sleep")
    run = story_run.train(tmp_path / "run", [], timeout_s=0.2)
    assert run.error.startswith("exit code 1"), "sleep wants a number"
    process = story_run.subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    assert story_run._wait(process, tmp_path / "none", 0.2) == "not over after 0 s"
    assert process.poll() is not None
