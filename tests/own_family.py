"""The family of docs/add_a_family.md, as a reader would write it down."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "add_a_family.md"
FENCE = re.compile(r"^```python\n# my_family/(\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> list[str]:
    """Write the Python files of the page into a folder; returns their names."""
    files = dict(FENCE.findall(PAGE.read_text(encoding="utf-8")))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(files)


def train_command() -> list[str]:
    """Return the words after `skyrl-nat` of the page's command that trains."""
    command = re.search(r"^PYTHONPATH=my_family \S+/skyrl-nat (train .*?)\n```", PAGE.read_text(), re.M | re.S)
    assert command is not None
    return command[1].replace("\\\n", " ").split()
