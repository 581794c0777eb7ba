"""Sizes of decoders against the parameter counts that their makers publish."""

import json
from pathlib import Path

import pytest

from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.model_shape import KNOWN, Decoder, find_decoder


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("smollm2-135m", 134_515_008),
        ("smollm2-360m", 361_821_120),
        ("smollm2-1.7b", 1_711_376_384),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-14b", 14_770_033_664),
        ("qwen2.5-32b", 32_763_876_352),
        ("qwen2.5-72b", 72_706_203_648),
    ],
)
def test_known_sizes_have_the_parameters_of_their_checkpoints(name: str, parameters: int):
    assert find_decoder(name).num_parameters == parameters


def test_every_known_size_is_counted():
    assert len(KNOWN) == 10


@pytest.mark.parametrize(
    "path", ["Qwen/Qwen2.5-Coder-32B-Instruct", "/models/Qwen2.5-32B/", "qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct"]
)
def test_variants_of_a_size_are_found_by_their_names(path: str):
    assert find_decoder(path).num_layers == 64


def test_a_folder_wins_over_a_name(tmp_path: Path):
    folder = tmp_path / "qwen2.5-7b"
    folder.mkdir()
    sizes = KNOWN["smollm2-135m"] | {"model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(sizes))
    assert find_decoder(str(folder)).num_parameters == 134_515_008


def test_the_hubs_copy_on_this_disk_is_found(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--mine--special" / "snapshots" / "0a1b"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(KNOWN["qwen2.5-0.5b"]))
    assert find_decoder("mine/special").num_parameters == 494_032_768


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"hidden_size": 4}, "config.json with num_attention_heads"),
        (KNOWN["qwen2.5-7b"] | {"num_experts": 8}, "must be a dense model"),
    ],
)
def test_what_is_no_plain_decoder_is_refused(config: dict[str, object], text: str):
    with pytest.raises(ConfigError, match=text):
        Decoder.of_config(config)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"known sizes \(smollm2-135m, .*got 'mine/model'"):
        find_decoder("mine/model")


def test_adapters_have_rank_times_inputs_and_outputs():
    decoder = find_decoder("smollm2-135m")
    assert decoder.lora_parameters(8, ["q_proj", "k_proj"]) == 30 * 8 * ((576 + 576) + (576 + 192))
    assert decoder.lora_parameters(8, ["lm_head"]) == 0
