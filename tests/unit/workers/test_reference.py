"""The reference scores like the policy and stays as it is."""

from pathlib import Path

import torch
from policy_ranks import free_port, make_grid, make_samples, make_worker
from tiny_model import make_tiny_model

from skyrl_nat.config.model import ModelConfig
from skyrl_nat.workers.reference import ReferenceWorker


def test_reference_equals_the_untrained_policy_to_the_bit(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m")
    policy = make_worker(folder, optimizer={"lr": 0.01})
    reference = ReferenceWorker(
        model_path=str(folder),
        model=ModelConfig(logprob_chunk_tokens=7, activation_checkpointing=True),
        device="cpu",
        temperature=1.0,
        num_threads=1,
        seed=1,
    )
    reference.init_process_group(0, 1, "127.0.0.1", free_port(), 30)
    reference.build()
    (row,), constants = make_grid(make_samples())
    before = reference.compute_logprobs(row)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.compute_logprobs(row), strict=True))
    policy.train(row, constants)
    after = reference.compute_logprobs(row)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not torch.equal(after[0], policy.compute_logprobs(row)[0])
    policy.close()
