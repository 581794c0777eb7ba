"""Refuse files over 400 lines, functions over 60 lines and drawer names.

usage: check_sizes.py [FOLDER ...]      (default: skyrl_nat tests scripts benchmarks)
"""

import ast
import sys
from pathlib import Path

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc"}


def faults_of(path: Path) -> list[str]:
    """Return what a file does wrong, one line each."""
    text = path.read_text(encoding="utf-8")
    found = []
    if path.stem in DRAWERS:
        found.append(f"{path}: no file may be called {path.stem}; name it after what it holds")
    if (lines := text.count("\n")) > MAX_FILE_LINES:
        found.append(f"{path}: {lines} lines, at most {MAX_FILE_LINES}; split it by concept")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}")
    return found


def main(folders: list[str]) -> int:
    """Check all Python files below the folders."""
    files = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    faults = [fault for path in files for fault in faults_of(path)]
    print("\n".join(faults) or f"sizes: {len(files)} files are within the limits")
    return 1 if faults or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["skyrl_nat", "tests", "scripts", "benchmarks"]))
