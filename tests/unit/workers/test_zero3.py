"""DeepSpeed ZeRO-3 against FSDP2 on the same micro-batches: one rank and two, full weights, adapters and bfloat16."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import zero3_ranks
from layout_ranks import loaded_weights, make_wide_model, peak_of_build
from policy_ranks import free_port, make_worker, spawn_ranks
from tiny_model import make_tiny_model
from torch import Tensor

from skyrl_nat.cluster.topology import POLICIES, REFERENCES
from skyrl_nat.config.cluster import Strategy
from skyrl_nat.config.model import LoraConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.monitoring.usage import Activity
from skyrl_nat.workers import zero3
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.reference import ReferenceWorker
from skyrl_nat.workers.zero3_workers import Zero3PolicyWorker, Zero3ReferenceWorker

needs_library = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
VARIANTS = {1: ["bfloat16", "full"], 2: ["lora", "checkpointed"]}
CASES = [(num_ranks, variant) for num_ranks, variants in VARIANTS.items() for variant in variants]
Results = dict[int, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def results(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What every rank saved, by number of ranks; one rank also loads the checkpoint of two."""
    found: Results = {}
    checkpoint = ""
    for num_ranks in (2, 1):
        out = tmp_path_factory.mktemp("ranks")
        arguments = (free_port(), str(folder), str(out), VARIANTS[num_ranks], checkpoint)
        spawn_ranks(zero3_ranks.rank_main, num_ranks, *arguments)
        found[num_ranks] = [torch.load(out / f"rank{rank}.pt") for rank in range(num_ranks)]
        checkpoint = str(out / "checkpointed-deepspeed")
    return found


def both(results: Results, num_ranks: int, variant: str, rank: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    found = results[num_ranks][rank]
    return found[f"{variant} fsdp2"], found[f"{variant} deepspeed"]


def largest_difference(first: list[Tensor], second: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


@needs_library
@pytest.mark.parametrize(("num_ranks", "variant"), CASES)
def test_three_steps_give_the_numbers_of_fsdp2(results: Results, num_ranks: int, variant: str) -> None:
    """Sum over ranks and micro-batches, clipping, decay, schedule: all of it is the same step."""
    for rank in range(num_ranks):
        expected, found = both(results, num_ranks, variant, rank)
        assert largest_difference(found["logprobs"], expected["logprobs"]) < 1e-6
        assert largest_difference(found["base logprobs"], expected["base logprobs"]) < 1e-5
        for metrics, wanted in zip(found["metrics"], expected["metrics"], strict=True):
            assert metrics == pytest.approx(wanted, rel=1e-5, abs=1e-6)
            assert metrics["loss/grad_norm"] > 0.5, "clipping has something to do"
    expected, found = both(results, num_ranks, variant)
    assert found["weights"].keys() == expected["weights"].keys()
    moved = 0.0
    for name, weight in expected["weights"].items():
        assert (found["weights"][name] - weight).abs().max() < 1e-6 * weight.abs().max(), name
        moved = max(moved, float((weight - expected["first weights"][name]).abs().max()))
    assert moved > 1e-3


@needs_library
@pytest.mark.parametrize(("num_ranks", "variant"), CASES)
def test_what_leaves_before_the_first_step_is_the_checkpoint_to_the_bit(
    results: Results, num_ranks: int, variant: str
) -> None:
    """With bfloat16 too: master weights are not made from rounded ones."""
    expected, found = both(results, num_ranks, variant)
    assert found["manifest"] == expected["manifest"]
    assert [name for name, _, _ in found["manifest"]] == list(found["first weights"])
    for name, weight in expected["first weights"].items():
        assert torch.equal(found["first weights"][name], weight), name
    if num_ranks > 1:
        assert both(results, num_ranks, variant, 1)[1]["weights"] == {}


@needs_library
@pytest.mark.parametrize(("num_ranks", "variant"), CASES)
def test_a_nan_in_one_micro_batch_of_one_rank_skips_the_step_on_all(
    results: Results, num_ranks: int, variant: str
) -> None:
    """GM-14, GM-07b: weights and moments keep every bit, with a NaN and without loss tokens."""
    for rank in range(num_ranks):
        _, found = both(results, num_ranks, variant, rank)
        assert (found["skipped"]["loss/skipped"], found["skipped"]["loss/num_skipped"]) == (1.0, 1.0)
        assert (found["empty"]["loss/empty"], found["empty"]["loss/num_tokens"]) == (1.0, 0.0)
        assert found["is_unchanged"]
        assert found["digest after skips"] == found["digest"] == both(results, num_ranks, variant)[1]["digest"]


@needs_library
@pytest.mark.parametrize(("num_ranks", "variant"), CASES)
def test_save_load_continue_is_bit_equal_to_going_on(results: Results, num_ranks: int, variant: str) -> None:
    """Rows 67 and 68; the weights that are computed with follow the loaded master weights."""
    _, found = both(results, num_ranks, variant)
    assert found["digest loaded"] == found["digest"]
    assert largest_difference(found["logprobs loaded"], found["logprobs saved"]) == 0.0
    assert found["resumed"] == found["straight"]
    assert found["digest of resumed"] == found["digest of going on"] != found["digest"]


@needs_library
def test_a_checkpoint_of_two_ranks_loads_on_one(results: Results) -> None:
    assert results[1][0]["digest of other"] == results[2][0]["checkpointed deepspeed"]["digest"]


@needs_library
def test_only_adapters_have_moments_and_without_them_the_model_is_the_base(results: Results) -> None:
    expected, found = both(results, 2, "lora")
    assert found["trained"] == expected["trained"]
    assert all(".lora_" in name for name in found["trained"])
    assert largest_difference(found["base logprobs"], found["logprobs"]) == 0.0


@needs_library
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_the_reference_scores_like_the_untrained_policy(results: Results, num_ranks: int) -> None:
    variant = VARIANTS[num_ranks][-1]
    for rank, found in enumerate(results[num_ranks]):
        assert largest_difference(found["reference"], both(results, num_ranks, variant, rank)[0]["logprobs"]) == 0.0


@needs_library
def test_a_rank_notes_when_its_device_is_busy(results: Results) -> None:
    expected, found = both(results, 2, "checkpointed")
    assert found["activities"] == expected["activities"]
    assert found["activities"] == [str(a) for a in (Activity.PUSH, *[Activity.TRAIN] * 4, Activity.PUSH)]


@needs_library
def test_a_rank_of_two_never_holds_the_whole_model(tmp_path: Path) -> None:
    """It holds half of it and, while it reads, one tensor."""
    tiny, size = make_tiny_model(tmp_path / "tiny"), make_wide_model(tmp_path / "wide")
    arguments = (free_port(), str(tiny), str(tmp_path / "wide"), str(tmp_path), Zero3ReferenceWorker)
    spawn_ranks(peak_of_build, 2, *arguments)
    grown = [torch.load(tmp_path / f"rank{rank}.pt") / size for rank in range(2)]
    assert all(0.4 < share < 0.7 for share in grown), grown


@needs_library
def test_three_ranks_hold_the_bits_of_the_files_and_one_drawing_of_the_adapters(tmp_path: Path) -> None:
    """Head and embedding apart; 3 divides no weight of a layer."""
    folder = make_tiny_model(tmp_path / "model", tie_word_embeddings=False)
    spawn_ranks(loaded_weights, 3, free_port(), str(folder), str(tmp_path), 3, Zero3PolicyWorker)
    found = torch.load(tmp_path / "weights.pt")
    alone = make_worker(folder, model={"lora": LoraConfig(rank=3)})
    expected = alone.export_weights() | {n: p for n, p in alone.module.named_parameters() if "lora_" in n}
    alone.close()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_the_missing_library_is_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    monkeypatch.setenv("DS_ACCELERATOR", "")
    with pytest.raises(ConfigError, match=r"needs the library deepspeed, .* pip install deepspeed=="):
        zero3.library("cpu")


def test_every_strategy_names_a_policy_and_a_reference() -> None:
    for named, kind in ((POLICIES, PolicyWorker), (REFERENCES, ReferenceWorker)):
        assert named.keys() == set(Strategy)
        for path in named.values():
            module, name = path.split(":")
            assert issubclass(getattr(importlib.import_module(module), name), kind)
