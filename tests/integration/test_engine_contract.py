"""The engine protocol and both weight transports, against every engine with a tiny model.

Engines live for the whole session on one event loop; each test pushes the weights that it needs.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import FakePolicyRank, LocalCalls
from safetensors.torch import load_file
from tiny_model import make_tiny_model, make_tiny_tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM

from skyrl_nat.config.cluster import Transport
from skyrl_nat.config.rollout import EngineConfig, EngineKind
from skyrl_nat.engines.hf import HfEngine
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.direct import DirectTransport
from skyrl_nat.weight_sync.host import HostTransport
from skyrl_nat.weight_sync.manifest import spec_of

MAX_MODEL_LEN = 512
TOLERANCE = 1e-4
PROMPTS = [list(range(20, 60)), list(range(100, 107)), [5, 6, 7] * 30, list(range(250, 290))]
TRANSPORTS = ["host", "gloo", "ipc"]
FOLDERS = 4
"""Models of different seeds; the engine starts on the first, the last is also served by a fresh engine."""


class Session:
    """One engine, the loop that it lives on, and a policy that pushes into it."""

    def __init__(self, kind: str, folders: list[Path]) -> None:
        self.kind = kind
        self.folders = folders
        self.version = 0
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.transports: dict[str, Any] = {
            "host": HostTransport(60.0),
            "gloo": DirectTransport(30.0),
            "ipc": DirectTransport(30.0, kind=Transport.ipc, bucket_mib=1),
        }
        self.ranks = [FakePolicyRank({}), FakePolicyRank({}, rank=1)]
        self.engine: Any = self._make(folders[0])
        self.fresh: Any = self._make(folders[-1])

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 60.0) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def start(self) -> None:
        async def both() -> None:
            await asyncio.gather(self.engine.start(), self.fresh.start())

        self.run(both(), 400.0)

    def stop(self) -> None:
        async def both() -> None:
            await asyncio.gather(self.engine.shutdown(), self.fresh.shutdown())

        self.run(both(), 60.0)
        self.run(self.engine.shutdown())
        self.loop.call_soon_threadsafe(self.loop.stop)

    def push(self, transport: str, weights: dict[str, Tensor]) -> None:
        self.run(self.pause_push_resume(transport, weights))

    async def pause_push_resume(self, transport: str, weights: dict[str, Tensor]) -> None:
        for rank in self.ranks:
            rank.weights = weights
        await self.engine.pause()
        policy, engines = LocalCalls(self.ranks), LocalCalls([self.engine])
        await self.transports[transport].push(policy, engines, self.version + 1)
        self.version += 1
        await self.engine.resume()

    def push_model(self, index: int, transport: str = "host") -> None:
        self.push(transport, self.weights(index))

    def weights(self, index: int) -> dict[str, Tensor]:
        return load_file(self.folders[index] / "model.safetensors")

    def ask(self, prompt: list[int], **sampling: Any) -> Completion:
        return self.ask_all([prompt], **sampling)[0]

    def ask_all(self, prompts: list[list[int]], engine: Any = None, **sampling: Any) -> list[Completion]:
        async def all_at_once() -> list[Completion]:
            chosen = engine or self.engine
            requests = [make_request(p, f"r{i}", **sampling) for i, p in enumerate(prompts)]
            return list(await asyncio.gather(*(chosen.generate(r) for r in requests)))

        return self.run(all_at_once())

    def _make(self, folder: Path) -> Any:
        config = EngineConfig(kind=EngineKind(self.kind), max_num_seqs=16)
        arguments: dict[str, Any] = {
            "max_model_len": MAX_MODEL_LEN,
            "device": "cpu",
            "seed": 0,
            "num_threads": 1,
        }
        if self.kind == "hf":
            return HfEngine(str(folder), config, **arguments)
        pytest.importorskip("vllm")
        from skyrl_nat.engines.vllm import VllmEngine

        return VllmEngine(str(folder), config, **arguments)


def make_request(prompt: list[int], request_id: str = "r", **sampling: Any) -> GenerationRequest:
    params = SamplingParams(**{"max_new_tokens": 16, "seed": 7, **sampling})
    return GenerationRequest(request_id=request_id, prompt_token_ids=prompt, sampling=params)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("models")
    # Attention kernels of vLLM on CPU want a head size of at least 32.
    return [make_tiny_model(root / str(s), seed=s, hidden_size=128) for s in range(FOLDERS)]


@pytest.fixture(scope="session", params=["hf", "vllm"])
def session(request: pytest.FixtureRequest, folders: list[Path]) -> Iterator[Session]:
    session = Session(request.param, folders)
    session.start()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def score(folders: list[Path]) -> Callable[[int, list[int], list[int], float], list[float]]:
    """Log-probs of a completion under model `index` by one plain forward pass."""
    models = [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32) for f in folders]

    def score(index: int, prompt: list[int], tokens: list[int], temperature: float) -> list[float]:
        with torch.no_grad():
            logits = models[index](torch.tensor([prompt + tokens]), use_cache=False).logits[0]
        rows = (logits[len(prompt) - 1 : -1] / temperature).log_softmax(-1)
        return rows.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()

    return score


def largest_gap(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_those_of_a_plain_forward_pass_at_the_sampling_temperature(
    session: Session, score: Any, temperature: float
) -> None:
    session.push_model(1)
    answers = session.ask_all(PROMPTS, temperature=temperature, max_new_tokens=40)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        expected = score(1, prompt, answer.token_ids, temperature)
        assert largest_gap(answer.logprobs, expected) < TOLERANCE
        assert answer.token_versions == [session.version] * len(answer.token_ids)


def test_greedy_takes_the_most_likely_token_and_reports_its_logprob_at_temperature_one(
    session: Session, score: Any
) -> None:
    session.push_model(1)
    first = session.ask(PROMPTS[0], temperature=0.0)
    second = session.ask(PROMPTS[0], temperature=0.0, seed=99)
    assert first.token_ids == second.token_ids
    assert largest_gap(first.logprobs, score(1, PROMPTS[0], first.token_ids, 1.0)) < TOLERANCE


def test_a_seed_reproduces_its_sample_and_other_seeds_or_requests_differ(session: Session) -> None:
    def sample(seed: int | None, request_id: str) -> list[int]:
        request = make_request(PROMPTS[0], request_id, seed=seed, max_new_tokens=24)
        return session.run(session.engine.generate(request)).token_ids

    assert sample(1, "a") == sample(1, "b")
    distinct = {tuple(sample(seed, "a")) for seed in (1, 2, 3)}
    assert len(distinct) == 3
    unseeded = {tuple(sample(None, f"rollout{i}/0")) for i in range(8)}
    assert len(unseeded) == 8


def test_a_group_of_equal_prompts_samples_what_each_request_samples_alone(session: Session) -> None:
    async def group() -> list[Completion]:
        requests = [make_request(PROMPTS[2], f"g{s}", seed=s) for s in range(6)]
        return list(await asyncio.gather(*(session.engine.generate(r) for r in requests)))

    together = session.run(group())
    for seed, answer in enumerate(together):
        assert answer.token_ids == session.ask(PROMPTS[2], seed=seed).token_ids


def test_finish_reasons_tell_an_end_token_from_the_limit(session: Session) -> None:
    session.push_model(1)

    async def many() -> list[Completion]:
        requests = [
            make_request(PROMPTS[s % 4], f"s{s}", seed=s, max_new_tokens=80, temperature=2.0) for s in range(24)
        ]
        return list(await asyncio.gather(*(session.engine.generate(r) for r in requests)))

    answers = session.run(many())
    reasons = {answer.finish_reason for answer in answers}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}
    for answer in answers:
        has_ended = answer.finish_reason is FinishReason.STOP
        assert answer.token_ids.count(2) == int(has_ended)
        assert (answer.token_ids[-1] == 2) == has_ended
        assert has_ended or len(answer.token_ids) == 80


def test_a_stop_word_ends_at_the_very_token_that_completes_it(session: Session, score: Any) -> None:
    """Row 46: in both engines the same token, nothing before it changed and none added."""
    session.push_model(1)
    decode = make_tiny_tokenizer().decode
    plain = session.ask(PROMPTS[1], seed=ANSWER_SEED, max_new_tokens=80).token_ids
    words = [decode(plain[at : at + 2]) for at in range(20, 70)]
    words = [word for word in words if word.isascii()]
    assert len(words) >= 3, "the answer of this seed has words to stop at"
    for word in words:
        stop = ("nowhere to be found", word)
        answer = session.ask(PROMPTS[1], seed=ANSWER_SEED, max_new_tokens=80, stop=stop)
        end = next(number for number in range(80) if word in decode(plain[:number]))
        assert answer.token_ids == plain[:end]
        assert answer.finish_reason is FinishReason.STOP_WORD
        assert largest_gap(answer.logprobs, score(1, PROMPTS[1], answer.token_ids, 1.0)) < TOLERANCE


def test_prompts_without_room_are_refused_and_the_limit_is_lowered_to_the_room(
    session: Session,
) -> None:
    for length in (MAX_MODEL_LEN, MAX_MODEL_LEN + 36):
        with pytest.raises(EngineError, match="1 to 511 tokens"):
            session.ask([9] * length)
    prompt = [9] * (MAX_MODEL_LEN - 4)
    answer = session.ask(prompt, max_new_tokens=32, seed=3)
    assert 1 <= len(answer.token_ids) <= 4
    assert len(answer.token_ids) == 4 or answer.finish_reason is FinishReason.STOP


def test_tokens_of_an_update_in_flight_carry_the_version_that_sampled_them(session: Session, score: Any) -> None:
    session.push_model(1)
    old = session.version

    async def update_in_flight() -> Completion:
        request = make_request(PROMPTS[1], seed=ANSWER_SEED, max_new_tokens=500)
        started = time.monotonic()
        await session.engine.generate(request)
        alone_s = time.monotonic() - started
        request = make_request(PROMPTS[1], seed=ANSWER_SEED, max_new_tokens=500)
        running = asyncio.create_task(session.engine.generate(request))
        await asyncio.sleep(alone_s / 4)
        await session.pause_push_resume("host", session.weights(2))
        return await running

    # Long answers without an end token depend on the model; this seed gives one in both engines.
    answer = session.run(update_in_flight())
    assert set(answer.token_versions) == {old, old + 1}
    assert answer.token_versions == sorted(answer.token_versions)
    split = answer.token_versions.index(old + 1)
    by_old = score(1, PROMPTS[1], answer.token_ids, 1.0)
    by_new = score(2, PROMPTS[1], answer.token_ids, 1.0)
    assert largest_gap(answer.logprobs[:split], by_old[:split]) < TOLERANCE
    assert largest_gap(answer.logprobs[split:], by_new[split:]) < TOLERANCE


ANSWER_SEED = 11


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_after_three_pushes_an_engine_equals_a_fresh_one_of_the_last_weights(session: Session, transport: str) -> None:
    for index in (1, 2, 3):
        session.push_model(index, transport)
        session.ask_all(PROMPTS, temperature=0.0)  # fills the caches with this version's KV
    assert session.run(session.engine.policy_version()) == session.version
    ours = session.ask_all(PROMPTS, temperature=0.0, max_new_tokens=32)
    theirs = session.ask_all(PROMPTS, session.fresh, temperature=0.0, max_new_tokens=32)
    for mine, reference in zip(ours, theirs, strict=True):
        assert mine.token_ids == reference.token_ids
        assert largest_gap(mine.logprobs, reference.logprobs) < TOLERANCE


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_checksums_equal_the_senders(session: Session, transport: str) -> None:
    weights = {name: tensor + 0.01 for name, tensor in session.weights(2).items()}
    session.push(transport, weights)
    expected = {name: tensor_digest(tensor) for name, tensor in weights.items()}
    assert session.run(session.engine.checksums()) == expected


def test_a_tied_head_that_is_sent_besides_the_embedding_is_accepted(session: Session, score: Any) -> None:
    weights = session.weights(3)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    session.push("host", weights)
    answer = session.ask(PROMPTS[0])
    assert largest_gap(answer.logprobs, score(3, PROMPTS[0], answer.token_ids, 1.0)) < TOLERANCE


def test_the_prefix_cache_is_not_used_across_versions(session: Session, score: Any) -> None:
    for index in (2, 3):
        session.push_model(index)
        for _ in range(2):  # the second time from the cache
            answer = session.ask(PROMPTS[2])
            expected = score(index, PROMPTS[2], answer.token_ids, 1.0)
            assert largest_gap(answer.logprobs, expected) < TOLERANCE


def test_weights_are_refused_while_the_engine_samples(session: Session) -> None:
    update = session.engine.update_weights([], session.version + 1, {})
    with pytest.raises(EngineError, match="must be paused"):
        session.run(update)
    assert session.ask(PROMPTS[1]).token_ids


def test_a_request_that_arrives_while_paused_waits_for_resume(session: Session) -> None:
    async def arrive_while_paused() -> tuple[bool, Completion]:
        await session.engine.pause()
        running = asyncio.create_task(session.engine.generate(make_request(PROMPTS[0])))
        await asyncio.sleep(0.5)
        was_waiting = not running.done()
        await session.engine.resume()
        return was_waiting, await running

    was_waiting, answer = session.run(arrive_while_paused())
    assert was_waiting
    assert answer.token_ids == session.ask(PROMPTS[0]).token_ids


def drop_one(weights: dict[str, Tensor]) -> str:
    weights.pop("model.norm.weight")
    return "model.norm.weight: missing"


def rename_one(weights: dict[str, Tensor]) -> str:
    weights["_orig_mod.x"] = weights.pop("model.norm.weight")
    return "_orig_mod.x: unknown"


def reshape_one(weights: dict[str, Tensor]) -> str:
    weights["model.norm.weight"] = torch.zeros(3)
    return r"model.norm.weight: shape \(3,\), not \(128,\)"


def change_dtype(weights: dict[str, Tensor]) -> str:
    weights.update({name: tensor.bfloat16() for name, tensor in weights.items()})
    return "dtype bfloat16, not float32"


@pytest.mark.parametrize("spoil", [drop_one, rename_one, reshape_one, change_dtype])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_push_that_does_not_fit_is_refused_with_the_names_and_the_next_one_heals(
    session: Session, score: Any, transport: str, spoil: Callable[[dict[str, Tensor]], str]
) -> None:
    weights = session.weights(2)
    message = spoil(weights)
    assert_push_fails(session, transport, weights, message)
    assert_heals(session, score, transport)


def test_a_manifest_that_lies_about_the_tensors_is_noticed_by_the_sender(session: Session, score: Any) -> None:
    weights = session.weights(2)
    session.ranks[0].manifest = [spec_of(name, tensor) for name, tensor in weights.items()]
    weights["model.norm.weight"] = torch.zeros(7)
    assert_push_fails(session, "gloo", weights, "must be sent as announced")
    session.ranks[0].manifest = None
    assert_heals(session, score, "gloo")


def test_a_policy_that_fails_while_sending_leaves_an_engine_that_refuses_until_the_next_push(
    session: Session, score: Any
) -> None:
    session.ranks[0].fails_after = 7
    assert_push_fails(session, "gloo", session.weights(2), "the policy failed while sending")
    assert_heals(session, score, "gloo")


def assert_push_fails(session: Session, transport: str, weights: dict[str, Tensor], message: str) -> None:
    with pytest.raises(WeightSyncError, match=message):
        session.push(transport, weights)
    assert session.run(session.engine.policy_version()) == session.version
    with pytest.raises(EngineError, match="Push weights with success"):
        session.run(session.engine.resume())
    with pytest.raises(EngineError, match="Push weights with success"):
        session.ask(PROMPTS[0])


def assert_heals(session: Session, score: Any, transport: str) -> None:
    session.push_model(3, transport)
    answer = session.ask(PROMPTS[0])
    assert answer.token_versions == [session.version] * len(answer.token_ids)
    assert largest_gap(answer.logprobs, score(3, PROMPTS[0], answer.token_ids, 1.0)) < TOLERANCE
