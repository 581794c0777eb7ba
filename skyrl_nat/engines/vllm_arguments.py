"""What vLLM is started with: environment variables, read at its import, and engine arguments."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import EngineConfig
from skyrl_nat.engines.model_folder import kv_bytes_per_token

_GIB = 1024**3
_CPU_BLOCK_TOKENS = 32
_WORKER_EXTENSION = "skyrl_nat.weight_sync.vllm_worker.WorkerExtension"
_FP32_RESIDUAL = "skyrl_nat.engines.vllm_residual.Fp32ResidualExtension"
_LONGEST_LOOK_UP = 4
"""Tokens before a guess of prompt look-up that must have occurred before; shorter matches are tried down to 2."""

_VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM has buffers for; lower ones are filled up with zeros."""


def set_environment(*, is_cpu: bool, num_threads: int) -> None:
    """Set what vLLM reads at its import, here and in its processes.

    Args:
        is_cpu: Whether the engine computes on the CPU.
        num_threads: Threads of one worker there.
    """
    os.environ.update(environment_of(is_cpu=is_cpu, num_threads=num_threads))
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if is_cpu:
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # would overrule kv_cache_memory_bytes


def environment_of(*, is_cpu: bool, num_threads: int) -> dict[str, str]:
    """Return the environment variables that vLLM runs with; see `set_environment`."""
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    if is_cpu:
        variables |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(max(1, num_threads))}
    return variables


def engine_arguments(
    folder: Path, config: EngineConfig, *, max_model_len: int, is_cpu: bool, seed: int
) -> dict[str, Any]:
    """Return keyword arguments of `AsyncEngineArgs`.

    Args:
        folder: The model's.
        config: Section `engine`; what its `extra` says goes before all others.
        max_model_len: Context length in tokens.
        is_cpu: Whether the engine computes on the CPU.
        seed: Of vLLM's own random streams.
    """
    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": config.dtype,
        "seed": seed,
        "max_model_len": max_model_len,
        "max_num_seqs": 1 if config.deterministic else config.max_num_seqs,
        "enforce_eager": config.enforce_eager,
        "enable_prefix_caching": config.prefix_caching and not config.deterministic,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "worker_extension_cls": _FP32_RESIDUAL if config.fp32_residual else _WORKER_EXTENSION,
        "weight_transfer_config": {"backend": "skyrl_nat"},
    }
    if config.fp32_head:
        arguments["hf_overrides"] = {"head_dtype": "float32"}
    if config.num_speculative_tokens:
        arguments["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": config.num_speculative_tokens,
            "prompt_lookup_max": _LONGEST_LOOK_UP,
            "prompt_lookup_min": 2,
        }
    if is_cpu:
        arguments["kv_cache_memory_bytes"] = _kv_cache_bytes(folder, config, max_model_len)
        arguments["block_size"] = _CPU_BLOCK_TOKENS
    else:
        arguments["gpu_memory_utilization"] = config.gpu_memory_fraction
        arguments["enable_sleep_mode"] = config.sleep
    return {**arguments, **config.extra}


_TRAINING_ONLY = ("skip_tokenizer_init", "weight_transfer_config", "enable_sleep_mode", "model", "disable_log_stats")
"""Arguments that a server of fixed weights has no use for."""


def serve_flags(arguments: Mapping[str, Any]) -> list[str]:
    """Return the engine arguments of training as flags of `vllm serve`, prefix caching on.

    So numbers are computed in serving as in training.
    """
    kept = {name: value for name, value in arguments.items() if name not in _TRAINING_ONLY}
    if kept.get("worker_extension_cls") == _WORKER_EXTENSION:
        del kept["worker_extension_cls"]  # takes weights, which do not change here
    kept["enable_prefix_caching"] = True
    flags: list[str] = []
    for name, value in kept.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            flags.append(flag if value else f"--no-{flag[2:]}")
        else:
            flags += [flag, json.dumps(value) if isinstance(value, dict | list) else str(value)]
    return flags


def adapter_arguments(lora: LoraConfig) -> dict[str, Any]:
    """Return keyword arguments of `AsyncEngineArgs` for one adapter beside the weights."""
    return {
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(rank for rank in _VLLM_RANKS if rank >= lora.rank),
        "lora_target_modules": list(lora.targets),
    }


def _kv_cache_bytes(folder: Path, config: EngineConfig, max_model_len: int) -> int:
    """Return bytes of KV for `max_num_seqs` full sequences, at most `kv_cache_gib`."""
    token_bytes = kv_bytes_per_token(folder, getattr(torch, config.dtype))
    # One block more per sequence for its last, part-filled one; vLLM keeps one for itself.
    tokens = (max_model_len + _CPU_BLOCK_TOKENS) * config.max_num_seqs
    tokens += _CPU_BLOCK_TOKENS
    return min(config.kv_cache_gib * _GIB, tokens * token_bytes)
