#!/usr/bin/env bash
# Make the two virtual environments that a laptop or CI machine needs, once; a second call does nothing.
#
#   usage: bash scripts/setup.sh
#
#   .venv       the trainer: torch (CPU build where pip offers one), vLLM for CPUs, Ray, and the test tools
#   .venv-nat   NAT for the sandbox, apart because its dependencies clash with vLLM's
#
# SKYRL_NAT_PYTHON names another interpreter (3.11 or 3.12).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
  if [ -n "${SKYRL_NAT_PYTHON:-}" ] && ! "$SKYRL_NAT_PYTHON" -V >/dev/null 2>&1; then
    echo "setup: SKYRL_NAT_PYTHON must name a Python that runs, found $SKYRL_NAT_PYTHON. Give its full path, or unset it." >&2
    exit 2
  fi
  for candidate in "${SKYRL_NAT_PYTHON:-}" python3.11 python3.12 python3; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "setup: Python must be 3.11 or 3.12, found neither. Install one, or name it in SKYRL_NAT_PYTHON." >&2
  exit 2
}

# make_venv FOLDER LOCK: a virtual environment with exactly the pinned packages; the stamp says that it is complete.
make_venv() {
  local folder=$1 lock=$2 stamp
  stamp="$folder/complete-$(cksum < "$lock" | cut -d' ' -f1)"
  [ -e "$stamp" ] && return
  echo "setup: installing $(grep -c == "$lock") packages into ${folder##*/}, some minutes" >&2
  [ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
  if grep -q '^torch==' "$lock"; then
    # torch first and with its needs, which differ between its CPU and CUDA builds.
    "$folder/bin/pip" install $quiet "$(grep '^torch==' "$lock")" --constraint "$lock"
    "$folder/bin/pip" uninstall $quiet --yes triton 2>/dev/null || true
  fi
  # The pins were resolved together; resolving again would bring torchvision and triton, which break the set.
  "$folder/bin/pip" install $quiet --no-deps -r "$lock"
  touch "$stamp"
}

quiet="--quiet --disable-pip-version-check"
python=$(find_python)
make_venv "$root/.venv" "$root/requirements/cpu.lock"
make_venv "$root/.venv-nat" "$root/requirements/nat.lock"
if [ ! -x "$root/.venv/bin/skyrl-nat" ]; then
  "$root/.venv/bin/pip" install $quiet --no-deps -e "$root"
fi
