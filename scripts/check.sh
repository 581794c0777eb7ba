#!/usr/bin/env bash
# The house rules: format, lint, types, import directions, sizes, spelling.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin
$bin/ruff format --check .
$bin/ruff check .
$bin/pyright --pythonpath $bin/python
$bin/lint-imports
$bin/python scripts/check_sizes.py
$bin/codespell skyrl_nat conf examples scripts tests docs README.md CONTRIBUTING.md CHANGELOG.md
