"""Clusters of findings and the funnel of stages, counted by hand."""

import pytest
from recorded_run import group_of, judged, stages

from skyrl_nat.evaluation.analysis import failures
from skyrl_nat.evaluation.analysis.failures import MAX_TEXT_CHARS, OTHERS, Clusters, kind_of, plain
from skyrl_nat.evaluation.analysis.tally import Tally


@pytest.mark.parametrize(
    ("finding", "kind"),
    [
        ("tool word_count: 3 of 5 hidden inputs right", "tool NAME: N of N hidden inputs right"),
        ("my_pkg/register.py is missing", "…/register.py is missing"),
        ("my_pkg/config.yml is missing", "…/config.yml is missing"),
        ("src/a/tools_b.py:12: invalid syntax", "…/NAME.py:N: invalid syntax"),
        ("pyproject.toml: an entry point nat.components must be a_b.register", None),
        ("build: KeyError: 'llm_3'", "build: KeyError: '…'"),
        ('schema: "x\'y" is `z`', "schema: '…' is '…'"),
        ("mcp: word_count, add_two, x_1 not served; ", "mcp: NAME not served;"),
        ("it's what isn't", "it's what isn't"),
        ("at 0x7f3a, -1.5e3 and 12", "at N, -NeN and N"),
        ("  two\n lines\t", "two lines"),
        ("", "(empty)"),
        ("größer 東京 🙂", "größer 東京 🙂"),
        ("a\x1b[31mred\ud800\u202e", "a\ufffd[Nmred\ufffd\ufffd"),
    ],
)
def test_details_become_placeholders(finding: str, kind: str | None):
    expected = "pyproject.toml: an entry point nat.components must be NAME.register" if kind is None else kind
    assert kind_of(finding) == expected


@pytest.mark.parametrize("text", ["'" * 100_000, "_" * 100_000, "a/" * 100_000, "9" * 100_000, "NAME, " * 50_000])
def test_no_text_takes_long(text: str):
    assert len(kind_of(text)) <= 2 * failures.MAX_FINDING_CHARS


def test_rollouts_are_counted_once_for_each_kind():
    found = Clusters()
    found.add(1, judged("a", 0.0), ["tool a_b: 1 of 5", "tool c_d: 2 of 5", "x/register.py is missing"])
    found.add(1, judged("b", 1.0), [])
    found.add(4, judged("c", 0.0, text="later"), ["tool e_f: 0 of 5"])
    first, second = found.most_frequent()
    assert (first.name, first.num_rollouts, dict(first.by_step)) == ("tool NAME: N of N", 2, {1: 1, 4: 1})
    assert (second.name, second.num_rollouts) == ("…/register.py is missing", 1)
    assert (found.judged.total(), found.affected.total()) == (3, 2)
    assert first.example is not None
    assert (first.example.rollout_id, first.example.step, first.example.text) == ("c", 4, "later")
    assert second.example is not None
    assert second.example.finding == "x/register.py is missing"


def test_examples_are_cut_off_and_plain():
    found = Clusters()
    found.add(1, judged("a", 0.0, text="\x1b\ud800" + "y" * 1_000_000), ["f"])
    example = found.most_frequent()[0].example
    assert example is not None
    assert example.text == "\ufffd\ufffd" + "y" * (MAX_TEXT_CHARS - 2) + "\n… (996002 more characters)"


def test_endless_kinds_fill_no_memory(monkeypatch):
    monkeypatch.setattr(failures, "MAX_CLUSTERS", 3)
    found = Clusters()
    for letter in "abcdef":
        found.add(1, judged("r", 0.0), [f"kind {letter}"])
    assert {cluster.name: cluster.num_rollouts for cluster in found.most_frequent()} == {
        OTHERS: 3,
        "kind a": 1,
        "kind b": 1,
        "kind c": 1,
    }


def test_stages_are_a_funnel():
    found = Tally()
    for step, passed in ((1, {"static": True, "build": False, "oracle": None}), (2, {"static": False, "build": None})):
        found.add(step, group_of(step, [judged("a", 0.0, stages=stages(**passed))]))
    counted = {
        name: (stage.wanted.total(), stage.reached.total(), stage.passed.total())
        for name, stage in found.stages.items()
    }
    assert counted == {"static": (2, 2, 1), "build": (2, 1, 0), "oracle": (1, 0, 0)}


def test_plain_text_keeps_lines_and_letters():
    assert plain("a\tb\nç 🙂\x00\x7f\u2028") == "a\tb\nç 🙂\ufffd\ufffd\u2028"
