"""Run a notebook's code cells in order, in one namespace, and keep what each prints.

As a program it prints the outputs as JSON, or writes them into the notebook:

    usage: notebook_cells.py NOTEBOOK [--write]
"""

import argparse
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored_outputs(notebook: dict[str, Any]) -> list[str]:
    """Return what the notebook says that its cells print."""
    return ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in code_cells(notebook)]


def run_cells(notebook: dict[str, Any]) -> list[str]:
    """Return what the cells print now."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for number, cell in enumerate(code_cells(notebook), 1):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), namespace)
        printed.append(output.getvalue())
    return printed


def write_outputs(notebook: dict[str, Any], printed: list[str]) -> None:
    """Put outputs into a notebook."""
    for number, (cell, text) in enumerate(zip(code_cells(notebook), printed, strict=True), 1):
        cell["execution_count"] = number
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if text else []


def main() -> None:
    """Run one notebook."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--write", action="store_true", help="write the outputs into the notebook")
    options = parser.parse_args()
    notebook = json.loads(options.notebook.read_text(encoding="utf-8"))
    printed = run_cells(notebook)
    if options.write:
        write_outputs(notebook, printed)
        options.notebook.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        print(json.dumps(printed))


if __name__ == "__main__":
    main()
