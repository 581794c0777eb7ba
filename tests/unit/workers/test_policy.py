"""The policy worker on a tiny real model: exactness and invariances."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_ranks import (
    RECOMPUTE,
    gradients,
    make_grid,
    make_samples,
    make_worker,
    optimizer_tensors,
    run_ranks,
    train_steps,
)
from tiny_model import make_tiny_model
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import Parameter
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from skyrl_nat.batching.packing import attach_logprobs, unpack_per_sample
from skyrl_nat.errors import CheckpointError, StoppedError, WorkerError
from skyrl_nat.types import TrainingSample

pytestmark = pytest.mark.usefixtures("leave_group")


@pytest.fixture(scope="module")
def two_ranks(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("ranks")
    return run_ranks(2, folder, out), out


def plain_logprobs(model: LlamaForCausalLM, sample: TrainingSample, temperature: float) -> Tensor:
    """Return the log-probs of a sample alone from the unmodified transformers forward pass."""
    ids = torch.tensor([sample.token_ids])
    logits = model(ids, use_cache=False).logits[0] / temperature
    picked = logits.log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return torch.cat([torch.zeros(1), picked]) * torch.tensor(sample.loss_mask)


def plain_loss(model: LlamaForCausalLM, samples: list[TrainingSample], denominator: float) -> Tensor:
    """Return the token-mean loss at ratio 1, from its definition."""
    total = torch.zeros(())
    for sample in samples:
        logprobs = plain_logprobs(model, sample, 1.0)
        ratio = (logprobs - logprobs.detach()).exp()
        total = total - (ratio * torch.tensor(sample.advantages)).sum()
    return total / denominator


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_logprobs_equal_those_of_each_sample_alone(folder: Path, temperature: float) -> None:
    """Rows 33, 48, 51, MT-07: packed equals alone in plain transformers, at the sampling temperature."""
    samples = make_samples()
    worker = make_worker(folder, temperature=temperature)
    model = AutoModelForCausalLM.from_pretrained(folder)
    (row,), _ = make_grid(samples)
    found = unpack_per_sample(row, worker.compute_logprobs(row))
    for sample in samples:
        with torch.no_grad():
            expected = plain_logprobs(model, sample, temperature)
        assert (found[sample.sample_id] - expected).abs().max() < 1e-5


def test_packed_logprobs_equal_left_and_right_padded_ones(folder: Path) -> None:
    """Row 48, MT-07."""
    samples = make_samples()
    worker = make_worker(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    (row,), _ = make_grid(samples)
    packed = unpack_per_sample(row, worker.compute_logprobs(row))
    width = max(s.num_tokens for s in samples)
    for is_left in (True, False):
        ids = torch.full((len(samples), width), 2)
        mask = torch.zeros_like(ids)
        for i, sample in enumerate(samples):
            place = slice(width - sample.num_tokens, width) if is_left else slice(sample.num_tokens)
            ids[i, place] = torch.tensor(sample.token_ids)
            mask[i, place] = 1
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        with torch.no_grad():
            logits = model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
        for i, sample in enumerate(samples):
            real = mask[i].bool()
            picked = logits[i][real].log_softmax(-1)[:-1].gather(1, ids[i][real][1:, None])[:, 0]
            kept = torch.tensor(sample.loss_mask)
            assert (packed[sample.sample_id][kept] - picked[kept[1:]]).abs().max() < 1e-5


def test_changing_one_sample_leaves_its_neighbours_bit_equal(folder: Path) -> None:
    """Row 49: packing leaks nothing across samples."""
    worker = make_worker(folder)
    (row,), _ = make_grid(make_samples(), budget=200)
    assert len(row) == 1
    before = unpack_per_sample(row, worker.compute_logprobs(row))
    end = int(row[0].cu_seqlens[1])
    row[0].token_ids[:end] = (row[0].token_ids[:end] + 7) % 300
    after = unpack_per_sample(row, worker.compute_logprobs(row))
    first, *others = row[0].sample_ids
    assert not torch.equal(before[first], after[first])
    for name in others:
        assert torch.equal(before[name], after[name])


def test_gradient_is_that_of_the_plain_definition_for_any_micro_batch_size(folder: Path) -> None:
    """Rows 1 and 3, GM-05: 1, 2 or more micro-batches, one gradient, that of plain transformers."""
    samples = make_samples()
    model = AutoModelForCausalLM.from_pretrained(folder)
    denominator = float(sum(s.num_loss_tokens for s in samples))
    loss = plain_loss(model, samples, denominator)
    loss.backward()
    expected = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    counts = set()
    for budget in (200, 64, 41):
        worker = make_worker(folder)
        (row,), found_constants = make_grid(samples, budget=budget)
        assert found_constants.denominator == denominator
        counts.add(len(row))
        metrics = worker.train(row, found_constants)
        assert metrics["loss/total"] == pytest.approx(loss.item(), rel=1e-5)
        found = gradients(worker)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            scale = gradient.abs().max()
            assert (found[name] - gradient).abs().max() < 2e-6 + 1e-5 * scale, name
    assert len(counts) == 3


@pytest.mark.parametrize("is_tied", [True, False])
def test_activation_checkpointing_and_tied_heads_keep_the_gradient(tmp_path: Path, is_tied: bool) -> None:
    folder = make_tiny_model(tmp_path / "m", tie_word_embeddings=is_tied)
    (row,), constants = make_grid(make_samples())
    found = []
    for is_on in (False, True):
        worker = make_worker(folder, model={"activation_checkpointing": is_on})
        worker.train(row, constants)
        found.append(gradients(worker))
    assert ("lm_head.weight" in found[0]) is not is_tied
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], rtol=1e-5, atol=1e-7), name


def test_two_ranks_train_like_one(folder: Path, two_ranks: tuple[list[Any], Path]) -> None:
    """Rows 2, 5 and 9: loss, every metric and the weights do not depend on the number of ranks.

    LG-04: the ranks have different numbers of log-probs, and NaN where there is none. It is in no mean, nor a 0.
    """
    (first, second), _ = two_ranks
    assert first["num_micro_batches"] == second["num_micro_batches"]
    assert first["num_known"] != second["num_known"]
    worker = make_worker(folder, algorithm=RECOMPUTE)
    (row,), constants = make_grid(make_samples())
    single = train_steps(worker, row, constants, 2)
    assert first["metrics"] == second["metrics"]
    for metrics, expected in zip(first["metrics"], single, strict=True):
        assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert second["weights"] == {}
    assert first["digest"] == second["digest"]
    weights = worker.export_weights()
    assert first["weights"].keys() == weights.keys()
    for name, tensor in weights.items():
        difference = (first["weights"][name] - tensor).abs().max()
        assert difference < 1e-5 * tensor.abs().max(), name


def test_a_rank_with_nothing_to_do_adds_nothing(folder: Path, two_ranks: tuple[list[Any], Path]) -> None:
    """Row 9: the step with one sample on two ranks ends and equals that of one rank."""
    (first, _), out = two_ranks
    worker = make_worker(folder, algorithm=RECOMPUTE)
    worker.load(out / "checkpoint")
    (row,), constants = make_grid(make_samples()[:1])
    attach_logprobs(row, worker.compute_logprobs(row), "old_logprobs")
    metrics = worker.train(row, constants)
    assert first["filler_metrics"] == pytest.approx(metrics, rel=1e-5, abs=1e-6)
    for name, tensor in worker.export_weights().items():
        difference = (first["final_weights"][name] - tensor).abs().max()
        assert difference < 1e-5 * tensor.abs().max(), name


def test_a_checkpoint_of_two_ranks_loads_on_one(folder: Path, two_ranks: tuple[list[Any], Path]) -> None:
    """Row 68: another number of ranks gets the same bits."""
    (first, _), out = two_ranks
    worker = make_worker(folder)
    worker.load(out / "checkpoint")
    assert worker.parameter_digest() == first["digest"]
    assert worker.num_steps == 2


def test_learning_rate_zero_keeps_every_bit(folder: Path) -> None:
    """Row 39."""
    worker = make_worker(folder, optimizer={"lr": 0.0, "weight_decay": 0.1}, algorithm=RECOMPUTE)
    (row,), constants = make_grid(make_samples())
    before = worker.parameter_digest()
    metrics = train_steps(worker, row, constants, 5)
    assert worker.parameter_digest() == before
    assert metrics[-1]["loss/log_ratio_max"] == 0.0
    assert metrics[-1]["loss/grad_norm"] > 0


def test_save_load_continue_is_bit_equal_to_going_on(folder: Path, tmp_path: Path) -> None:
    """Rows 67 and 68: weights, optimizer state and learning rates after a resume."""
    settings = {"schedule": "cosine", "warmup_steps": 3, "weight_decay": 0.01}
    (row,), constants = make_grid(make_samples())
    straight = make_worker(folder, optimizer=settings)
    rates = [straight.train(row, constants)["loss/lr"] for _ in range(5)]
    straight.save(tmp_path / "ck")
    rates += [straight.train(row, constants)["loss/lr"] for _ in range(3)]
    resumed = make_worker(folder, optimizer=settings)
    resumed.load(tmp_path / "ck")
    assert [resumed.train(row, constants)["loss/lr"] for _ in range(3)] == rates[5:]
    assert resumed.parameter_digest() == straight.parameter_digest()
    expected = optimizer_tensors(straight)
    for name, tensor in optimizer_tensors(resumed).items():
        assert torch.equal(tensor, expected[name]), name


def test_a_checkpoint_before_the_first_step_changes_nothing(folder: Path, tmp_path: Path) -> None:
    (row,), constants = make_grid(make_samples())
    straight = make_worker(folder)
    straight.save(tmp_path / "ck")
    straight.train(row, constants)
    resumed = make_worker(folder)
    resumed.load(tmp_path / "ck")
    resumed.train(row, constants)
    assert resumed.parameter_digest() == straight.parameter_digest()


def test_a_checkpoint_that_is_missing_or_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    worker = make_worker(folder)
    with pytest.raises(CheckpointError, match="complete sharded checkpoint"):
        worker.load(tmp_path / "nothing")
    worker.save(tmp_path / "ck")
    other = make_worker(make_tiny_model(tmp_path / "wide", hidden_size=48))
    with pytest.raises(CheckpointError, match="must fit the model"):
        other.load(tmp_path / "ck")


def poisoned(row: list[Any]) -> list[Any]:
    """Return a copy of a row whose advantages are NaN in the last micro-batch."""
    copies = [m.to(torch.device("cpu")) for m in row]
    copies[-1].advantages = torch.full_like(copies[-1].advantages, float("nan"))
    return copies


def test_one_nan_gradient_is_skipped_and_training_goes_on(folder: Path) -> None:
    """GM-14: weights and optimizer state bitwise unchanged, counted, the next step is normal."""
    worker = make_worker(folder)
    (row,), constants = make_grid(make_samples())
    worker.train(row, constants)
    digest, state = worker.parameter_digest(), optimizer_tensors(worker)
    metrics = worker.train(poisoned(row), constants)
    assert (metrics["loss/skipped"], metrics["loss/num_skipped"]) == (1.0, 1.0)
    assert worker.parameter_digest() == digest
    for name, tensor in optimizer_tensors(worker).items():
        assert torch.equal(tensor, state[name]), name
    metrics = worker.train(row, constants)
    assert (metrics["loss/skipped"], worker.num_skipped_in_a_row) == (0.0, 0)
    assert worker.parameter_digest() != digest


def test_nan_gradients_in_every_step_stop_the_run(folder: Path) -> None:
    """GM-14: never skipped for ever without anybody noticing."""
    worker = make_worker(folder, optimizer={"max_skipped_steps": 2})
    (row,), constants = make_grid(make_samples())
    digest = worker.parameter_digest()
    worker.train(poisoned(row), constants)
    with pytest.raises(StoppedError, match="2 steps in a row"):
        worker.train(poisoned(row), constants)
    assert worker.parameter_digest() == digest


def test_a_batch_without_loss_tokens_changes_nothing(folder: Path) -> None:
    """GM-07b: finite loss of 0, no backward error, weights and optimizer state bitwise unchanged."""
    worker = make_worker(folder, optimizer={"weight_decay": 0.1})
    (row,), constants = make_grid(make_samples())
    worker.train(row, constants)
    digest, state = worker.parameter_digest(), optimizer_tensors(worker)
    (empty,), nothing = make_grid([])
    metrics = worker.train(empty, nothing)
    assert nothing.denominator == 0.0
    assert (metrics["loss/total"], metrics["loss/empty"], metrics["loss/num_tokens"]) == (0, 1, 0)
    assert worker.parameter_digest() == digest
    assert worker.num_steps == 1
    for name, tensor in optimizer_tensors(worker).items():
        assert torch.equal(tensor, state[name]), name


def test_ratio_is_exactly_one_first_and_moves_afterwards(folder: Path) -> None:
    """Rows 30 and 66, GM-10: same weights give the same bits; later updates see the stored values."""
    worker = make_worker(folder, optimizer={"lr": 0.01}, algorithm=RECOMPUTE)
    (row,), constants = make_grid(make_samples())
    again = worker.compute_logprobs(row)
    assert all(torch.equal(a, b) for a, b in zip(again, worker.compute_logprobs(row), strict=True))
    first, second, third = train_steps(worker, row, constants, 3)
    assert (first["loss/log_ratio_max"], first["loss/clip_fraction"]) == (0.0, 0.0)
    assert first["loss/ratio_mean"] == 1.0
    for metrics in (second, third):
        assert metrics["loss/log_ratio_max"] > 1e-3
        assert metrics["loss/clip_fraction"] > 0
    for micro_batch, values in zip(row, again, strict=True):
        assert micro_batch.old_logprobs is not None
        assert torch.equal(micro_batch.old_logprobs, values)


def test_tokens_are_told_as_the_last_step_saw_them_and_once(folder: Path) -> None:
    """Log-probs before the step, bit for bit, and exactly the clipped tokens that the metrics count."""
    worker = make_worker(folder, optimizer={"lr": 0.01}, algorithm=RECOMPUTE)
    (row,), constants = make_grid(make_samples())
    train_steps(worker, row, constants, 1)
    for micro_batch, (logprobs, is_clipped) in zip(row, worker.trained_tokens(), strict=True):
        assert micro_batch.old_logprobs is not None
        mask = micro_batch.loss_mask
        assert torch.equal(logprobs[mask], micro_batch.old_logprobs[mask]) and not is_clipped.any()
    metrics = worker.train(row, constants)
    num_clipped = sum(int(is_clipped.sum()) for _, is_clipped in worker.trained_tokens())
    assert num_clipped == pytest.approx(metrics["loss/clip_fraction"] * metrics["loss/num_tokens"]) != 0
    assert worker.trained_tokens() == []


@pytest.mark.parametrize("estimator", ["k2", "k3", "abs"])
def test_logged_terms_add_up_to_the_optimised_loss_and_kl_has_a_gradient(folder: Path, estimator: str) -> None:
    """Rows 4 and 24."""
    norms = []
    for beta in (0.0, 0.5):
        (row,), constants = make_grid(
            make_samples(), name="sequence_mean", kl_coefficient=beta, entropy_coefficient=0.125
        )
        attach_logprobs(row, [m.rollout_logprobs for m in row], "ref_logprobs")
        algorithm = {
            "kl_coefficient": beta,
            "kl_estimator": estimator,
            "reduction": "sequence_mean",
        }
        metrics = make_worker(folder, algorithm=algorithm).train(row, constants)
        total = metrics["loss/policy"] + beta * metrics["loss/kl"] - 0.125 * metrics["loss/entropy"]
        assert metrics["loss/total"] == pytest.approx(total, rel=1e-5)
        norms.append(metrics["loss/grad_norm"])
    assert abs(norms[0] - norms[1]) > 1e-3


def test_kl_without_reference_logprobs_is_refused(folder: Path) -> None:
    worker = make_worker(folder, algorithm={"kl_coefficient": 0.1})
    (row,), constants = make_grid(make_samples())
    with pytest.raises(WorkerError, match="reference log-probs"):
        worker.train(row, constants)


def test_the_same_rollouts_give_bit_equal_gradients(folder: Path) -> None:
    """Row 72."""
    (row,), constants = make_grid(make_samples())
    found = []
    for _ in range(2):
        worker = make_worker(folder)
        worker.train(row, constants)
        found.append(gradients(worker))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_memory_does_not_grow_from_step_to_step(folder: Path) -> None:
    """Row 71: no graph is kept alive by metrics or state."""
    worker = make_worker(folder)
    (row,), constants = make_grid(make_samples())

    def live_tensors() -> int:
        gc.collect()
        return sum(type(item) in (Tensor, Parameter, DTensor) for item in gc.get_objects())

    for _ in range(3):
        worker.train(row, constants)
    before = live_tensors()
    for _ in range(7):
        worker.train(row, constants)
    assert live_tensors() <= before
