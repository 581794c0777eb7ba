"""GGUF files of llama.cpp's own converter and quantiser keep tokens and template, and play as the trainer."""

import json
from pathlib import Path

import pytest
import torch
from exported_subjects import SETTINGS, local_topology
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from skyrl_nat.checkpoint.pretrained import BUILTIN_NAME, resolve_model
from skyrl_nat.cli import EXIT_FAILED, main
from skyrl_nat.errors import ExportError
from skyrl_nat.export import exporting, gguf, llama_tools
from skyrl_nat.export.hf import complete

llama_cpp = pytest.importorskip("llama_cpp", reason="bash scripts/test.sh gguf compiles and tests it")

PADDING = 16
QUICK = ("--prompts", "4", "--tokens", "8", *SETTINGS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama with SmolLM2's tokenizer, three added tokens and more rows than tokens."""
    folder = tmp_path_factory.mktemp("small") / "model"
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(BUILTIN_NAME))
    tokenizer.add_tokens(["<call>", " spaced"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|tool|>"]})
    config = LlamaConfig(
        vocab_size=len(tokenizer) + PADDING,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.2,
        dtype=torch.float32,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    complete(folder)
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "small-F32.gguf"
    llama_tools.convert(folder, file, "F32")
    return file


def test_rows_without_a_token_are_named_fillers_and_added_tokens_keep_id_and_mark(folder: Path, whole: Path):
    """EX-01, EX-05, EX-07."""
    gguf.check_gguf(whole, folder)
    reader = gguf._reader(whole)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokens) == len(tokenizer) + PADDING
    assert tokens[len(tokenizer) :] == [f"[PAD{number}]" for number in range(len(tokenizer), len(tokens))]
    for text, kind in (("<call>", 4), (" spaced", 4), ("<|tool|>", 3)):
        number = tokenizer.convert_tokens_to_ids(text)
        assert (kinds[number], tokens[number].strip()) == (kind, text.strip())
    assert reader.fields["tokenizer.chat_template"].contents() == tokenizer.chat_template


@pytest.mark.parametrize("lost", ["template", "tokens"])
def test_what_a_file_has_lost_is_refused(folder: Path, whole: Path, tmp_path: Path, lost: str):
    """EX-05, EX-07."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    if lost == "template":
        tokenizer.chat_template = tokenizer.chat_template.replace("assistant", "model")
        tokenizer.save_pretrained(tmp_path)
        complete(tmp_path)
    else:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|tool|>", "<|new|>"]})
        tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ExportError, match="another one" if lost == "template" else "is not marked as one"):
        gguf.check_gguf(whole, tmp_path)


@pytest.mark.parametrize("form", llama_tools.QUANTISATIONS)
def test_every_type_is_written_and_loads(folder: Path, whole: Path, tmp_path: Path, form: str):
    file = tmp_path / f"{form}.gguf"
    llama_tools.quantise(whole, file, form)
    gguf.check_gguf(file, folder)
    llama = llama_cpp.Llama(str(file), n_ctx=64, n_threads=1, verbose=False)
    llama.eval([1, 2, 3])
    assert llama.n_vocab() == AutoModelForCausalLM.from_pretrained(folder).config.vocab_size
    llama.close()


def test_a_model_that_the_converter_does_not_know_is_refused_in_a_sentence(folder: Path, tmp_path: Path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["UnheardOfForCausalLM"]}))
    with pytest.raises(ExportError, match=r"converter must take the model, but: .*UnheardOf"):
        llama_tools.convert(tmp_path, tmp_path / "out.gguf", "F32")


def export(folder: Path, out: Path, *options: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(exporting, "start_topology", local_topology)
    return main(["export", str(folder), str(out), *QUICK, *options])


def test_files_play_as_the_trainer_within_the_tolerance_of_their_type(folder: Path, tmp_path: Path, monkeypatch):
    out = tmp_path / "out"
    assert export(folder, out, "--format", "gguf", "--quantise", "Q8_0,F16,F32", monkeypatch=monkeypatch) == 0
    assert sorted(file.name for file in out.glob("*.gguf")) == [f"model-{form}.gguf" for form in ("F16", "F32", "Q8_0")]
    engines = {each["engine"]: each for each in json.loads((out / "equality.json").read_text())["engines"]}
    assert set(engines) == {"hf", "gguf Q8_0", "gguf F16", "gguf F32"}
    assert engines["gguf F32"]["mean"] < engines["gguf Q8_0"]["mean"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_that_plays_another_model_is_refused_and_nothing_is_left(
    folder: Path, tmp_path: Path, monkeypatch, capsys
):
    """EX-08."""
    convert = llama_tools.convert

    def convert_another(source: Path, file: Path, form: str) -> None:
        model = AutoModelForCausalLM.from_pretrained(source)
        model.model.layers[0].mlp.down_proj.weight.data *= -1
        other = tmp_path / ".other"
        model.save_pretrained(other)
        AutoTokenizer.from_pretrained(source).save_pretrained(other)
        convert(other, file, form)

    monkeypatch.setattr(llama_tools, "convert", convert_another)
    options = ("--format", "gguf", "--quantise", "Q8_0")
    assert export(folder, tmp_path / "out", *options, monkeypatch=monkeypatch) == EXIT_FAILED
    assert "must answer as the trainer does, but gguf Q8_0: " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".other"]
