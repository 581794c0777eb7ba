"""What ranks of tests on layout do: each function is one rank of `policy_ranks.spawn_ranks`."""

import resource
from pathlib import Path
from typing import Any

import torch
from policy_ranks import RECOMPUTE, make_grid, make_samples, make_worker, train_steps
from tiny_model import make_tiny_model
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from skyrl_nat.config.model import LoraConfig, ModelConfig, Offload
from skyrl_nat.workers.model import reshard
from skyrl_nat.workers.optimizer import optimizer_tensors
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.process_group import full_tensor
from skyrl_nat.workers.reference import ReferenceWorker


def make_wide_model(folder: Path) -> int:
    """Write a random Llama of about 100 MB beside a tiny one's tokenizer, in two files; returns its bytes."""
    make_tiny_model(folder)
    (folder / "model.safetensors").unlink()
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder, max_shard_size="60MB")
    return sum(p.numel() * p.element_size() for p in model.parameters())


def make_reference(
    folder: Path, rank: int, world_size: int, port: int, kind: type[ReferenceWorker] = ReferenceWorker
) -> ReferenceWorker:
    """Return a built reference worker."""
    settings: dict[str, Any] = {"device": "cpu", "temperature": 1.0, "num_threads": 1, "seed": 0}
    worker = kind(model_path=str(folder), model=ModelConfig(), **settings)
    worker.init_process_group(rank, world_size, "127.0.0.1", port, 60)
    worker.build()
    return worker


def peak_of_build(
    rank: int,
    world_size: int,
    port: int,
    tiny: str,
    model: str,
    out: str,
    kind: type[ReferenceWorker] = ReferenceWorker,
) -> None:
    """Write by how many bytes the process grew at most while it built a model."""
    worker = make_reference(Path(tiny), rank, world_size, port, kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker.model_path = model
    worker.build()
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    torch.save(grown, Path(out) / f"rank{rank}.pt")
    worker.close()


def loaded_weights(
    rank: int, world_size: int, port: int, model: str, out: str, lora_rank: int, kind: type[PolicyWorker] = PolicyWorker
) -> None:
    """Write all weights, adapters included, as they are after `build`."""
    settings: Any = {"model": {"lora": LoraConfig(rank=lora_rank)}, "kind": kind}
    worker = make_worker(Path(model), **settings, rank=rank, world_size=world_size, port=port)
    found = worker.export_weights()
    found |= {name: full_tensor(p) for name, p in worker.module.named_parameters() if "lora_" in name}
    if rank == 0:
        torch.save(found, Path(out) / "weights.pt")
    worker.close()


def train_offloaded(rank: int, world_size: int, port: int, model: str, out: str, lora_rank: int) -> None:
    """Train three steps without and with everything away after each; save what both have, and sizes while away."""
    results: dict[str, Any] = {}
    grid, constants = make_grid(make_samples(), num_ranks=world_size, budget=40)
    for is_away in (False, True):
        settings = {"lora": LoraConfig(rank=lora_rank)}
        worker = make_worker(
            Path(model), model=settings, rank=rank, world_size=world_size, port=port, algorithm=RECOMPUTE
        )
        metrics = []
        for _ in range(3):
            if is_away:
                worker.offload(Offload.all)
                results["sizes"] = sorted({s.nbytes() for s in storages(worker)})
                worker.onload()
            metrics += train_steps(worker, grid[rank], constants, 1)
        if is_away:
            results["moved"] = worker.offload(Offload.all)["bytes"]
        folder = Path(out) / f"checkpoint{int(is_away)}"
        worker.save(folder)
        results[f"digest{int(is_away)}"] = worker.parameter_digest()
        results[f"metrics{int(is_away)}"] = metrics
        results[f"checksums{int(is_away)}"] = worker.checksums()
        if is_away:
            results["sizes_after"] = sorted({s.nbytes() for s in storages(worker)})
            worker.load(folder)
            results["digest_loaded"] = worker.parameter_digest()
    torch.save(results, Path(out) / f"rank{rank}.pt")
    worker.close()


def storages(worker: PolicyWorker) -> list[torch.UntypedStorage]:
    """Return the memory of parameters and of optimizer state, single numbers left out."""
    tensors = [*worker.module.parameters(), *optimizer_tensors(worker.optimizer)]
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors if t.ndim]
    return [t.untyped_storage() for t in local]


def train_replicated(
    rank: int, world_size: int, port: int, model: str, out: str, changes: dict[str, Any], checkpoint: str
) -> None:
    """Train two steps in a layout, go on from a checkpoint, and save metrics, weights and shards."""
    num_replicas = changes.pop("num_replicas")
    worker = make_worker(
        Path(model),
        model=changes,
        optimizer={"max_grad_norm": 0.5},
        rank=rank,
        world_size=world_size,
        port=port,
        algorithm=RECOMPUTE,
        num_replicas=num_replicas,
    )
    grid, constants = make_grid(make_samples(), num_ranks=world_size, budget=40)
    worker.module.score(grid[rank][0])
    layer = worker.module.causal_lm.model.layers[0]
    results: dict[str, Any] = {"is_gathered": not isinstance(next(layer.parameters()), DTensor)}
    reshard(worker.module)
    results["metrics"] = train_steps(worker, grid[rank], constants, 2)
    parameter = next(worker.module.parameters())
    results["mesh"] = parameter.device_mesh.mesh.tolist() if isinstance(parameter, DTensor) else []
    results["weights"] = worker.export_weights()
    results["embedding_bytes"] = storages(worker)[0].nbytes()
    worker.save(Path(out) / "checkpoint")
    if checkpoint:
        worker.load(Path(checkpoint))
        results["digest_loaded"] = worker.parameter_digest()
    results["digest"] = worker.parameter_digest()
    torch.save(results, Path(out) / f"rank{rank}.pt")
    worker.close()
