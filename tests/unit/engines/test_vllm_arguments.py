"""What vLLM is told: the settings that make rollouts fast reach it, and what a config says goes before them."""

from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.config.load import load_config
from skyrl_nat.engines.vllm_arguments import engine_arguments


def arguments(*overrides: str, is_cpu: bool = False) -> dict[str, Any]:
    config = load_config(["engine=vllm_gpu", "cluster=h100x1", *overrides])
    return engine_arguments(Path("model"), config.engine, max_model_len=4096, is_cpu=is_cpu, seed=3)


def test_the_settings_of_gpus_are_those_of_fast_rollouts() -> None:
    found = arguments()
    graphs = found["compilation_config"]
    assert graphs["cudagraph_mode"] == "FULL_DECODE_ONLY"
    assert max(graphs["cudagraph_capture_sizes"]) == found["max_num_seqs"] == 512
    assert (found["enforce_eager"], found["skip_tokenizer_init"], found["enable_prefix_caching"]) == (False, True, True)
    assert (found["enable_sleep_mode"], found["gpu_memory_utilization"]) == (True, 0.5)
    assert found["logprobs_mode"] == "processed_logprobs"
    assert "speculative_config" not in found


def test_a_deterministic_engine_has_one_sequence_at_a_time_and_no_cached_prefix() -> None:
    found = arguments("engine.deterministic=true")
    assert (found["max_num_seqs"], found["enable_prefix_caching"]) == (1, False)


def test_speculative_decoding_guesses_from_the_prompt() -> None:
    found = arguments("engine.num_speculative_tokens=3")["speculative_config"]
    assert (found["method"], found["num_speculative_tokens"]) == ("ngram", 3)
    assert 1 < found["prompt_lookup_min"] <= found["prompt_lookup_max"]


def test_what_the_config_adds_goes_before_all_else() -> None:
    found = arguments("+engine.extra.max_num_batched_tokens=8192", "+engine.extra.gpu_memory_utilization=0.7")
    assert (found["max_num_batched_tokens"], found["gpu_memory_utilization"]) == (8192, 0.7)
    assert found["compilation_config"]["cudagraph_mode"] == "FULL_DECODE_ONLY"


@pytest.mark.parametrize(("override", "head"), [("model.fp32_head=true", "float32"), ("model.fp32_head=false", None)])
def test_the_head_is_as_exact_as_the_trainers(override: str, head: str | None) -> None:
    assert arguments(override).get("hf_overrides", {}).get("head_dtype") == head
