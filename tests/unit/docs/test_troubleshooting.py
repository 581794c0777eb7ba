"""Every message says what to do, or docs/TROUBLESHOOTING.md does; no entry there outlives its message."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "TROUBLESHOOTING.md"
ROW = re.compile(r"^\| (`+) ?(.+?) ?\1 \|", re.MULTILINE)

MADE_UP = """
from skyrl_nat.errors import SkyRLNatError
class OwnError(SkyRLNatError): pass
class DeeperError(OwnError): pass
class OtherError(ValueError): pass
def work(console, value, error):
    raise OwnError(f"clip must be > 0, got {value}. Set it to 0.2")
    raise DeeperError(f"the clip is {value}")
    raise OtherError("not ours")
    raise OwnError(str(error))
    require(value > 0, "a.b", "be > 0", value, "It is small.")
    require(value > 0, "a.b", "be > 0", value, "Raise it.")
    console.warn(f"{value} " "was lost")
    return Alarm(f"KL must be < 1, found {value}. Lower optimizer.lr", is_fatal=True)
"""


@pytest.fixture(scope="module")
def tool():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("list_messages", ROOT / "scripts" / "list_messages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def messages(tool):
    return tool.list_messages([ROOT / "skyrl_nat"])


def entries(page: str) -> list[str]:
    """Return the messages of the page's tables; a bar in one is written as in Markdown."""
    return [text.replace("\\|", "|") for _, text in ROW.findall(page)]


def faults(messages, page: str) -> list[str]:
    """Return messages without an entry, and entries without a message."""
    known, said = set(entries(page)), {message.text for message in messages}
    silent = [message for message in messages if not message.is_explained and message.text not in known]
    missing = [f"{message.file}:{message.line}: no entry for {message.text!r}" for message in silent]
    return missing + [f"nothing says {text!r}" for text in sorted(known - said)]


def test_every_message_explains_itself_or_has_an_entry_and_every_entry_has_a_message(messages):
    assert len(messages) > 600, "what is collected is the program's messages, not a few of them"
    assert faults(messages, PAGE.read_text(encoding="utf-8")) == []


def test_every_entry_says_cause_and_remedy():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if ROW.match(line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert all(cells), line


def test_a_message_without_an_entry_and_an_entry_without_a_message_are_faults(tool, tmp_path):
    (tmp_path / "made_up.py").write_text(MADE_UP)
    found = tool.list_messages([tmp_path])
    by_text = {message.text: message for message in found}
    assert {text for text, message in by_text.items() if not message.is_explained} == {
        "the clip is …",
        "a.b must be > 0, got …. It is small.",
        "… was lost",
    }
    assert by_text["clip must be > 0, got …. Set it to 0.2"].kind == "OwnError"
    assert by_text["KL must be < 1, found …. Lower optimizer.lr"].kind == "Alarm"
    assert by_text["…"].is_explained, "a text from elsewhere is judged where it is written"
    assert "not ours" not in by_text
    page = "| message | cause | remedy |\n|---|---|---|\n| `… was lost` | a | b |\n| `an old … message` | a | b |\n"
    assert [line.split(": ", 1)[-1] for line in faults(found, page)] == [
        "no entry for 'the clip is …'",
        "no entry for 'a.b must be > 0, got …. It is small.'",
        "nothing says 'an old … message'",
    ]


@pytest.mark.parametrize(
    ("text", "is_enough"),
    [
        ("rollout.top_p must be 1.0, got …. Leave top_p at 1.0", True),
        ("… must be a folder, but: …. Restore it", True),
        ("seed must be >= 0, got …. The default is 0", True),
        ("seed must be >= 0, got …", False),
        ("Set the seed", False),
        ("seed …", False),
        ("the settings are read and written", False),
    ],
)
def test_the_rule_asks_for_all_three_parts(tool, text, is_enough):
    assert tool.explains_itself(text) is is_enough
