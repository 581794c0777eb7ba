#!/usr/bin/env bash
# Start stages.py with the interpreter of this checkout, or with python3 where there is none.
#
#   usage: bash examples/family_training/run.sh FAMILY OUT MODEL [--minutes M] [hydra overrides]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/python.sh"
exec "$python" "$here/stages.py" "$@"
