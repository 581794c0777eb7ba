#!/usr/bin/env bash
# The first experiment: SmolLM2-135M as it is, after imitation, and after GRPO, on tasks that it never trained on.
#
#   usage: bash examples/nat_agent_creation/first_experiment/run.sh FOLDER [hydra overrides of all stages]
#
#   SEEDS      seeds, one whole way each ("0 1")
#   TASKS      tasks to make, a tenth of them held out (1000); DATA names a folder that `skyrl-nat prepare` made before
#   SFT, GRPO  overrides of one stage, see warm_start.sh
#
# Writes FOLDER/results.json. Killed, the same command goes on.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] && [[ $1 != *=* ]] || { sed -n '2,10p' "${BASH_SOURCE[0]}" >&2; exit 2; }
out=$1
shift
mkdir -p "$out"
data=${DATA:-$out/data}
[ -f "$data/report.json" ] || skyrl-nat prepare "$data" --num-samples "${TASKS:-1000}"
folders=()
for seed in ${SEEDS:-0 1}; do
  folders+=("$out/seed_$seed")
  EPISODES="$data/train_episodes.jsonl" bash "$here/../warm_start.sh" "$out/seed_$seed" "$@" "seed=$seed" \
    "environment.train_files=[\"$data/train.parquet\"]" "environment.validation_files=[\"$data/validation.parquet\"]"
done
python "$here/collect.py" "$out/results.json" "${folders[@]}"
