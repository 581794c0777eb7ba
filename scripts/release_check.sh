#!/usr/bin/env bash
# Build the package, install it into a new virtual environment and use it in a folder that is no checkout: does the wheel
# hold all that is needed?
#
#   usage: bash scripts/release_check.sh [--dependencies-of VENV] [--no-train] [--keep FOLDER]
#
#   --dependencies-of VENV   take the dependencies from there in the place of installing requirements/cpu.lock (quick)
#   --no-train               end before the one training step
#   --keep FOLDER            work in this new folder and leave it
#
# The step is judged by the real validator, with NAT from .venv-nat (scripts/setup.sh makes it).
# SKYRL_NAT_PYTHON names another interpreter (3.11 or 3.12).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${SKYRL_NAT_PYTHON:-$(command -v python3.11 || command -v python3.12 || echo python3)}
dependencies= trains=yes work=
while [ $# -gt 0 ]; do
  case $1 in
    --dependencies-of) dependencies=$(cd "$2" && pwd); shift ;;
    --no-train) trains= ;;
    --keep) mkdir "$2"; work=$(cd "$2" && pwd); shift ;;
    *) sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "$work" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi
pip="--quiet --disable-pip-version-check"
say() { echo "release: $*" >&2; }

say "building"
"$python" -m venv "$work/build-venv"
"$work/build-venv/bin/pip" install $pip build==1.6.1
"$work/build-venv/bin/python" -m build --outdir "$work/dist" "$root" > "$work/build.log" 2>&1 ||
  { tail -20 "$work/build.log" >&2; exit 1; }
wheel=$(ls "$work"/dist/*.whl)
"$python" "$root/scripts/wheel_contents.py" "$wheel"

say "installing"
"$python" -m venv "$work/venv"
if [ -n "$dependencies" ]; then
  folder=$("$dependencies/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$folder" > "$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
else
  lock="$root/requirements/cpu.lock"
  "$work/venv/bin/pip" install $pip "$(grep '^torch==' "$lock")" --constraint "$lock"
  "$work/venv/bin/pip" uninstall $pip --yes triton 2>/dev/null || true
  "$work/venv/bin/pip" install $pip --no-deps -r "$lock"
fi
"$work/venv/bin/pip" install $pip --no-deps "$wheel"

# Nothing of the checkout may help from here on, but for NAT.
mkdir "$work/elsewhere"
cd "$work/elsewhere"
unset PYTHONPATH
export SKYRL_NAT_SANDBOX_PYTHON=${SKYRL_NAT_SANDBOX_PYTHON:-$root/.venv-nat/bin/python}
found=$("$work/venv/bin/python" -c 'import skyrl_nat; print(skyrl_nat.__path__[0])')
case $found in
  "$work"/venv/*) ;;
  *) echo "release: skyrl_nat must come from the new environment, found $found. Unset what adds the checkout" >&2; exit 1 ;;
esac

say "using"
"$work/venv/bin/skyrl-nat" hardware
"$work/venv/bin/skyrl-nat" plan experiment=smoke_cpu > plan.txt
"$work/venv/bin/skyrl-nat" plan experiment=agenthands_h100x8 > plan_of_gpus.txt
"$work/venv/bin/skyrl-nat" monitoring monitoring > monitoring.txt
if [ -n "$trains" ]; then
  say "training one step"
  # Short answers: whether they are good says nothing of the wheel.
  "$work/venv/bin/skyrl-nat" train experiment=smoke_cpu trainer.steps=1 engine=hf weight_sync=host name=release \
    root_dir=runs trainer.rollouts_per_task=2 rollout.max_new_tokens=24 evaluation.before_and_after=false
  grep -q '"rollout/completion_tokens/mean": [1-9]' runs/release/metrics.jsonl ||
    { echo "release: the step must have sampled tokens, see $work/elsewhere/runs/release. Try it on an idle machine" >&2; exit 1; }
  ls runs/release/checkpoints/step_*/manifest.json > /dev/null
fi
say "the wheel holds all that is needed"
