#!/usr/bin/env bash
# The first experiment: SmolLM2-135M as it is, after imitation, and after GRPO, on tasks that it never trained on.
#
#   usage: bash examples/nat_agent_creation/first_experiment/run.sh FOLDER [--minutes M] [hydra overrides of all stages]
#
#   --minutes  wall time of each seed, all starts together: GRPO ends in time for its last evaluation
#   SEEDS      seeds, one whole way each ("0 1"); side by side where there is a GPU for each
#   DATA       folder of `skyrl-nat prepare`; default: FOLDER/data, made with TASKS tasks (2400), a tenth held out, and as
#              many of other families
#   MODEL      that both begin with (smollm2-135m-instruct)
#   SFT, GRPO  overrides of one stage, for instance GRPO="optimizer.lr=1e-5"
#
# Each seed starts two runs (examples/family_training/stages.py); --only-imitation ends after the first. Writes
# FOLDER/results.json, learning_curve.png and an analysis of each seed. Told to end or killed, the same command goes on.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] && [[ $1 != *=* && $1 != -* ]] || { sed -n '2,14p' "${BASH_SOURCE[0]}" >&2; exit 2; }
. "$here/../../family_training/python.sh"
. "$here/seeds.sh"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
data=${DATA:-$out/data}
if [ ! -f "$data/report.json" ]; then
  # Families of seed 3 have enough functions of level 1 that are held out; those to train on are asked for again in
  # other words.
  "$python" -m skyrl_nat.cli prepare "$data" --num-samples "${TASKS:-2400}" --seed 3 \
    --mix 1:72,2:16,3:7,4:3,5:2 --hold-out both --tasks-per-function 3
fi
data=$(cd "$data" && pwd)
export EPISODES="$data/train_episodes.jsonl"
held_out="\"$data/validation.parquet\""
[ ! -f "$data/other_families.parquet" ] || held_out+=",\"$data/other_families.parquet\""
export SFT="trainer.epochs=8 trainer.tasks_per_step=32 optimizer.lr=5e-4 rollout.max_total_tokens=6144 trainer.staleness=0
  trainer.updates_per_batch=1 ${SFT:-}"
arguments=("$@")
play() {
  exec "$python" "$here/../../family_training/stages.py" nat_agent "$out/seed_$1" "${MODEL:-smollm2-135m-instruct}" \
    --grpo-levels 2 --fresh 0.4 "${arguments[@]}" "seed=$1" "environment.train_files=[\"$data/train.parquet\"]" \
    "environment.validation_files=[$held_out]"
}
for_each_seed play
case " $* " in *" --only-imitation "*) exit 0 ;; esac
"$python" "$here/collect.py" "$out/results.json" "${seeds[@]/#/$out/seed_}"
for seed in "${seeds[@]}"; do
  "$python" -m skyrl_nat.cli analyze "$out/seed_$seed/grpo" --out "$out/seed_$seed/analysis"
done
