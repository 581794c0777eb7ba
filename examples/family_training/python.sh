# To be sourced: `python` is the interpreter of this checkout, or python3 where there is none; it imports this checkout.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=python3
[ ! -x "$root/.venv/bin/python" ] || python=$root/.venv/bin/python
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
