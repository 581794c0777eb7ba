"""Complete runs on Ray with a tiny model: learning, determinism, ranks, resuming."""

import importlib.util
import json
import math

import pytest
import small_run

pytestmark = pytest.mark.slow

TIMES = ("time/", "gpu/", "throughput/", "push/", "rollout/generate_s", "rollout/environment_s", "rollout/score_s")
EXACT = ("engine.deterministic=true", "evaluation.before_and_after=false")


def without_times(entries: list[dict]) -> list[dict]:
    return [{name: value for name, value in entry.items() if not name.startswith(TIMES)} for entry in entries]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def four_steps(folder):
    """An uninterrupted strictly on-policy run of four steps; that it evaluates changes no training step."""
    small_run.run(folder, "name=four", "trainer.steps=4", *EXACT, "evaluation.before_and_after=true")
    return small_run.metrics(folder, "four")


def test_overlapped_run_on_two_ranks_learns_and_leaves_a_complete_folder(folder):
    output = small_run.run(
        folder,
        "name=learn",
        "trainer.steps=40",
        "trainer.staleness=1",
        "cluster.num_policy_ranks=2",
        "cluster.num_environment_workers=2",
        "optimizer.lr=3e-3",
        "weight_sync.verify_checksums=true",
        "tracking.backends=[jsonl,console,tensorboard,wandb]",
    )
    steps = small_run.metrics(folder, "learn")
    assert [entry["step"] for entry in steps] == list(range(1, 41))
    first = sum(entry["rollout/reward/mean"] for entry in steps[:5]) / 5
    last = sum(entry["rollout/reward/mean"] for entry in steps[-5:]) / 5
    assert last > first + 0.3, (first, last)
    lags = [entry["rollout/staleness/max"] for entry in steps]
    assert max(lags) == 1, "work was done ahead, and never by more than the bound"
    run = folder / "runs" / "learn"
    before, after = [json.loads(line) for line in (run / "evaluations.jsonl").open()]
    assert (before["step"], after["step"]) == (0, 40)
    assert after["reward"] > before["reward"]
    assert "What was learned in 40 steps" in output
    for name in ("config.yaml", "versions.json", "topology.json", "checkpoints/step_000040/manifest.json"):
        assert (run / name).is_file(), name
    assert len(list((run / "rollouts").glob("train_*.jsonl"))) == 40
    assert json.loads((run / "versions.json").read_text())["attention"] == "sdpa"
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
    assert list(run.glob("tensorboard/*"))


def test_strictly_on_policy_run_twice_gives_identical_metrics(folder, four_steps):
    small_run.run(folder, "name=again", "trainer.steps=4", *EXACT)
    assert without_times(small_run.metrics(folder, "again")) == without_times(four_steps)


def test_on_policy_ratio_is_one_and_nothing_is_clipped(four_steps):
    """Row 30."""
    for entry in four_steps:
        assert entry["loss/ratio_mean"] == 1.0
        assert entry["loss/clip_fraction"] == 0.0
        assert entry["loss/rollout_logprob_diff"] < 1e-5, "engine and trainer agree in fp32"
        assert entry["rollout/staleness/max"] == 0


@pytest.mark.long
@pytest.mark.parametrize("shared", [1, 2])
def test_two_ranks_give_the_loss_of_one(folder, four_steps, shared):
    """Row 2: same rollouts, same loss and gradient on any number of ranks, which may share micro-batches."""
    name, sharing = f"ranks{shared}", f"model.sequence_parallel_size={shared}"
    small_run.run(folder, f"name={name}", "trainer.steps=4", "cluster.num_policy_ranks=2", sharing, *EXACT)
    for one, two in zip(four_steps, small_run.metrics(folder, name), strict=True):
        assert one["rollout/reward/mean"] == two["rollout/reward/mean"]
        for name in ("loss/grad_norm", "loss/entropy"):
            assert math.isclose(one[name], two[name], rel_tol=1e-5), (one["step"], name)
        assert abs(one["loss/policy"] - two["loss/policy"]) < 1e-6


def test_stopped_and_resumed_run_trains_what_an_uninterrupted_one_does(folder, four_steps):
    """Rows 67 to 69."""
    warm = "optimizer.warmup_steps=0"
    small_run.run(folder, "name=halves", "trainer.steps=2", *EXACT, warm)
    small_run.run(folder, "name=halves", "trainer.steps=4", "resume=latest", *EXACT, warm)
    assert without_times(small_run.metrics(folder, "halves")) == without_times(four_steps)


@pytest.mark.long
def test_stopped_and_resumed_run_with_everything_offloaded_trains_the_same(folder, four_steps):
    """A checkpoint is written from host memory; a reference would move as well."""
    for steps in (2, 4):
        resume = "latest" if steps == 4 else "never"
        small_run.run(folder, "name=away", f"trainer.steps={steps}", f"resume={resume}", *EXACT, "model.offload=all")
    found = small_run.metrics(folder, "away")
    for entry in found:
        assert entry.pop("offload/gib") > 0
    assert without_times(found) == without_times(four_steps)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
def test_under_deepspeed_a_run_stopped_and_resumed_on_two_ranks_trains_what_fsdp2_does_on_one(folder, four_steps):
    deepspeed = ("cluster.strategy=deepspeed", "cluster.num_policy_ranks=2", "weight_sync.verify_checksums=true")
    # A reference that changes nothing.
    deepspeed += ("algorithm.kl_coefficient=1e-12",)
    small_run.run(folder, "name=zero3", "trainer.steps=2", *EXACT, *deepspeed)
    small_run.run(folder, "name=zero3", "trainer.steps=4", "resume=latest", *EXACT, *deepspeed)
    steps = small_run.metrics(folder, "zero3")
    assert (steps[0]["loss/token_kl"], steps[3]["loss/token_kl"] > 0) == (0.0, True)
    for expected, found in zip(four_steps, steps, strict=True):
        assert found["rollout/reward/mean"] == expected["rollout/reward/mean"]
        for name in ("loss/grad_norm", "loss/entropy"):
            assert math.isclose(found[name], expected[name], rel_tol=1e-5), (found["step"], name)
        assert abs(found["loss/policy"] - expected["loss/policy"]) < 1e-6


def test_run_folder_is_never_overwritten(folder, four_steps):
    process = small_run.start(folder, "name=four")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "already holds a run. Use resume=latest or another name" in output


@pytest.mark.long
def test_folders_whose_paths_are_too_long_for_sockets_hold_a_run(folder, monkeypatch):
    """RY-02: 120 characters each for what is temporary and for the run."""
    temporary, root = folder / ("t" * 120), folder / ("r" * 120)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    small_run.run(folder, "name=long", "trainer.steps=1", f"root_dir={root}", *EXACT)
    assert (root / "long" / "checkpoints" / "step_000001" / "manifest.json").is_file()
