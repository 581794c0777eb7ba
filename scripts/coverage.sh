#!/usr/bin/env bash
# Lines of the package that the unit tests run; less than 85 % fails (`[tool.coverage]` in pyproject.toml).
#
#   usage: bash scripts/coverage.sh [pytest arguments]      default: tests/unit
#
# Processes that tests start are not measured. COVERAGE_PYTHON names an interpreter in the place of .venv's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${COVERAGE_PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- tests/unit
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export COVERAGE_FILE=$folder/coverage
"$python" -m coverage run -m pytest "$@"
"$python" -m coverage report
