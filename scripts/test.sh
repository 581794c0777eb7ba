#!/usr/bin/env bash
# Install what the tests need, then run them.
#
#   usage: bash scripts/test.sh            all tests that need no GPU (those that do: tests/gpu), but for the long ones; it
#                                          fails, too, where unit tests run less than 85 % of the package's lines
#          bash scripts/test.sh unit       unit tests alone
#          bash scripts/test.sh long       the long ones: more runs of the same kinds, every bar, every export; over an hour
#          bash scripts/test.sh gguf       those of llama.cpp, which is compiled first: some minutes, and a C++ compiler
#          bash scripts/test.sh [pytest arguments]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bash "$root/scripts/setup.sh"
cd "$root"
case "${1:-}" in
  unit) shift; set -- tests/unit "$@" ;;
  long) shift; set -- tests/integration -m long "$@" ;;
  gguf)
    shift
    .venv/bin/python -c "import llama_cpp" 2>/dev/null ||
      CMAKE_ARGS="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF" .venv/bin/pip install --quiet --no-cache-dir llama-cpp-python==0.3.36
    set -- tests/unit/engines/test_gguf.py tests/unit/export/test_gguf_files.py tests/integration/test_{ollama,whole_way}.py "$@"
    ;;
  "")
    code=0
    bash scripts/coverage.sh tests/unit --durations=20 || code=$?
    .venv/bin/python -m pytest tests/integration tests/security tests/chaos -m "not long" --durations=40 || code=$?
    exit $code
    ;;
esac
exec .venv/bin/python -m pytest "$@"
