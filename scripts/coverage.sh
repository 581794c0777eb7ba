#!/usr/bin/env bash
# Tests, and which lines of the package they run: less than 85 % fails. The files that lack most are printed.
#
#   usage: bash scripts/coverage.sh [pytest arguments]      default: tests/unit
#
# Processes that tests start are not measured, nor is what the sandbox's own interpreter runs. torch cannot compile lines
# that are counted, which the fused log-probs are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- tests/unit
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
code=0
export PYTHONPATH=scripts${PYTHONPATH:+:$PYTHONPATH}
.venv/bin/python -m slipcover --source skyrl_nat --omit 'skyrl_nat/sandbox/inside/*,skyrl_nat/workers/logprobs.py' \
  --json --out "$folder/coverage.json" --fail-under 85 -m pytest -p uncounted_forks "$@" || code=$?
.venv/bin/python - "$folder/coverage.json" <<'END'
import json, sys

found = json.load(open(sys.argv[1], encoding="utf-8"))
summaries = sorted((file["summary"]["missing_lines"], name, file["summary"]) for name, file in found["files"].items())
for missing, name, summary in reversed(summaries[-10:]):
    print(f"{summary['percent_covered']:5.1f} %  {missing:4} lines missing  {name}")
print(f"lines of the package that these tests run: {found['summary']['percent_covered']:.1f} % (at least 85 are asked for)")
END
exit $code
