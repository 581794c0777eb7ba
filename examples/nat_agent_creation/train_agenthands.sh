#!/usr/bin/env bash
# Train AgentHands, a coding agent, to create NAT agents. Installs what it needs on the first call.
#
#   usage: bash examples/nat_agent_creation/train_agenthands.sh [hydra overrides]
#
# Without a GPU it takes experiment=smoke_cpu, with one GPU agenthands_h100x1, with eight agenthands_h100x8.
# The tasks come from the library: on a CPU its shipped sample, on GPUs 1,000 that are made once, in data/agenthands
# (AGENTHANDS_DATA names another folder, environment.train_files=... other tasks).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
num_gpus=$( (nvidia-smi --list-gpus 2>/dev/null || true) | grep -c GPU || true)

if [ "$num_gpus" -eq 0 ]; then
  bash "$root/scripts/setup.sh"
  PATH="$root/.venv/bin:$PATH"
  preset=smoke_cpu
elif [ "$num_gpus" -ge 8 ]; then
  preset=agenthands_h100x8
else
  preset=agenthands_h100x1
fi

case " $* " in
  *" environment.train_files="* | *" environment.family="* | *" environment.recorded_files="*) ;;
  *)
    if [ "$num_gpus" -gt 0 ]; then
      data=${AGENTHANDS_DATA:-$root/data/agenthands}
      [ -f "$data/report.json" ] || skyrl-nat prepare "$data" --num-samples 1000
      set -- "environment.train_files=[\"$data/train.parquet\"]" \
        "environment.validation_files=[\"$data/validation.parquet\"]" "$@"
    fi
    ;;
esac
case " $* " in *" experiment="*) ;; *) set -- "experiment=$preset" "$@" ;; esac
exec skyrl-nat train "$@"
