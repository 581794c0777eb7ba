"""A model that a server of Ollama's API does not play as training had it is refused, and removed again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from aiohttp.test_utils import TestServer
from ollama_server import OllamaServer
from tiny_model import CHAT_TEMPLATE, make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from skyrl_nat.errors import ConfigError, ExportError
from skyrl_nat.export.ollama import DEFAULT_PROFILE, PROFILES, OllamaModel, host_and_prove, require_free
from skyrl_nat.export.ollama_client import OllamaClient
from skyrl_nat.export.ollama_template import derive_template
from skyrl_nat.export.reference import Answer, Place

GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "stop": ["<|im_end|>"]}
PROMPTS = ("add 1 and 2", "use a tool", "return the answer", "run")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("ollama") / "model")


class Player:
    """Plays a tiny model for a server."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder)

    def logprobs(self, tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return self.model(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)

    def __call__(self, file: bytes, prompt: str, count: int) -> tuple[str, int]:
        tokens = list(self.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        said = []
        for _ in range(count):
            said.append(int(self.logprobs([*tokens, *said]).argmax()))
        return self.tokenizer.decode(said, skip_special_tokens=True), len(tokens)


@pytest.fixture(scope="module")
def player(folder: Path) -> Player:
    return Player(folder)


@pytest.fixture(scope="module")
def answers(player: Player) -> list[Answer]:
    found = []
    for text in PROMPTS:
        message = [{"role": "user", "content": text}]
        rendered = player.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        tokens = player.tokenizer(rendered, add_special_tokens=False)["input_ids"]
        best = player.logprobs(tokens).topk(5)
        found.append(Answer(prompt=tokens, places=[Place(ids=best.indices.tolist(), logprobs=best.values.tolist())]))
    return found


@pytest.fixture
def model(player: Player, tmp_path: Path) -> OllamaModel:
    file = tmp_path / "tiny-Q8_0.gguf"
    file.write_bytes(b"GGUF and what the player does not look at")
    return OllamaModel(
        file=file,
        form="Q8_0",
        template=derive_template(player.tokenizer, adds_bos=False),
        system="Be brief.",
        parameters=GREEDY,
        max_context=6000,
        adds_bos=False,
    )


def with_server(server: OllamaServer, work: Callable[[str], Awaitable[None]]) -> None:
    async def run() -> None:
        async with TestServer(server.app()) as opened:
            await work(str(opened.make_url("/")))

    asyncio.run(run())


def proved(server: OllamaServer, model: OllamaModel, answers: list[Answer], player: Player) -> None:
    with_server(server, lambda url: host_and_prove(url, "tiny", model, answers, player.tokenizer))


@pytest.mark.parametrize("shows_prompts", [True, False])
def test_a_model_is_created_and_proved(model, answers, player, shows_prompts: bool):
    server = OllamaServer(player, shows_prompts=shows_prompts)
    proved(server, model, answers, player)
    made = server.models["tiny:latest"]
    assert (made["system"], made["template"]) == ("Be brief.", model.template.go_text())
    assert made["parameters"]["num_ctx"] == 6000 and made["parameters"]["repeat_penalty"] == 1.0
    assert server.blobs[made["digest"]] == model.file.read_bytes()


def test_a_file_that_the_server_has_is_not_sent_again(model, answers, player):
    server = OllamaServer(player)
    proved(server, model, answers, player)
    with_server(server, lambda url: host_and_prove(url, "second", model, answers, player.tokenizer))
    assert server.num_uploads == 1 and set(server.models) == {"tiny:latest", "second:latest"}


@pytest.mark.parametrize("part", ["template", "system", "parameters"])
def test_a_server_that_forgets_a_part_is_refused_and_the_model_removed(model, answers, player, part: str):
    server = OllamaServer(player)
    server.forgets = part
    with pytest.raises(ExportError, match="must show tiny as it was created, but differs in"):
        proved(server, model, answers, player)
    assert server.models == {}


@pytest.mark.parametrize("shows_prompts", [True, False])
def test_another_prompt_than_that_of_training_is_refused(model, answers, player, shows_prompts: bool):
    """EX-05."""
    other = replace(model, template=replace(model.template, opening="<|im_start|>assistant:\n"))
    server = OllamaServer(player, shows_prompts=shows_prompts)
    with pytest.raises(ExportError, match="Ollama must render" if shows_prompts else r"Ollama must see \d+ tokens"):
        proved(server, other, answers, player)
    assert server.models == {}


def test_other_answers_than_the_trainer_s_are_refused(model, answers, player, tmp_path: Path):
    server = OllamaServer(Player(make_tiny_model(tmp_path / "other", seed=5)))
    with pytest.raises(ExportError, match=r"to 80% of the prompts, but does to \d+%: prompt \d: the trainer says"):
        proved(server, model, answers, player)
    assert server.models == {}


def test_a_name_that_is_taken_is_refused(model, answers, player):
    server = OllamaServer(player)
    proved(server, model, answers, player)
    with pytest.raises(ConfigError, match="--ollama-name must be new on the server, tiny is there already"):
        with_server(server, lambda url: require_free(url, "tiny"))
    with_server(server, lambda url: require_free(url, "another"))


def test_no_server_is_one_sentence():
    with pytest.raises(ExportError, match=r"must answer at http://127\.0\.0\.1:9, but: .* Start one with ollama serve"):
        asyncio.run(require_free("http://127.0.0.1:9", "tiny"))


def test_what_the_server_refuses_is_told(model, player):
    server = OllamaServer(player)

    async def work(url: str) -> None:
        async with OllamaClient(url) as client:
            files = {"a.gguf": "sha256:" + "0" * 64}
            with pytest.raises(ExportError, match=r"answers 400: .*not found"):
                await client.create("tiny", files=files, template="{{ .System }}", system="", parameters={})
            with pytest.raises(ExportError, match=r"answers 404: .*model 'tiny' not found"):
                await client.show("tiny")
            await client.delete("tiny")

    with_server(server, work)


def test_a_modelfile_says_what_the_api_is_told(model):
    text = model.modelfile(PROFILES["laptop"])
    assert text.startswith('FROM ./tiny-Q8_0.gguf\nTEMPLATE """{{ if .System }}<|im_start|>system\n{{ .System }}')
    lines = text.splitlines()
    assert 'SYSTEM """Be brief."""' in lines and 'PARAMETER stop "<|im_end|>"' in lines
    assert "PARAMETER num_ctx 4096" in lines and "PARAMETER num_gpu 0" in lines and "PARAMETER top_k 0" in lines
    server = model.modelfile(PROFILES["gpu-server"]).splitlines()
    assert "PARAMETER num_ctx 6000" in server and "PARAMETER num_gpu 999" in server
    assert not any("num_gpu" in line for line in model.modelfile(PROFILES[DEFAULT_PROFILE]).splitlines())
    assert CHAT_TEMPLATE not in text
