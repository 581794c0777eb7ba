"""What the vLLM engine asks of vLLM and makes of its answers; vLLM itself is a fake here."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import make_tiny_model, make_tiny_tokenizer
from vllm_names import put_vllm_names

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import AdapterPush, EngineConfig, EngineKind
from skyrl_nat.engines.vllm import VllmEngine
from skyrl_nat.engines.vllm_requests import VllmRequests
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.monitoring.usage import Activity, Usage
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams
from skyrl_nat.weight_sync.adapters import adapter_shapes
from skyrl_nat.weight_sync.manifest import spec_of

Logprobs = list[dict[int, float]]


class FakeOutputs:
    """What vLLM collects for one request: single outputs, or one at its end."""

    request_id = "internal"

    def __init__(self, calls: list[str], parts: list[tuple[list[int], Logprobs, str | None]], *, is_streamed: bool):
        if not is_streamed:
            parts = [([t for p in parts for t in p[0]], [row for p in parts for row in p[1]], parts[-1][2])]
        self.calls, self.parts = calls, parts

    def get_nowait(self) -> None:
        return None

    async def get(self) -> SimpleNamespace:
        token_ids, rows, reason = self.parts.pop(0)
        flat = SimpleNamespace(start_indices=[], end_indices=[], token_ids=[], logprobs=[])
        for row in rows:
            flat.start_indices.append(len(flat.token_ids))
            flat.token_ids += row.keys()
            flat.logprobs += row.values()
            flat.end_indices.append(len(flat.token_ids))
        part = SimpleNamespace(token_ids=token_ids, logprobs=flat if rows else None, finish_reason=reason)
        return SimpleNamespace(outputs=[part], finished=not self.parts)

    def close(self) -> None:
        self.calls.append("close")


class FakeLlm:
    """Remembers calls; answers in parts of `(token ids, log-probs by id, finish reason)`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.parts: list[tuple[list[int], Logprobs, str | None]] = [([5], [{5: -1.0}], "stop")]
        self.can_reset = True
        self.salts: list[str] = []
        self.output_handler: Any = None
        self.output_processor = SimpleNamespace(request_states={})
        self.engine_core = SimpleNamespace(outputs_queue=asyncio.Queue())

    async def add_request(self, name: str, prompt: Any, sampling: Any) -> FakeOutputs:
        self.calls.append("generate")
        self.salts.append(prompt.cache_salt)
        return FakeOutputs(self.calls, list(self.parts), is_streamed=sampling.output_kind == "delta")

    async def abort(self, request_id: str, *, internal: bool) -> None:
        assert (request_id, internal) == ("internal", True)
        self.calls.append("abort")

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        self.calls.append("pause and clear" if clear_cache else "pause")

    async def resume_generation(self) -> None:
        self.calls.append("resume")

    async def collective_rpc(self, name: str, args: tuple[Any, ...]) -> None:
        self.calls.append("load")

    async def reset_prefix_cache(self, *, reset_running_requests: bool) -> bool:
        self.calls.append("reset")
        return self.can_reset

    async def sleep(self, *, level: int, mode: str) -> None:
        self.calls.append(f"sleep {level}")

    async def wake_up(self, *, tags: list[str]) -> None:
        self.calls.append(f"wake {tags[0]}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> FakeLlm:
    put_vllm_names(monkeypatch)
    return FakeLlm()


def engine_on(folder: Path, llm: FakeLlm, *, device: str = "cpu", **config: Any) -> VllmEngine:
    engine = VllmEngine(str(folder), EngineConfig(**config), max_model_len=64, device=device, seed=0, num_threads=1)
    engine._llm = llm
    engine._requests = VllmRequests(llm, engine.folder, [])
    engine._lifecycle.is_started = True
    return engine


async def ask(engine: VllmEngine, *stop: str) -> Completion:
    sampling = SamplingParams(max_new_tokens=4, stop=stop)
    return await engine.generate(GenerationRequest(request_id="r", prompt_token_ids=[1], sampling=sampling))


async def push(engine: VllmEngine, version: int = 7) -> None:
    weights = load_file(engine.folder / "model.safetensors")
    await engine.update_weights([spec_of(name, tensor) for name, tensor in weights.items()], version, weights)


def test_logprobs_are_those_of_the_distribution_that_was_sampled_and_no_default_cuts_it(
    folder: Path, llm: FakeLlm
) -> None:
    """Rows 33 and 35: after the temperature; a model's own top_p or top_k is not taken over."""
    arguments = engine_on(folder, llm)._engine_arguments()
    assert arguments["logprobs_mode"] == "processed_logprobs"
    assert arguments["generation_config"] == "vllm"


def test_the_logprob_of_the_sampled_token_is_taken_whatever_else_is_listed(folder: Path, llm: FakeLlm) -> None:
    """Row 36: the sampled token is the second entry, then the first."""
    llm.parts = [([9], [{4: -0.1, 9: -2.5}], None), ([4, 3], [{4: -0.2, 9: -9.0}, {3: -0.3}], "length")]
    answer = asyncio.run(ask(engine_on(folder, llm)))
    assert (answer.token_ids, answer.logprobs) == ([9, 4, 3], [-2.5, -0.2, -0.3])
    assert answer.finish_reason is FinishReason.LENGTH


def test_a_stop_word_ends_the_request_at_once_and_later_tokens_of_its_step_are_left_out(
    folder: Path, llm: FakeLlm
) -> None:
    word = make_tiny_tokenizer()("<x>", add_special_tokens=False)["input_ids"]
    assert len(word) == 3
    tokens = [9, *word, 8, 7]
    rows: Logprobs = [{token: -float(index)} for index, token in enumerate(tokens)]
    llm.parts = [(tokens[:2], rows[:2], None), (tokens[2:], rows[2:], None), ([6], [{6: 0.0}], "stop")]
    answer = asyncio.run(ask(engine_on(folder, llm), "<x>"))
    assert answer.token_ids == [9, *word]
    assert answer.logprobs == [0.0, -1.0, -2.0, -3.0]
    assert answer.token_versions == [0] * 4
    assert answer.finish_reason is FinishReason.STOP_WORD
    assert llm.calls == ["generate", "abort", "close"]


def test_an_end_token_belongs_to_no_stop_word(folder: Path, llm: FakeLlm) -> None:
    llm.parts = [([9, 2], [{9: 0.0}, {2: 0.0}], "stop")]
    answer = asyncio.run(ask(engine_on(folder, llm), "<|im_end|>"))
    assert (answer.token_ids, answer.finish_reason) == ([9, 2], FinishReason.STOP)


@pytest.mark.parametrize("reason", ["abort", "error", "something new", None])
def test_only_known_reasons_count_as_finished(folder: Path, llm: FakeLlm, reason: str | None) -> None:
    """EN-05: an aborted answer, or one with an unknown reason, is not finished."""
    llm.parts = [([9], [{9: -2.5}], reason)]
    assert asyncio.run(ask(engine_on(folder, llm))).finish_reason is FinishReason.ABORT


@pytest.mark.parametrize("logprobs", [[], [{9: -1.0}]])
def test_tokens_without_logprobs_are_refused(folder: Path, llm: FakeLlm, logprobs: Logprobs) -> None:
    """EN-07: none at all, or one for two tokens."""
    llm.parts = [([9, 8], logprobs, "stop")]
    with pytest.raises(EngineError, match="request r"):
        asyncio.run(ask(engine_on(folder, llm)))


def test_the_prefix_cache_is_dropped_after_the_last_tensor_and_before_the_engine_goes_on(
    folder: Path, llm: FakeLlm
) -> None:
    """Row 59, WS-04: pause, load, reset, resume; later tokens carry the new version."""

    async def update() -> Completion:
        engine = engine_on(folder, llm)
        await engine.pause()
        await push(engine)
        await engine.resume()
        return await ask(engine)

    assert asyncio.run(update()).token_versions == [7]
    assert llm.calls == ["pause and clear", "load", "reset", "resume", "generate", "close"]


@pytest.mark.parametrize("has_cache", [True, False])
def test_a_prefix_cache_that_stays_is_a_failed_push_unless_there_is_none(
    folder: Path, llm: FakeLlm, has_cache: bool
) -> None:
    """WS-04: "not supported" is no success; the old version stays in force and nothing is served."""
    llm.can_reset = False
    engine = engine_on(folder, llm, prefix_caching=has_cache)

    async def update() -> None:
        await engine.pause()
        await push(engine)
        await engine.resume()

    if not has_cache:
        asyncio.run(update())
        return
    with pytest.raises(WeightSyncError, match="must drop its prefix cache"):
        asyncio.run(update())
    assert asyncio.run(engine.policy_version()) == 0
    with pytest.raises(EngineError, match="Push weights with success"):
        asyncio.run(ask(engine))


def test_an_engine_that_slept_serves_nothing_before_its_weights_were_pushed(folder: Path, llm: FakeLlm) -> None:
    """Row 58, EN-08: asleep, half awake and awake without weights it refuses; the right order serves."""
    engine = engine_on(folder, llm, device="cuda")

    async def scenario() -> Completion:
        await engine.pause()
        await engine.sleep()
        with pytest.raises(EngineError, match=r"Call wake\(\['weights'\]\) first"):
            await push(engine)
        with pytest.raises(EngineError, match="weights were given back"):
            await ask(engine)
        await engine.wake(["weights"])
        with pytest.raises(EngineError, match="Push weights first"):
            await engine.wake(["kv_cache"])
        await push(engine)
        with pytest.raises(EngineError, match=r"wake\(\['kv_cache'\]\)"):
            await ask(engine)
        await engine.wake(["kv_cache"])
        await engine.resume()
        return await ask(engine)

    assert asyncio.run(scenario()).token_versions == [7]
    assert [call for call in llm.calls if "pause" not in call] == [
        "sleep 2",
        "wake weights",
        "load",
        "reset",
        "wake kv_cache",
        "resume",
        "generate",
        "close",
    ]


def test_with_adapters_apart_the_frozen_weights_stay_and_a_push_brings_adapters_alone(
    folder: Path, llm: FakeLlm
) -> None:
    """Sleep level 1 keeps weights in host memory; level 2 would lose what no push brings."""
    lora = LoraConfig(rank=4, targets=["q_proj"])
    config = EngineConfig(kind=EngineKind.vllm, adapters=AdapterPush.separate)
    engine = VllmEngine(str(folder), config, max_model_len=64, device="cuda", seed=0, num_threads=1, lora=lora)
    engine._llm, engine._requests = llm, VllmRequests(llm, engine.folder, [])
    engine._lifecycle.is_started = True
    shapes = adapter_shapes({name: tuple(t.shape) for name, t in load_file(folder / "model.safetensors").items()}, lora)
    adapter = {name: torch.ones(shape) for name, shape in shapes.items()}

    async def scenario() -> None:
        await engine.pause()
        await engine.sleep()
        await engine.wake(["weights"])
        with pytest.raises(WeightSyncError, match=r"model\.embed_tokens\.weight: unknown"):
            await push(engine)
        await engine.update_weights([spec_of(name, tensor) for name, tensor in adapter.items()], 3, adapter)

    asyncio.run(scenario())
    assert [call for call in llm.calls if "pause" not in call] == ["sleep 1", "wake weights", "load", "reset"]
    arguments = engine._engine_arguments()
    assert (arguments["enable_lora"], arguments["max_loras"]) == (True, 1)
    assert (arguments["max_lora_rank"], arguments["lora_target_modules"]) == (8, ["q_proj"])


@pytest.mark.parametrize("changes", [{"adapters": AdapterPush.merged}, {"rank": 0}])
def test_without_adapters_apart_vllm_hears_nothing_of_them(folder: Path, changes: dict[str, Any]) -> None:
    config = EngineConfig(kind=EngineKind.vllm, adapters=changes.get("adapters", AdapterPush.separate))
    lora = LoraConfig(rank=changes.get("rank", 4))
    engine = VllmEngine(str(folder), config, max_model_len=64, device="cpu", seed=0, num_threads=1, lora=lora)
    assert "enable_lora" not in engine._engine_arguments()


def test_vllm_tells_its_sleep_its_update_and_its_requests_apart(folder: Path, llm: FakeLlm) -> None:
    engine = engine_on(folder, llm, device="cuda")

    async def scenario() -> Usage:
        await engine.pause()
        await engine.sleep()
        await engine.wake(["weights"])
        await push(engine)
        await engine.wake(["kv_cache"])
        await engine.resume()
        await ask(engine)
        return await engine.usage()

    usage = asyncio.run(scenario())
    kinds = [activity for activity, _, _ in usage.intervals]
    away, pushed, played = Activity.OFFLOAD, Activity.PUSH, Activity.ROLLOUT
    assert kinds == [away, away, pushed, away, played]
    assert usage.num_completion_tokens == 1
    assert usage.num_prompt_tokens > 0
