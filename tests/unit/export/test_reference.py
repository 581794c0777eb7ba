"""What the policy ranks write plays as they do, in an engine that knows nothing of them, and any fault is seen."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fakes import LocalCalls
from groups import make_group, make_rollout
from policy_ranks import make_worker
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from skyrl_nat.config.cluster import Device
from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import EngineConfig, EngineKind, RolloutConfig
from skyrl_nat.errors import ExportError
from skyrl_nat.export.engines import Test as EngineTest
from skyrl_nat.export.engines import choose_kinds, run_tests
from skyrl_nat.export.equality import Comparison, require_equal
from skyrl_nat.export.hf import check_model
from skyrl_nat.export.lora import check_adapter
from skyrl_nat.export.prompts import PLAIN, find_prompts
from skyrl_nat.export.reference import Answer, greedy_answers
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.recorder import RolloutRecorder
from skyrl_nat.workers import process_group
from skyrl_nat.workers.policy import PolicyWorker

NUM_TOKENS = 8
END = 2


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PolicyWorker, Path]]:
    """A trained-like policy with adapters that are not zero, and the folder that it wrote."""
    folder = tmp_path_factory.mktemp("exported")
    source = make_tiny_model(folder / "source")
    worker = make_worker(source, model={"lora": LoraConfig(rank=4, alpha=8, targets=["q_proj", "up_proj"])})
    torch.manual_seed(0)
    for name, parameter in worker.module.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    worker.export_hf(folder / "model")
    yield worker, folder / "model"
    worker.close()
    process_group.destroy_group()


@pytest.fixture(scope="module")
def answers(exported: tuple[PolicyWorker, Path]) -> list[Answer]:
    worker, folder = exported
    codec = ChatCodec.from_folder(folder)
    prompts = [codec.prompt_tokens(messages) for messages in PLAIN[:3]]
    return asked(worker, prompts)


def asked(worker: PolicyWorker, prompts: list[list[int]]) -> list[Answer]:
    return asyncio.run(
        greedy_answers(
            LocalCalls([worker]),
            prompts,
            num_tokens=NUM_TOKENS,
            stop_token_ids={END},
            num_ranks=1,
            token_budget=400,
        )
    )


def comparison_of(folder: Path, answers: list[Answer]) -> Comparison:
    config = SimpleNamespace(
        model=SimpleNamespace(compute_dtype="float32"),
        engine=EngineConfig(),
        cluster=SimpleNamespace(device=Device.cpu),
        seed=0,
    )
    test = EngineTest(kind=EngineKind.hf, folder=folder)
    (found,) = asyncio.run(run_tests([test], answers, config, ChatCodec.from_folder(folder)))
    return found


def test_the_trainer_s_greedy_answers_are_those_of_a_plain_model(exported, answers: list[Answer]):
    _, folder = exported
    model = AutoModelForCausalLM.from_pretrained(folder)
    for answer in answers:
        tokens = list(answer.prompt)
        for place in answer.places:
            with torch.no_grad():
                logprobs = model(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
            expected = logprobs.topk(len(place.ids))
            assert place.ids[:3] == expected.indices.tolist()[:3]
            assert place.logprobs == pytest.approx(expected.values.tolist(), abs=1e-4)
            tokens.append(place.ids[0])
        assert len(answer.places) == NUM_TOKENS or answer.token_ids[-1] == END
        assert END not in answer.token_ids[:-1]


def test_what_the_policy_wrote_is_whole_and_equal(exported, answers: list[Answer]):
    """EX-04: the sum of weights and adapters plays as the policy does, which never adds them."""
    _, folder = exported
    check_model(folder)
    check_adapter(folder / "adapter", folder)
    found = comparison_of(folder, answers)
    assert found.faults == [] and found.num_places == sum(len(answer.places) for answer in answers)
    require_equal([found])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("model.layers.0.self_attn.q_proj.weight", lambda weight: weight * 1.2),
        ("model.layers.1.mlp.down_proj.weight", torch.zeros_like),
        ("model.norm.weight", lambda weight: weight * 1.01),
        ("model.embed_tokens.weight", lambda weight: weight.roll(1, 0)),
    ],
)
def test_a_wrong_weight_is_refused_with_the_place(exported, answers: list[Answer], tmp_path: Path, name: str, change):
    """EX-02, EX-04."""
    _, folder = exported
    for file in folder.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = change(tensors[name])
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    check_model(tmp_path)
    with pytest.raises(
        ExportError, match=r"must answer as the trainer does, but hf: .*prompt \d, token \d: the trainer"
    ):
        require_equal([comparison_of(tmp_path, answers)])


def test_added_tokens_keep_ids_marks_and_texts(tmp_path: Path):
    """EX-07."""
    source = make_tiny_model(tmp_path / "source")
    before = AutoTokenizer.from_pretrained(source)
    before.add_tokens(["<call>", " spaced"])
    before.add_special_tokens({"additional_special_tokens": ["<|tool|>"]})
    before.save_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source)
    model.resize_token_embeddings(len(before))
    model.save_pretrained(source)
    worker = make_worker(source)
    worker.export_hf(tmp_path / "model")
    check_model(tmp_path / "model")
    after = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(after) == 303 and after.get_vocab() == before.get_vocab()
    assert [after.added_tokens_decoder[number].special for number in (300, 301, 302)] == [False, False, True]
    forms = ("{}", "a{}b", " {} ", "{0}{0}", "\n{}")
    texts = [form.format(token) for token in ("<call>", " spaced", "<|tool|>", "plain") for form in forms]
    assert len(texts) == 20
    assert [after(text)["input_ids"] for text in texts] == [before(text)["input_ids"] for text in texts]


def found_prompts(run_dir: Path | None, folder: Path, *, room: int = 100, count: int = 3):
    config = SimpleNamespace(environment=EnvironmentConfig(validation_files=[]), rollout=RolloutConfig())
    return asyncio.run(find_prompts(run_dir, config, ChatCodec.from_folder(folder), count=count, room=room))


def test_prompts_are_the_recorded_ones_the_newest_first_and_each_once(exported, tmp_path: Path):
    _, folder = exported
    recorder = RolloutRecorder(tmp_path / "rollouts")
    two_turns = make_rollout(
        "b",
        1.0,
        token_ids=[5, 6, 7, 8, 9],
        loss_mask=[False, True, False, True, True],
        rollout_logprobs=[0.0, -1.0, 0.0, -1.0, -1.0],
        token_versions=[-1, 0, -1, 0, 0],
    )
    group = make_group(0, [1.0, 1.0])
    group.rollouts.append(two_turns)
    recorder.write(1, [group])
    found = found_prompts(tmp_path, folder)
    assert found.token_ids == [[1, 2], [5], [5, 6, 7]]
    assert found.source == "recorded rollouts of the run"
    assert found_prompts(tmp_path, folder, room=1).token_ids == [[5]]


def test_without_a_record_or_tasks_plain_questions_are_asked_and_too_little_room_is_refused(exported, tmp_path: Path):
    _, folder = exported
    assert found_prompts(tmp_path, folder).source == "plain questions"
    with pytest.raises(ExportError, match=r"must have at most 3 tokens, the shortest found has \d+"):
        found_prompts(None, folder, room=3)


def test_a_run_s_own_engine_is_the_default_and_one_that_is_not_there_is_left_out_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("skyrl_nat.export.engines.is_installed", lambda kind: kind in ("hf", "vllm"))
    assert choose_kinds([], "hf", EngineKind.hf) == [EngineKind.hf]
    assert choose_kinds([], "lora", EngineKind.vllm) == [EngineKind.vllm]
    with pytest.raises(ValueError, match=r"gguf is not\. pip install 'skyrl-nat\[gguf\]'"):
        choose_kinds(["hf", "gguf"], "hf", EngineKind.hf)
    with pytest.raises(ValueError, match="must be tested with engine gguf"):
        choose_kinds([], "gguf", EngineKind.hf)
    monkeypatch.setattr("skyrl_nat.export.engines.is_installed", lambda kind: kind == "hf")
    assert choose_kinds([], "hf", EngineKind.vllm) == [EngineKind.hf]
