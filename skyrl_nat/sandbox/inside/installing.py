"""What makes NAT discover a package without an installer: the marks of an editable install. Stdlib only."""

import tomllib
from pathlib import Path

PROGRAM_FOLDER = Path(__file__).resolve().parent
"""Must be on the path of whoever reads the marks: the scripted LLM lies here."""


def install(package: Path, into: Path) -> None:
    """Write the distribution's metadata for the entry points that the package's pyproject.toml declares.

    Args:
        package: Folder of pyproject.toml; without a readable one nothing is written.
        into: A folder that will be on the path.
    """
    try:
        project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        name, points = str(project["name"]), dict(project["entry-points"]["nat.components"])
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, RecursionError):
        return
    points["scripted_llm"] = "nat_llm"
    marks = into / f"{''.join(c if c.isalnum() else '_' for c in name)[:60]}-0.0.dist-info"
    marks.mkdir(exist_ok=True)
    (marks / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0\n", encoding="utf-8")
    lines = ["[nat.components]", *(f"{key} = {value}" for key, value in points.items())]
    (marks / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
