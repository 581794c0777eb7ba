"""From a run, a checkpoint or a model to what is exported: written beside its place, tested, and only then there."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from transformers import AutoTokenizer

from skyrl_nat.checkpoint.adapters import RECORD, adapter_digest, merged_adapter, merged_adapters
from skyrl_nat.checkpoint.manager import CheckpointManager, held, read_state
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.cluster.topology import Topology, start_topology
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.controller.opening import find_checkpoint
from skyrl_nat.controller.subject import Subject
from skyrl_nat.engines.model_folder import read_stop_token_ids
from skyrl_nat.errors import ConfigError
from skyrl_nat.export.engines import Test, choose_kinds, run_tests
from skyrl_nat.export.equality import Comparison, require_equal
from skyrl_nat.export.gguf import warnings_of_types, write_gguf
from skyrl_nat.export.hf import check_model, complete
from skyrl_nat.export.llama_tools import require_library
from skyrl_nat.export.lora import check_adapter
from skyrl_nat.export.model_card import Exported, evaluation_of, write_card
from skyrl_nat.export.ollama import OllamaModel, host_and_prove, require_free, warnings_of, write_ollama
from skyrl_nat.export.prompts import Prompts, find_prompts
from skyrl_nat.export.reference import Answer, greedy_answers
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.rollouts.chat import ChatCodec

EQUALITY = "equality.json"
"""File of an export: prompts, the trainer's answers and what each engine said."""
MAX_PROMPT_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be exported."""

    folder: Path
    """To make."""
    form: str = "hf"
    """`hf`, `merged`, `lora`, `gguf` or `ollama`."""
    quantisations: Sequence[str] = ("Q4_K_M",)
    """Of GGUF files."""
    engines: Sequence[str] = ()
    """To test with; empty for the run's own, see `choose_kinds`."""
    num_prompts: int = 8
    num_tokens: int = 16
    """Of each answer in the test."""
    dtype: str | None = None
    """torch dtype name of the weights; None keeps the trainer's."""
    system: str = ""
    """System prompt of an Ollama model where a dialogue has none; empty takes the chat template's."""
    ollama_url: str = ""
    """Server on which the model is created and tested; empty for none."""
    ollama_name: str = ""
    """Of the model there."""


@dataclass(slots=True, kw_only=True)
class Work:
    """One export on its way."""

    subject: Subject
    wanted: Wanted
    console: ConsoleBackend
    part: Path
    """Becomes the export's folder."""
    scratch: Path
    """For what is needed only meanwhile; on the same disk."""
    step: int | None = None
    answers: list[Answer] = field(default_factory=list[Answer])
    prompts: Prompts = field(default_factory=lambda: Prompts(token_ids=[], source=""))
    hosted: OllamaModel | None = None
    """What an Ollama server gets."""

    @property
    def model(self) -> Path:
        """The whole model as a Hugging Face folder: what is exported, or what that is made of."""
        return self.part if self.wanted.form in ("hf", "merged") else self.scratch / "model"

    @property
    def adapter(self) -> Path:
        """The adapters on their own."""
        return self.part if self.wanted.form == "lora" else self.model / "adapter"


async def export(subject: Subject, wanted: Wanted, console: ConsoleBackend) -> Path:
    """Write an export, which appears only when it is complete and its test holds.

    Policy ranks are started as in training, and nothing else; their forward pass is what the export is measured by.

    Args:
        subject: A run, a model or an adapter.
        wanted: What to write.
        console: Says what is going on.

    Raises:
        ConfigError: The run has no checkpoint, or the subject has not what the format needs.
        CheckpointError: It is damaged, or the folder cannot be written.
        ExportError: The model is incomplete, or does not answer as the trainer does; nothing is left then.
    """
    _require_possible(subject, wanted)
    # Log-probs as they are: those of training may be at another temperature.
    config = subject.config
    subject = replace(subject, config=replace(config, rollout=replace(config.rollout, temperature=1.0)))
    kinds = choose_kinds(wanted.engines, wanted.form, subject.config.engine.kind)
    source = resolve_model(subject.config.model.path)
    if wanted.ollama_url:
        await require_free(wanted.ollama_url, wanted.ollama_name)
    if not subject.is_run:
        check_model(source)
    with _places(wanted.folder) as (part, scratch):
        work = Work(subject=subject, wanted=wanted, console=console, part=part, scratch=scratch)
        await _ask_trainer(work, source)
        tests = _finish(work, source, kinds)
        console.status(f"testing with {', '.join(test.name for test in tests)}")
        codec = ChatCodec.from_folder(source)
        found = await run_tests(tests, work.answers, subject.config, codec)
        require_equal(found)
        if work.hosted is not None and wanted.ollama_url:
            console.status(f"creating {wanted.ollama_name} on {wanted.ollama_url}")
            tokenizer = AutoTokenizer.from_pretrained(str(work.model))
            await host_and_prove(wanted.ollama_url, wanted.ollama_name, work.hosted, work.answers, tokenizer)
        _describe(work, source, found)
        part.rename(wanted.folder)
    return wanted.folder


def require_new(target: Path) -> None:
    """Refuse a folder that is there already.

    Raises:
        ConfigError: With its name.
    """
    if target.exists():
        raise ConfigError(f"The folder to export into must be new, {target} is there already. Name another")


def _require_possible(subject: Subject, wanted: Wanted) -> None:
    config = subject.config
    if config.engine.kind is EngineKind.gguf:
        raise ConfigError(f"A GGUF file cannot be exported again, got {config.engine.gguf}. Name what it was made of")
    has_adapter = bool(config.model.lora.rank) or subject.adapter is not None
    if wanted.form in ("lora", "merged") and not has_adapter:
        raise ConfigError(
            f"--format {wanted.form} must be used with a run that trains adapters (model.lora.rank > 0) or with an "
            f"adapter's folder, {subject.name} has none. Use --format hf"
        )
    if wanted.form in ("gguf", "ollama"):
        require_library()


@contextlib.contextmanager
def _places(target: Path) -> Iterator[tuple[Path, Path]]:
    """Make two folders beside an export's place, and take away whatever is left of them."""
    with contextlib.ExitStack() as undo:
        folders = [target.with_name(f".{target.name}.{name}") for name in ("part", "work")]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            undo.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folders[0].resolve(), folders[1].resolve()


async def _ask_trainer(work: Work, source: Path) -> None:
    """Start the policy, let it write its weights and answer the prompts."""
    subject, config, console = work.subject, work.subject.config, work.console
    start = find_checkpoint(config, CheckpointManager(subject.scratch)) if subject.is_run else None
    if subject.is_run and start is None:
        raise ConfigError(
            f"{config.run_dir} must hold a checkpoint to export, found none. Train with checkpoint.save_final"
        )
    console.status(f"starting Ray and the policy to export {subject.name if start is None else start.name}")
    with held(start):
        work.step = None if start is None else int(read_state(start)["step"])
        async with start_topology(config, source, 1, is_playing=False) as topology:
            if start is not None:
                await topology.policy.call_all("load", str(start / "policy"))
            await _write_weights(work, topology)
            await _answer(work, topology, source)


async def _write_weights(work: Work, topology: Topology) -> None:
    if work.wanted.form == "lora" and work.subject.adapter is None:
        await topology.policy.call_all("export_adapter", str(work.part))
    elif work.wanted.form != "lora":
        await topology.policy.call_all("export_hf", str(work.model), work.wanted.dtype)


async def _answer(work: Work, topology: Topology, source: Path) -> None:
    config, wanted = work.subject.config, work.wanted
    room = min(config.rollout.max_total_tokens, MAX_PROMPT_TOKENS) - wanted.num_tokens - 1
    run_dir = config.run_dir if work.subject.is_run else None
    codec = ChatCodec.from_folder(source)
    work.prompts = await find_prompts(run_dir, config, codec, count=wanted.num_prompts, room=room)
    work.console.status(f"the trainer answers {len(work.prompts.token_ids)} prompts ({work.prompts.source})")
    work.answers = await greedy_answers(
        topology.policy,
        work.prompts.token_ids,
        num_tokens=wanted.num_tokens,
        stop_token_ids=read_stop_token_ids(source),
        num_ranks=config.data_parallel_size,
        token_budget=config.trainer.micro_batch_tokens,
    )


def _finish(work: Work, source: Path, kinds: Sequence[EngineKind]) -> list[Test]:
    """Make the export of what the trainer wrote, check it, and return what is to be tested."""
    if work.wanted.form == "lora":
        whole = _sum_of(work, source)
        return [Test(kind=kind, folder=whole) for kind in kinds]
    for warning in complete(work.model):
        work.console.warn(warning)
    check_model(work.model)
    tests = [Test(kind=kind, folder=work.model) for kind in kinds if kind is not EngineKind.gguf]
    files: dict[str, Path] = {}
    if work.wanted.form in ("gguf", "ollama"):
        work.console.status("llama.cpp converts and quantises")
        files = write_gguf(work.model, work.part, work.subject.name, work.wanted.quantisations, work.scratch)
        for warning in warnings_of_types(files):
            work.console.warn(warning)
        tests += [Test(kind=EngineKind.gguf, folder=work.model, gguf=file, form=form) for form, file in files.items()]
    if work.wanted.form == "ollama":
        for warning in warnings_of(work.model):
            work.console.warn(warning)
        work.hosted = write_ollama(work.part, work.model, files, work.subject.config, work.wanted.system)
    return tests


def _sum_of(work: Work, source: Path) -> Path:
    """Check an exported adapter, and return the model that peft makes of it and its base."""
    base = work.subject.base or source
    if work.subject.adapter is not None:
        shutil.copytree(work.subject.adapter, work.part, dirs_exist_ok=True)
    check_adapter(work.part, base)
    return merged_adapter(work.part, base, work.scratch / "merged")


def _describe(work: Work, source: Path, found: Sequence[Comparison]) -> None:
    """Write card, record and test into the export."""
    config, wanted = work.subject.config, work.wanted
    exported = Exported(
        form=wanted.form,
        name=work.subject.name,
        step=work.step,
        config=config,
        evaluation=None if work.step is None else evaluation_of(config.run_dir, work.step),
        prompts=work.prompts.source,
        comparisons=found,
    )
    write_card(work.part, exported)
    test = {
        "prompts": work.prompts.source,
        "trainer": [answer.to_dict() for answer in work.answers],
        "engines": [each.to_dict() for each in found],
    }
    merged = merged_adapters(source)
    if config.model.lora.rank and wanted.form != "lora":
        merged.append(adapter_digest(work.adapter))
    record = {
        "format": wanted.form,
        "subject": work.subject.name,
        "step": work.step,
        "base_model": config.model.path if work.subject.base is None else str(work.subject.base),
        "merged_adapters": [] if wanted.form == "lora" else merged,
    }
    for name, data in ((EQUALITY, test), (RECORD, record)):
        (work.part / name).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
