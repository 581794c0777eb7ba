"""Adapters pushed apart into two real vLLM engines; the truth is a forward pass of base and adapter summed up."""

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
from tiny_model import make_tiny_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from skyrl_nat.config.cluster import Transport
from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import AdapterPush, EngineConfig, EngineKind
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams
from skyrl_nat.weight_sync.adapters import DOWN, UP, adapter_shapes
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.direct import DirectTransport
from skyrl_nat.weight_sync.host import HostTransport

pytestmark = pytest.mark.long
LORA = LoraConfig(rank=3, targets=["q_proj", "o_proj", "gate_proj", "down_proj"])
"""A rank that vLLM fills up, and parts of fused layers."""
TOLERANCE = 1e-4
PROMPTS = [list(range(20, 60)), list(range(100, 107)), [5, 6, 7] * 30]
TRANSPORTS = ["host", "gloo", "ipc"]


class Session:
    """Two engines on one loop, and a policy that pushes adapters into both."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("vllm")
        from skyrl_nat.engines.vllm import VllmEngine

        self.folder = folder
        self.weights = load_file(folder / "model.safetensors")
        self.version = 0
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.transports: dict[str, Any] = {
            "host": HostTransport(60.0),
            "gloo": DirectTransport(30.0, senders=[[0], [0]]),
            "ipc": DirectTransport(30.0, kind=Transport.ipc, senders=[[0], [0]], bucket_mib=1),
        }
        self.rank = FakePolicyRank({})
        config = EngineConfig(kind=EngineKind.vllm, adapters=AdapterPush.separate, max_num_seqs=8)
        self.engines = [
            VllmEngine(str(folder), config, max_model_len=256, device="cpu", seed=0, num_threads=1, lora=LORA)
            for _ in range(2)
        ]

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 60.0) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def on_both(self, method: str, timeout_s: float = 60.0) -> list[Any]:
        return self.run(LocalCalls(self.engines).call_all(method), timeout_s)

    def push(self, adapter: dict[str, Tensor], transport: str = "host") -> int:
        self.rank.weights = adapter
        self.on_both("pause")
        push = self.transports[transport].push(LocalCalls([self.rank]), LocalCalls(self.engines), self.version + 1)
        num_bytes = self.run(push)
        self.version += 1
        self.on_both("resume")
        return num_bytes

    def ask(self, engine: int = 0) -> list[Completion]:
        async def all_at_once() -> list[Completion]:
            sampling = SamplingParams(max_new_tokens=24, temperature=0.0)
            requests = [
                GenerationRequest(request_id=f"r{number}", prompt_token_ids=prompt, sampling=sampling)
                for number, prompt in enumerate(PROMPTS)
            ]
            return list(await asyncio.gather(*(self.engines[engine].generate(request) for request in requests)))

        return self.run(all_at_once())

    def adapter(self, seed: int) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(seed)
        shapes = adapter_shapes({name: tuple(t.shape) for name, t in self.weights.items()}, LORA)
        return {name: 0.3 * torch.randn(shape, generator=random) for name, shape in shapes.items()}

    def merged(self, adapter: dict[str, Tensor]) -> dict[str, Tensor]:
        merged = dict(self.weights)
        for name, down in adapter.items():
            if name.endswith(DOWN):
                path = name.removesuffix(DOWN)
                merged[f"{path}.weight"] = merged[f"{path}.weight"] + adapter[path + UP] @ down
        return merged


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    # Attention kernels of vLLM on CPU want a head size of at least 32.
    session = Session(make_tiny_model(tmp_path_factory.mktemp("model"), hidden_size=128))
    session.on_both("start", 400.0)
    yield session
    session.on_both("shutdown")
    session.loop.call_soon_threadsafe(session.loop.stop)


@pytest.fixture(scope="module")
def gap(session: Session) -> Callable[..., float]:
    """Return how far log-probs are from those of a plain forward pass of base and adapter summed up."""
    model = AutoModelForCausalLM.from_pretrained(session.folder, dtype=torch.float32)

    def gap(answers: list[Completion], adapter: dict[str, Tensor] | None) -> float:
        model.load_state_dict(session.merged(adapter or {}), strict=False)
        gaps = []
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([prompt + answer.token_ids]), use_cache=False).logits[0]
            rows = logits[len(prompt) - 1 : -1].log_softmax(-1)
            expected = rows.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
            gaps.append((expected - torch.tensor(answer.logprobs)).abs().max())
        return float(max(gaps))

    return gap


def test_before_the_first_push_an_engine_answers_with_the_base(session: Session, gap: Any) -> None:
    if session.version == 0:
        assert gap(session.ask(), None) < TOLERANCE


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_push_replaces_the_adapter_in_every_engine_and_no_kv_of_the_older_one_is_used(
    session: Session, gap: Any, transport: str
) -> None:
    adapters = [session.adapter(seed) for seed in (1, 2)]
    for adapter in adapters:
        num_bytes = session.push(adapter, transport)
        assert num_bytes == sum(4 * tensor.numel() for tensor in adapter.values())
        for engine in (0, 1, 0):  # the last time from the prefix cache
            answers = session.ask(engine)
            assert gap(answers, adapter) < TOLERANCE
            assert all(set(answer.token_versions) == {session.version} for answer in answers)
    assert gap(answers, None) > 0.1
    assert gap(answers, adapters[0]) > 0.1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_checksums_are_those_of_the_base_and_of_the_adapter(session: Session, transport: str) -> None:
    adapter = session.adapter(3)
    session.push(adapter, transport)
    expected = {name: tensor_digest(tensor) for name, tensor in (session.weights | adapter).items()}
    assert session.on_both("checksums") == [expected, expected]


def leave_one_out(adapter: dict[str, Tensor]) -> str:
    adapter.pop("model.layers.0.self_attn.q_proj.lora_A.weight")
    return r"q_proj\.lora_A\.weight: missing"


def send_weights(adapter: dict[str, Tensor]) -> str:
    adapter["model.norm.weight"] = torch.ones(128)
    return r"model\.norm\.weight: unknown"


def raise_rank(adapter: dict[str, Tensor]) -> str:
    adapter["model.layers.0.mlp.down_proj.lora_A.weight"] = torch.zeros(8, 256)
    return r"down_proj\.lora_A\.weight: shape \(8, 256\), not \(3,"


@pytest.mark.parametrize("spoil", [leave_one_out, send_weights, raise_rank])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_adapter_that_does_not_fit_is_refused_and_the_next_push_heals(
    session: Session, gap: Any, transport: str, spoil: Callable[[dict[str, Tensor]], str]
) -> None:
    adapter = session.adapter(4)
    message = spoil(adapter)
    assert_push_fails(session, transport, adapter, message)
    assert_heals(session, gap, transport)


def test_a_policy_that_fails_while_sending_leaves_engines_that_refuse(session: Session, gap: Any) -> None:
    session.rank.fails_after = 5
    assert_push_fails(session, "gloo", session.adapter(4), "the policy failed while sending")
    assert_heals(session, gap, "gloo")


def assert_push_fails(session: Session, transport: str, adapter: dict[str, Tensor], message: str) -> None:
    with pytest.raises(WeightSyncError, match=message):
        session.push(adapter, transport)
    deadline = time.monotonic() + 10  # the first engine's refusal is raised while the other still hears of it
    while any(engine._lifecycle.is_updating for engine in session.engines) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session.on_both("policy_version") == [session.version] * 2
    for engine in session.engines:
        with pytest.raises(EngineError, match="Push weights with success"):
            session.run(engine.resume())


def assert_heals(session: Session, gap: Any, transport: str) -> None:
    adapter = session.adapter(5)
    session.push(adapter, transport)
    for engine in range(2):
        assert gap(session.ask(engine), adapter) < TOLERANCE
