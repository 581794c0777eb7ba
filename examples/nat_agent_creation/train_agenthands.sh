#!/usr/bin/env bash
# Train AgentHands, a coding agent, to create NAT agents. Installs what it needs on the first call.
#
#   usage: bash examples/nat_agent_creation/train_agenthands.sh [hydra overrides]
#
# Without a GPU it takes experiment=smoke_cpu, with one GPU agenthands_h100x1, with eight agenthands_h100x8.
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

case " $* " in *" experiment="*) ;; *) set -- "experiment=$preset" "$@" ;; esac
exec skyrl-nat train "$@"
