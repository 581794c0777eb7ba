"""An Ollama model: Modelfiles for places that host it, and the proof that a server plays it as the trainer does."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from skyrl_nat.config.run import RunConfig
from skyrl_nat.engines.model_folder import read_config
from skyrl_nat.errors import ConfigError, ExportError
from skyrl_nat.export import llama_tools
from skyrl_nat.export.equality import TOLERANCES
from skyrl_nat.export.ollama_client import OllamaClient
from skyrl_nat.export.ollama_template import OllamaTemplate, derive_template, strips_blanks
from skyrl_nat.export.reference import Answer
from skyrl_nat.types import Message

PROFILES_FILE = "profiles.json"
"""File of an export: what belongs to a profile but into no Modelfile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of machine that hosts the model."""

    num_ctx: int
    """Context in tokens; lowered to what the model knows."""
    num_gpu: int | None
    """Layers on a GPU: 0 none, 999 all; None lets Ollama decide."""
    num_batch: int
    """Prompt tokens at once."""
    keep_alive: str
    """How long an unused model stays loaded; of each request or of the server (OLLAMA_KEEP_ALIVE)."""
    num_parallel: int
    """Requests at once; of the server (OLLAMA_NUM_PARALLEL)."""


PROFILES = {
    "laptop": Profile(num_ctx=4096, num_gpu=0, num_batch=128, keep_alive="5m", num_parallel=1),
    "workstation": Profile(num_ctx=8192, num_gpu=None, num_batch=512, keep_alive="30m", num_parallel=2),
    "gpu-server": Profile(num_ctx=32768, num_gpu=999, num_batch=1024, keep_alive="-1", num_parallel=8),
}
DEFAULT_PROFILE = "workstation"


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaModel:
    """What a server gets."""

    file: Path
    """GGUF."""
    form: str
    """Its quantisation."""
    template: OllamaTemplate
    system: str
    """System prompt where a dialogue has none; empty for none."""
    parameters: Mapping[str, Any]
    """Of sampling, the same for all profiles."""
    max_context: int
    adds_bos: bool
    """Whether llama.cpp puts the start token before every prompt."""

    def parameters_of(self, profile: Profile) -> dict[str, Any]:
        """Return all parameters for a place that hosts the model."""
        own = {"num_ctx": min(profile.num_ctx, self.max_context), "num_batch": profile.num_batch}
        return {**self.parameters, **own} | ({} if profile.num_gpu is None else {"num_gpu": profile.num_gpu})

    def modelfile(self, profile: Profile) -> str:
        """Return a Modelfile for a place that hosts the model."""
        lines = [f"FROM ./{self.file.name}", f'TEMPLATE """{self.template.go_text()}"""']
        if self.system:
            lines.append(f'SYSTEM """{self.system}"""')
        for name, value in self.parameters_of(profile).items():
            values = value if isinstance(value, list) else [value]
            lines += [f"PARAMETER {name} {_quoted(each)}" for each in values]
        return "\n".join(lines) + "\n"


def write_ollama(folder: Path, model: Path, files: Mapping[str, Path], config: RunConfig, system: str) -> OllamaModel:
    """Write a Modelfile for every profile beside the GGUF files; the first of these is the one that is hosted.

    Args:
        folder: Of the export.
        model: The Hugging Face folder that the files are made of.
        files: By quantisation.
        config: Of the run: its evaluation's temperature is the default one.
        system: System prompt where a dialogue has none; empty takes that of the chat template, if it has one.

    Raises:
        ExportError: The chat template cannot be written as Ollama's.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    form, file = next(iter(files.items()))
    adds_bos = _adds_bos(file)
    template = derive_template(tokenizer, adds_bos=adds_bos)
    found = OllamaModel(
        file=file,
        form=form,
        template=template,
        system=system or template.default_system,
        # Nothing but the temperature may change the distribution that was trained.
        parameters={
            "temperature": config.rollout.eval_temperature,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "stop": [str(tokenizer.eos_token), *config.rollout.stop],
        },
        adds_bos=adds_bos,
        max_context=int(read_config(model).get("max_position_embeddings", 4096)),
    )
    for text in (found.template.go_text(), found.system):
        if '"""' in text:
            raise ExportError('A Modelfile must hold no """ in its texts, found one. Change the system prompt')
    for name, profile in PROFILES.items():
        (folder / f"Modelfile.{name}").write_text(found.modelfile(profile), encoding="utf-8")
    profiles = {name: asdict(profile) for name, profile in PROFILES.items()}
    (folder / PROFILES_FILE).write_text(json.dumps(profiles, indent=1) + "\n", encoding="utf-8")
    return found


def warnings_of(model: Path) -> list[str]:
    """Return what Ollama does otherwise than the chat template and nothing can be done about."""
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    told = "the chat template takes blanks around messages away, Ollama's cannot: send messages without them"
    return [told] if strips_blanks(tokenizer) else []


async def require_free(url: str, name: str) -> None:
    """Refuse a name that a server has already: creating would replace it.

    Raises:
        ConfigError: The name is taken.
        ExportError: No server answers.
    """
    async with OllamaClient(url) as client:
        if is_known(name, await client.tags()):
            raise ConfigError(f"--ollama-name must be new on the server, {name} is there already. Name another")


async def host_and_prove(url: str, name: str, model: OllamaModel, answers: Sequence[Answer], tokenizer: Any) -> None:
    """Create a model on a server and prove it there; one that fails is removed again.

    Raises:
        ExportError: See `host` and `prove`.
    """
    async with OllamaClient(url) as client:
        try:
            await host(client, name, model, PROFILES[DEFAULT_PROFILE])
            await prove(client, name, model, answers, tokenizer)
        except BaseException:
            with contextlib.suppress(ExportError):
                await client.delete(name)
            raise


def is_known(name: str, tags: Sequence[str]) -> bool:
    """Return whether a name is among a server's, which adds `:latest` to one without a tag."""
    return (name if ":" in name else f"{name}:latest") in tags


async def host(client: OllamaClient, name: str, model: OllamaModel, profile: Profile) -> None:
    """Create a model on a server, and refuse one that does not say what it was given.

    Raises:
        ExportError: The server refuses, or shows another template, system prompt or parameter.
    """
    digest = await client.push(model.file)
    await client.create(
        name,
        files={model.file.name: digest},
        template=model.template.go_text(),
        system=model.system,
        parameters=model.parameters_of(profile),
    )
    shown = await client.show(name)
    faults = [
        what
        for what, found, wanted in (
            ("template", shown.get("template"), model.template.go_text()),
            ("system", shown.get("system") or "", model.system),
        )
        if found != wanted
    ]
    known = _shown_parameters(str(shown.get("parameters") or ""))
    for key, value in model.parameters_of(profile).items():
        wanted = [str(each) for each in (value if isinstance(value, list) else [value])]
        if [_number(each) for each in known.get(key, [])] != [_number(each) for each in wanted]:
            faults.append(f"{key} ({known.get(key)} instead of {wanted})")
    if not is_known(name, await client.tags()):
        faults.append("its name in /api/tags")
    if faults:
        raise ExportError(f"Ollama must show {name} as it was created, but differs in {', '.join(faults)}")


async def prove(client: OllamaClient, name: str, model: OllamaModel, answers: Sequence[Answer], tokenizer: Any) -> None:
    """Refuse a hosted model that renders other prompts than training, or does not answer as the trainer does.

    Args:
        client: Of the server.
        name: Of the model there.
        model: What was created.
        answers: The trainer's.
        tokenizer: Of the model.

    Raises:
        ExportError: With the first prompt that differs.
    """
    dialogues: list[list[Message]] = [
        [{"role": "user", "content": "Say hello."}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello,\nyou."}],
        [
            {"role": "user", "content": "1 + 1?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "And 2 + 2?"},
        ],
    ]
    for dialogue in dialogues:
        told = dialogue
        if model.system and dialogue[0]["role"] != "system":
            told = [{"role": "system", "content": model.system}, *dialogue]
        expected = str(tokenizer.apply_chat_template(told, tokenize=False, add_generation_prompt=True))
        await _require_prompt(client, name, dialogue, expected, tokenizer)
    await _require_answers(client, name, model, answers, tokenizer)


async def _require_prompt(client: OllamaClient, name: str, dialogue: Any, expected: str, tokenizer: Any) -> None:
    """Compare what a server renders; one that does not show it is asked how many tokens it saw."""
    shown = await client.rendered(name, dialogue)
    bos = str(tokenizer.bos_token or "")
    if shown is not None:
        # Where the server adds the start token itself, the template leaves it out.
        if shown not in (expected, expected.removeprefix(bos)):
            raise ExportError(f"Ollama must render {expected!r}, but renders {shown!r}. Nothing was exported")
        return
    count = await client.num_prompt_tokens(name, dialogue)
    wanted = len(tokenizer(expected, add_special_tokens=False)["input_ids"])
    if count != wanted:
        raise ExportError(f"Ollama must see {wanted} tokens of {expected!r}, but sees {count}. Nothing was exported")


async def _require_answers(
    client: OllamaClient, name: str, model: OllamaModel, answers: Sequence[Answer], tokenizer: Any
) -> None:
    """Compare the first token after each prompt, which no earlier difference can have moved."""
    wrong: list[str] = []
    agreement, bos = TOLERANCES[model.form].agreement, str(tokenizer.bos_token or "")
    for number, answer in enumerate(answers):
        prompt = str(tokenizer.decode(answer.prompt))
        raw = prompt.removeprefix(bos) if model.adds_bos else prompt
        found = await client.generate_raw(name, raw, num_predict=1)
        expected = str(tokenizer.decode(answer.token_ids[:1], skip_special_tokens=True))
        if found != expected:
            wrong.append(f"prompt {number}: the trainer says {expected!r}, Ollama says {found!r}")
    share = 1 - len(wrong) / len(answers)
    if share < agreement:
        raise ExportError(
            f"Ollama must answer as the trainer does to {agreement:.0%} of the prompts, but does to {share:.0%}: "
            f"{'; '.join(wrong[:3])}. Nothing was exported"
        )


def _adds_bos(file: Path) -> bool:
    """Return whether llama.cpp puts the start token before every prompt."""
    return llama_tools.tokens_of(file, ["x"], adds_bos=True) != llama_tools.tokens_of(file, ["x"])


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _shown_parameters(text: str) -> dict[str, list[str]]:
    """Return the parameters of `/api/show`: a line each, with its name and a value that may be quoted."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        value = value.strip()
        found.setdefault(key, []).append(json.loads(value) if value.startswith('"') else value)
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
