#!/usr/bin/env bash
# Formulations of the reward (rewards.yaml): short GRPO runs from the same imitated model, compared on held-out tasks.
#
#   usage: bash examples/nat_agent_creation/first_experiment/ablation.sh FOLDER [hydra overrides of all runs]
#
#   FOLDER     of run.sh, whose seeds have imitated (run.sh FOLDER --only-imitation is enough)
#   SEEDS      seeds, one ablation each ("0 1"); side by side where there is a GPU for each
#   DATA       as for run.sh
#   VARIANTS   another file of formulations
#
# Each variant is a run of its own on tasks of levels 1 and 2. Writes FOLDER/rewards_seed_N/ablation.html and results.json.
# Told to end or killed, the same command goes on.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] && [[ $1 != *=* && $1 != -* ]] || { sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2; }
. "$here/../../family_training/python.sh"
. "$here/seeds.sh"
out=$(cd "$1" && pwd)
shift
data=$(cd "${DATA:-$out/data}" && pwd)
case " $* " in *" experiment="*) preset=() ;; *) preset=(experiment=first_experiment_h100x1) ;; esac
overrides=("$@")
play() {
  exec "$python" -m skyrl_nat.cli ablate "$out/rewards_seed_$1" --variants "${VARIANTS:-$here/rewards.yaml}" --seeds "$1" \
    "${preset[@]}" trainer.steps=20 evaluation.every_steps=0 checkpoint.keep_last=1 checkpoint.keep_best=0 \
    environment.max_difficulty=2 \
    "model.path=$out/seed_$1/sft_model" "environment.train_files=[\"$data/train.parquet\"]" \
    "environment.validation_files=[\"$data/validation.parquet\"]" "${overrides[@]}"
}
for_each_seed play
