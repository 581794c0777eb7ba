#!/usr/bin/env bash
# Train AgentHands, a coding agent, to create NAT agents. Installs what it needs on the first call.
#
#   usage: bash examples/nat_agent_creation/train_agenthands.sh [hydra overrides]
#
# Without experiment=... it takes what `skyrl-nat hardware` says fits this machine: smoke_cpu without a GPU,
# agenthands_h100x1 with one, agenthands_h100x8 with eight, in sizes that the cards and cores have room for.
# The tasks come from the library: on a CPU its shipped sample, on GPUs 1,000 that are made once, in data/agenthands
# (AGENTHANDS_DATA names another folder, environment.train_files=... other tasks).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
num_gpus=$( (nvidia-smi --list-gpus 2>/dev/null || rocm-smi --showid --csv 2>/dev/null | grep ^card || true) | grep -ciE 'gpu|card' || true)

if [ "$num_gpus" -eq 0 ]; then
  bash "$root/scripts/setup.sh"
  PATH="$root/.venv/bin:$PATH"
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
case " $* " in
  *" experiment="*) ;;
  *)
    chosen=$(skyrl-nat hardware --overrides)
    mapfile -t profile <<< "$chosen"
    set -- "${profile[@]}" "$@"
    ;;
esac
exec skyrl-nat train "$@"
