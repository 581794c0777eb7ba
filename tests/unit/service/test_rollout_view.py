"""One rollout token by token: texts, authors, and what training said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown_runs import DONE, HOSTILE, PROMPT, codec, dialogue, trained
from tokenizers import Tokenizer, decoders, models

from skyrl_nat.rollouts.recorder import RolloutRecorder, group_records
from skyrl_nat.service.rollout_files import Label, open_step, read_record
from skyrl_nat.service.rollout_view import NOT_RECORDED, NOT_TRAINED, ONLY_PLAYED, view_rollout
from skyrl_nat.service.run_folders import RunFolder, RunFolders
from skyrl_nat.service.token_authors import authors_of, turns_of
from skyrl_nat.service.token_texts import TokenTexts, open_texts
from skyrl_nat.types import RolloutGroup


def view(root: Path, run_id: str, step: int, group: int, index: int, label: Label = Label.TRAIN) -> dict[str, Any]:
    run = RunFolders(root).find(run_id)
    return view_rollout(run, read_record(open_step(run, step, label), group, index), step=step, label=label)


def texts_by(seen: dict[str, Any], author: str) -> list[str]:
    """Return the texts of neighbouring tokens of one author."""
    runs, was = list[str](), None
    for token in seen["tokens"]:
        if token["author"] == author:
            if was != author:
                runs.append("")
            runs[-1] += token["text"]
        was = token["author"]
    return runs


def test_every_token_says_who_wrote_it(root: Path):
    seen = view(root, "jira-a", 1, 2, 0)
    assert texts_by(seen, "policy") == ["get_issue<|im_end|>", "close_issue<|im_end|>"]
    # A token may reach over the border of a message: it has words, so it counts as the environment's.
    told = [text.strip("\n") for text in texts_by(seen, "environment")]
    assert told == [*(message["content"] for message in PROMPT), DONE[0]["content"]]
    assert texts_by(seen, "template")[0].startswith("<|im_start|>system\n")


def test_all_numbers_of_a_token_are_those_that_were_recorded(root: Path):
    seen = view(root, "jira-a", 3, 6, 0)
    rollout = dialogue("3-0-0", ["get_issue", "close_issue"], 1.0, version=2)
    assert [token["id"] for token in seen["tokens"]] == rollout.token_ids
    assert [token["in_loss"] for token in seen["tokens"]] == rollout.loss_mask
    sampled = [token for token in seen["tokens"] if token["in_loss"]]
    assert [token["rollout_logprob"] for token in sampled] == [
        value for value in rollout.rollout_logprobs if value
    ] or (len(sampled) == rollout.num_loss_tokens)
    assert {token["policy_version"] for token in sampled} == {2}
    assert {token["advantage"] for token in sampled} == {1.0}
    assert [token["clipped"] for token in sampled] == [place % 3 == 0 for place in range(len(sampled))]
    assert all(-1.0 <= token["trainer_logprob"] < -0.5 for token in sampled)
    others = [token for token in seen["tokens"] if not token["in_loss"]]
    assert {token[name] for token in others for name in ("rollout_logprob", "advantage", "clipped")} == {None}


def test_turns_reward_parts_and_evidence_are_shown(root: Path):
    seen = view(root, "jira-a", 1, 2, 1)
    assert [turn["text"] for turn in seen["turns"]] == ["close_issue"]
    assert seen["reward_parts"] == {"progress": 0.5, "verdict": 0.0, "economy": 1.0}
    assert [(stage["name"], stage["is_ok"]) for stage in seen["stages"]] == [("order", True), ("final_state", False)]
    assert seen["stages"][1]["evidence"] == "not used: resolve_issue, close_issue"


def test_what_is_not_known_of_training_is_said(root: Path):
    assert view(root, "jira-a", 1, 2, 0)["notes"] == {"texts": None, "training": None}
    assert view(root, "jira-b", 1, 2, 0)["notes"]["training"] == NOT_RECORDED
    assert view(root, "jira-a", 8, 16, 0, Label.EVAL)["notes"]["training"] == ONLY_PLAYED
    lost = view(root, "jira-a", 1, 3, 1)
    assert (lost["reward"], lost["turns"], lost["notes"]["training"]) == (None, [], NOT_TRAINED)


def test_segments_of_one_rollout_find_their_columns(tmp_path: Path):
    """With `rollout.history=render` a rollout is several samples; those without sampled tokens are none."""
    rollout = dialogue("r", ["get_issue", "close_issue"], 1.0)
    columns = trained([RolloutGroup(task=rollout.task, index=0, rollouts=[rollout])])
    first = len(codec().encode("get_issue")) + 1
    columns |= {"sample_ids": np.array(["r#0", "r#2"]), "sizes": np.array([first, rollout.num_loss_tokens - first])}
    RolloutRecorder(tmp_path / "run" / "rollouts").write_trained(4, columns)
    record = group_records(RolloutGroup(task=rollout.task, index=0, rollouts=[rollout]))[0]
    record["segment_starts"] = [0, 5, 9]
    seen = view_rollout(RunFolder("run", tmp_path / "run"), record, step=4, label=Label.TRAIN)
    found = [token["trainer_logprob"] for token in seen["tokens"] if token["in_loss"]]
    assert found == columns["logprobs"].tolist()


def test_a_damaged_training_file_is_as_if_it_were_not_there(root: Path, tmp_path: Path):
    run = RunFolder("run", tmp_path / "run")
    folder = tmp_path / "run" / "rollouts"
    RolloutRecorder(folder)
    rollout = dialogue("r", ["get_issue"], 1.0)
    record = group_records(RolloutGroup(task=rollout.task, index=0, rollouts=[rollout]))[0]
    for step, data in enumerate([b"", b"PK\x03\x04 cut", b"\x93NUMPY"], 1):
        (folder / f"trained_{step:06d}.npz").write_bytes(data)
        assert view_rollout(run, record, step=step, label=Label.TRAIN)["notes"]["training"] == NOT_RECORDED


def test_without_a_tokenizer_tokens_are_numbers_and_nobody_is_accused(tmp_path: Path):
    rollout = dialogue("r", ["get_issue"], 1.0)
    record = group_records(RolloutGroup(task=rollout.task, index=0, rollouts=[rollout]))[0]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tokenizer.json").write_text("{broken")
    seen = view_rollout(RunFolder("run", tmp_path / "run"), record, step=1, label=Label.TRAIN)
    assert "tokenizer" in seen["notes"]["texts"]
    assert {token["text"] for token in seen["tokens"]} == {None}
    assert {token["author"] for token in seen["tokens"]} == {None, "policy"}


def test_hostile_text_and_characters_over_several_tokens_survive(root: Path):
    seen = view(root, "jira-a", 1, 2, 2)
    assert texts_by(seen, "policy")[0] == HOSTILE + "<|im_end|>"
    pieces = [token["text"] for token in seen["tokens"]]
    assert "" in pieces and "🙂" in pieces and "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("text", ["plain words", "é 🙂 \u202e 漢字", "a\n\n\tb  c", "<|im_end|> twice <|im_start|>"])
def test_pieces_join_to_the_text(root: Path, text: str):
    texts = open_texts(RunFolders(root).find("jira-a"))
    assert texts is not None
    ids = codec().encode(text)
    assert "".join(texts.pieces(ids)) == text
    assert len(texts.pieces(ids)) == len(ids)


def test_bytes_that_are_no_text_stay_where_they_are(root: Path):
    """A random model samples them all the time; what follows must not move or vanish."""
    texts = open_texts(RunFolders(root).find("jira-a"))
    assert texts is not None
    half = codec().encode("漢")
    assert len(half) == 3
    ids = [half[0], *codec().encode("ok"), half[1], *codec().encode("漢")]
    assert "".join(texts.pieces(ids)) == "\ufffdok\ufffd漢"


def test_tokenizers_without_bytes_are_decoded_by_their_own_decoder():
    """As SentencePiece's: a blank is a sign, and rare characters fall back to bytes."""
    words = ["<unk>", "\u2581the", "\u2581cat", "<0xE6>", "<0xBC>", "<0xA2>", "s"]
    tokenizer = Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    assert TokenTexts(tokenizer).pieces([1, 2, 6, 3, 4, 5, 1]) == ["the", " cat", "s", "", "", "漢", " the"]


def test_an_answer_that_a_new_context_repeats_is_still_the_policys():
    """Outside the loss, though: it was not sampled there."""
    pieces = ["<s>", "do", "<a>", "yes", "<s>", "do", "<a>", "yes", "<u>", "more", "<a>", "no"]
    record = {
        "segment_starts": [0, 4],
        "prompt": [{"role": "user", "content": "do"}],
        "turns": [
            {"num_completion_tokens": 1, "completion": "yes", "observations": [{"role": "user", "content": "more"}]},
            {"num_completion_tokens": 1, "completion": "no", "observations": []},
        ],
    }
    mask = [place in (3, 11) for place in range(12)]
    found = "".join(str(author)[0] for author in authors_of(record, mask, pieces, [False] * 12))
    assert found == "tetp" + "tetp" + "tetp"


def test_words_that_a_template_has_changed_are_not_claimed_for_others():
    record = {
        "segment_starts": [0],
        "prompt": [{"role": "user", "content": "a  b"}],
        "turns": [{"num_completion_tokens": 1, "completion": "c", "observations": []}],
    }
    found = authors_of(record, [False, False, True], ["<s>", "a b", "c"], [True, False, False])
    assert [str(author) for author in found] == ["template", "environment", "policy"]


@pytest.mark.parametrize(
    ("mask", "sizes", "turns"),
    [
        ("00110011", [2, 2], [0, 0, 0, 0, 1, 1, 1, 1]),
        ("0011110", [2, 2], [0, 0, 0, 0, 1, 1, 1]),
        ("0011", [0, 2], [1, 1, 1, 1]),
        ("00", [], [0, 0]),
        ("0111", [1], [0, 0, 0, 0]),
    ],
)
def test_tokens_belong_to_the_turn_that_they_lead_to(mask: str, sizes: Sequence[int], turns: list[int]):
    """Also where counts and mask disagree, and where a turn sampled nothing."""
    assert turns_of([bit == "1" for bit in mask], sizes) == turns
