"""The engines that an export is tested with, each in this process and alone."""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from skyrl_nat.config.cluster import Device
from skyrl_nat.config.rollout import EngineConfig, EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.engines.base import Engine
from skyrl_nat.engines.gguf import GgufEngine
from skyrl_nat.engines.hf import HfEngine
from skyrl_nat.engines.model_folder import read_config
from skyrl_nat.errors import ConfigError
from skyrl_nat.export.equality import Comparison, compare, looser
from skyrl_nat.export.reference import Answer
from skyrl_nat.rollouts.chat import ChatCodec

PACKAGES = {"vllm": "vllm", "gguf": "llama_cpp"}
"""Engine -> the module that it needs and that may not be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """One engine and what it plays."""

    kind: EngineKind
    folder: Path
    """Hugging Face folder; of a GGUF file it gives the tokenizer."""
    gguf: Path | None = None
    form: str = ""
    """Quantisation of the GGUF file."""

    @property
    def name(self) -> str:
        """Engine and quantisation."""
        return f"{self.kind} {self.form}".strip()


def is_installed(kind: str) -> bool:
    """Return whether what an engine needs is there."""
    return kind not in PACKAGES or importlib.util.find_spec(PACKAGES[kind]) is not None


def choose_kinds(asked: Sequence[str], form: str, own: EngineKind) -> list[EngineKind]:
    """Return the engines to test with.

    Args:
        asked: By the user; empty for the run's own, and of GGUF files for the embedded one and llama.cpp.
        form: Of the export.
        own: Engine of the run: another one may be unable to play its model.

    Raises:
        ConfigError: One that was asked for is not installed.
    """
    playing = ["hf", "gguf"] if form in ("gguf", "ollama") else [str(own)]
    chosen = list(asked) or [kind for kind in playing if is_installed(kind)]
    chosen = chosen or ["hf"]
    missing = [kind for kind in chosen if not is_installed(kind)]
    if missing:
        extras = ",".join(missing)
        raise ConfigError(
            f"--engines must be installed, {', '.join(missing)} is not. pip install 'skyrl-nat[{extras}]'"
        )
    if form in ("gguf", "ollama") and "gguf" not in chosen:
        raise ConfigError(
            "An export to GGUF must be tested with engine gguf, which is not named. Add it to --engines, after "
            "pip install 'skyrl-nat[gguf]'"
        )
    return [EngineKind(kind) for kind in chosen]


async def run_tests(
    tests: Sequence[Test], answers: Sequence[Answer], config: RunConfig, codec: ChatCodec
) -> list[Comparison]:
    """Play one engine after the other and compare it with the trainer."""
    length = max(len(answer.prompt) + len(answer.places) for answer in answers) + 1
    found: list[Comparison] = []
    for test in tests:
        engine = _make(test, config, length)
        weights = str(read_config(test.folder).get("dtype", "float32"))
        formats = str(config.model.compute_dtype), test.form or config.engine.dtype, weights
        await engine.start()
        try:
            found.append(await compare(engine, test.name, answers, looser(*formats), codec.show))
        finally:
            await engine.shutdown()
    return found


def _make(test: Test, config: RunConfig, length: int) -> Engine:
    settings = {
        "max_model_len": length,
        "device": "cuda" if config.cluster.device is Device.cuda else "cpu",
        "seed": config.seed,
        "num_threads": len(os.sched_getaffinity(0)),
    }
    section = EngineConfig(
        kind=test.kind,
        gguf=None if test.gguf is None else str(test.gguf),
        dtype=config.engine.dtype,
        fp32_head=config.engine.fp32_head,
        fp32_residual=config.engine.fp32_residual,
        max_num_seqs=config.engine.max_num_seqs,
        kv_cache_gib=config.engine.kv_cache_gib,
        gpu_memory_fraction=config.engine.gpu_memory_fraction,
    )
    if test.kind is EngineKind.vllm:
        from skyrl_nat.engines.vllm import VllmEngine

        return VllmEngine(str(test.folder), replace(section, sleep=False), **settings)
    if test.kind is EngineKind.gguf:
        return GgufEngine(str(test.folder), section, **settings)
    return HfEngine(str(test.folder), section, **settings)
