"""A folder whose parts do not fit together is refused with all that is wrong; what readers look for is added."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import CHAT_TEMPLATE, make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from skyrl_nat.errors import ExportError
from skyrl_nat.export.hf import check_model, complete

OTHER_TEMPLATE = CHAT_TEMPLATE.replace("assistant\n", "assistant\nWell, ")
DIALOGUE = [{"role": "user", "content": "add 1 and 2"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model", tie_word_embeddings=False)


def with_rows(folder: Path, rows: int) -> Path:
    """Write a model with this many embedding rows beside the tiny tokenizer's 300 tokens."""
    config = LlamaConfig.from_pretrained(folder, vocab_size=rows)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def change(folder: Path, name: str, change_it) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = change_it(tensors[name])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def set_config(folder: Path, **values) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def in_three_files(folder: Path) -> Path:
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder / "cut", max_shard_size="40KB")
    (folder / "model.safetensors").unlink()
    for file in (folder / "cut").glob("model*"):
        shutil.move(file, folder)
    assert len(list(folder.glob("*.safetensors"))) >= 3
    return folder


def test_a_whole_model_passes_whole_or_in_files(folder: Path):
    check_model(folder)
    check_model(in_three_files(folder))


def test_more_rows_than_tokens_are_padding_and_fewer_are_refused(folder: Path):
    """EX-01."""
    check_model(with_rows(folder, 320))
    with pytest.raises(ExportError, match=r"the tokenizer has ids up to 299, model\.embed_tokens\.weight has 298 rows"):
        check_model(with_rows(folder, 298))


def test_a_config_that_names_another_number_of_rows_is_refused(folder: Path):
    """EX-01."""
    set_config(folder, vocab_size=320)
    with pytest.raises(ExportError, match=r"has 300 rows, config\.json says vocab_size=320"):
        check_model(folder)


def test_tied_embeddings_that_differ_are_refused_and_equal_ones_are_not(folder: Path):
    """EX-02."""
    change(folder, "lm_head.weight", lambda _: load_file(folder / "model.safetensors")["model.embed_tokens.weight"])
    set_config(folder, tie_word_embeddings=True)
    check_model(folder)
    change(folder, "lm_head.weight", lambda weight: weight + 0.1)
    with pytest.raises(ExportError, match=r"ties lm_head\.weight to model\.embed_tokens\.weight, but .* up to 0\.1"):
        check_model(folder)


def test_an_untied_head_that_is_missing_is_refused(folder: Path):
    """EX-02, EX-08."""
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ExportError, match=r"lm_head\.weight is missing"):
        check_model(folder)


def test_missing_empty_and_cut_files_are_refused_in_one_list(folder: Path):
    """EX-08."""
    first, second, third, *_ = sorted(in_three_files(folder).glob("*.safetensors"))
    first.unlink()
    second.write_bytes(b"")
    third.write_bytes(third.read_bytes()[: third.stat().st_size // 2])
    with pytest.raises(ExportError) as caught:
        check_model(folder)
    told = str(caught.value)
    assert f"{first.name} is missing" in told and f"{second.name} is empty" in told
    assert f"{third.name} is damaged" in told


def test_a_tensor_that_its_index_names_and_no_file_holds_is_refused(folder: Path):
    """EX-08."""
    file = next(iter(sorted(in_three_files(folder).glob("*.safetensors"))))
    tensors = load_file(file)
    lost = next(iter(tensors))
    save_file({name: tensor for name, tensor in tensors.items() if name != lost}, file, metadata={"format": "pt"})
    with pytest.raises(ExportError, match=f"{lost} is not in {file.name}"):
        check_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused_by_its_tensor(folder: Path, value: float):
    """EX-08."""
    name = "model.layers.1.mlp.up_proj.weight"
    change(folder, name, lambda weight: weight.index_fill(0, torch.tensor([3]), value))
    with pytest.raises(ExportError, match=f"{name} holds numbers that are not finite"):
        check_model(folder)


def test_a_quantised_model_is_refused(folder: Path):
    """EX-04."""
    set_config(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(ExportError, match=r"quantised \(bitsandbytes\); take the full-precision model"):
        check_model(folder)


def rendered(folder: Path) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer.apply_chat_template(DIALOGUE, tokenize=False, add_generation_prompt=True)


def put_templates(folder: Path, apart: str | None, inside: str | None) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    if apart is not None:
        (folder / "chat_template.jinja").write_text(apart)
    file = folder / "tokenizer_config.json"
    config = {name: value for name, value in json.loads(file.read_text()).items() if name != "chat_template"}
    file.write_text(json.dumps(config | ({"chat_template": inside} if inside is not None else {})))


@pytest.mark.parametrize(
    ("apart", "inside", "warnings"),
    [
        (CHAT_TEMPLATE, None, 0),
        (None, CHAT_TEMPLATE, 0),
        (CHAT_TEMPLATE, CHAT_TEMPLATE, 0),
        (CHAT_TEMPLATE, OTHER_TEMPLATE, 1),
    ],
)
def test_the_chat_template_of_training_is_where_every_reader_looks(folder: Path, apart, inside, warnings):
    """EX-05: a template in its own file wins, as in transformers, and both places hold it afterwards."""
    put_templates(folder, apart, inside)
    before = rendered(folder)
    assert len(complete(folder)) == warnings
    assert (folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == CHAT_TEMPLATE
    assert rendered(folder) == before
    (folder / "chat_template.jinja").unlink()
    assert rendered(folder) == before


def test_a_missing_generation_config_is_made_of_the_model_s(folder: Path):
    (folder / "generation_config.json").unlink()
    complete(folder)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2
