"""The command `export`; imports late."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.controller.stop_signals import run_until_stopped
from skyrl_nat.errors import ConfigError

if TYPE_CHECKING:
    from skyrl_nat.controller.subject import Subject
    from skyrl_nat.export.exporting import Wanted

FORMATS = ("hf", "merged", "lora", "gguf", "ollama")


def add_commands(commands: Any) -> None:
    """Add `export` to the subparsers of `skyrl-nat`."""
    export = commands.add_parser(
        "export", help="write a run or model for use elsewhere, tested for equality with the trainer"
    )
    export.add_argument("subject", help="folder of a run, a checkpoint, a model or a LoRA adapter, or a model's name")
    export.add_argument("folder", type=Path, help="folder to make; it appears only when the test holds")
    export.add_argument("--checkpoint", default="latest", help="of a run: folder or URL of one, best or latest")
    export.add_argument(
        "--format",
        default="hf",
        choices=FORMATS,
        help="hf (a Hugging Face folder), merged (the same, of adapters), lora (adapters alone), gguf, ollama",
    )
    export.add_argument("--quantise", default="Q4_K_M", metavar="TYPES", help="of GGUF files, e.g. Q4_K_M,Q8_0,F16")
    export.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="of the weights; default: as trained"
    )
    export.add_argument(
        "--engines",
        default="",
        metavar="NAMES",
        help="to test with: hf,vllm,gguf; default: the run's own, and for GGUF hf,gguf",
    )
    export.add_argument("--prompts", type=int, default=8, help="prompts of the test")
    export.add_argument("--tokens", type=int, default=16, help="tokens of each answer in the test")
    export.add_argument("--system", default="", help="system prompt of an Ollama model; default: the chat template's")
    export.add_argument("--ollama", default="", metavar="URL", help="server to create the Ollama model on and test it")
    export.add_argument("--ollama-name", default="", metavar="NAME", help="of the model there; default: FOLDER's name")
    export.add_argument("overrides", nargs="*", help="config overrides")
    export.set_defaults(function=_export, goes_on="the same command")


def _export(options: argparse.Namespace) -> None:
    from skyrl_nat.controller.subject import opened
    from skyrl_nat.export.exporting import require_new

    require_new(options.folder)
    wanted = _wanted(options)
    with opened(options.subject, options.checkpoint, options.overrides) as subject:
        run_until_stopped(_export_subject(subject, wanted), subject.config.recovery.grace_s)


def _wanted(options: argparse.Namespace) -> "Wanted":
    from skyrl_nat.export.exporting import Wanted
    from skyrl_nat.export.llama_tools import QUANTISATIONS

    quantisations = _names("--quantise", options.quantise.upper(), QUANTISATIONS)
    engines = _names("--engines", options.engines, ("hf", "vllm", "gguf"))
    for name in ("prompts", "tokens"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} must be at least 1, got {getattr(options, name)}. Leave it out")
    if (options.ollama or options.ollama_name or options.system) and options.format != "ollama":
        raise ConfigError(
            f"--system and --ollama must be used with --format ollama, got {options.format}. Leave them out"
        )
    return Wanted(
        folder=options.folder,
        form=options.format,
        quantisations=quantisations,
        engines=engines,
        num_prompts=options.prompts,
        num_tokens=options.tokens,
        dtype=options.dtype,
        system=options.system,
        ollama_url=options.ollama,
        ollama_name=options.ollama_name or options.folder.name.lower(),
    )


def _names(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise ConfigError(f"{option} must be names out of {', '.join(known)}, got {name!r}. Put commas between")
    return list(dict.fromkeys(names))


async def _export_subject(subject: "Subject", wanted: "Wanted") -> None:
    from skyrl_nat.export.exporting import export
    from skyrl_nat.monitoring.console import ConsoleBackend

    with ConsoleBackend() as console:
        await export(subject, wanted, console)
    print(wanted.folder)
