import json
from pathlib import Path

import pytest
import torch

from skyrl_nat.engines.model_folder import (
    is_head_tied,
    kv_bytes_per_token,
    read_stop_token_ids,
    request_seed,
    require_folder,
    require_room,
)
from skyrl_nat.errors import EngineError
from skyrl_nat.types import GenerationRequest, SamplingParams


def request(length: int, max_new_tokens: int = 32, **kwargs: object) -> GenerationRequest:
    return GenerationRequest(
        request_id=str(kwargs.get("request_id", "r")),
        prompt_token_ids=[1] * length,
        sampling=SamplingParams(max_new_tokens=max_new_tokens, seed=kwargs.get("seed")),  # type: ignore[arg-type]
    )


def test_a_prompt_of_60_in_64_leaves_4_tokens_and_longer_ones_are_refused() -> None:
    """Row 54, EN-04: nothing is cut, and the request is named."""
    assert require_room(request(60), 64) == 4
    assert require_room(request(63), 64) == 1
    assert require_room(request(10), 64) == 32
    for length in (0, 64, 100):
        with pytest.raises(EngineError, match=f"found {length} in request r"):
            require_room(request(length), 64)


def test_zero_new_tokens_are_refused() -> None:
    with pytest.raises(EngineError, match="max_new_tokens"):
        require_room(request(10, max_new_tokens=0), 64)


def test_a_seed_is_kept_and_drawn_ones_differ_by_request_and_engine_seed() -> None:
    """Row 64: neither two requests nor two replicas share a stream."""
    assert request_seed(0, request(1, seed=5)) == 5
    drawn = {request_seed(e, request(1, request_id=i)) for e in (0, 1) for i in ("a/0", "a/1")}
    assert len(drawn) == 4
    assert request_seed(0, request(1, request_id="a/0")) in drawn
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_end_tokens_are_those_of_both_config_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert read_stop_token_ids(tmp_path) == [7]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 7, 3]}))
    assert read_stop_token_ids(tmp_path) == [3, 7, 9]


def test_a_tied_head_is_read_from_the_top_or_the_text_part(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    assert not is_head_tied(tmp_path)
    config.write_text(json.dumps({"text_config": {"tie_word_embeddings": True}}))
    assert is_head_tied(tmp_path)
    config.write_text(json.dumps({"tie_word_embeddings": True}))
    assert is_head_tied(tmp_path)


def test_a_path_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"a config\.json"):
        require_folder(str(tmp_path / "missing"))


def test_kv_of_a_token_is_two_vectors_per_layer_and_kv_head(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert kv_bytes_per_token(tmp_path, torch.float32) == 2 * 30 * 3 * 64 * 4
