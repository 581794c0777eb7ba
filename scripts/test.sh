#!/usr/bin/env bash
# Install what the tests need, then run them.
#
#   usage: bash scripts/test.sh            all tests that need no GPU (those that do: tests/gpu)
#          bash scripts/test.sh unit       unit tests alone
#          bash scripts/test.sh [pytest arguments]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bash "$root/scripts/setup.sh"
cd "$root"
case "${1:-}" in
  unit) shift; set -- tests/unit "$@" ;;
  "") set -- tests/unit tests/integration tests/security tests/chaos ;;
esac
exec .venv/bin/python -m pytest "$@"
