#!/usr/bin/env bash
# Formulations of the reward (rewards.yaml): short GRPO runs from the same imitated models, compared on held-out tasks.
#
#   usage: bash examples/nat_agent_creation/first_experiment/ablation.sh FOLDER [hydra overrides of all runs]
#
#   FOLDER     of run.sh, whose seeds have imitated (run.sh FOLDER --only-imitation is enough)
#   SEEDS      seeds ("0 1"), each a run of every variant
#   AT_ONCE    runs beside each other (as many as seeds), each with one GPU where there are any
#   DATA       as for run.sh
#   VARIANTS   another file of formulations
#
# Trains on the tasks that GRPO alone sees. Writes FOLDER/rewards/ablation.html and results.json. Told to end or killed, the
# same command goes on.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] && [[ $1 != *=* && $1 != -* ]] || { sed -n '2,13p' "${BASH_SOURCE[0]}" >&2; exit 2; }
. "$here/../../family_training/python.sh"
out=$(cd "$1" && pwd)
shift
data=$(cd "${DATA:-$out/data}" && pwd)
read -ra seeds <<< "${SEEDS:-0 1}"
case " $* " in *" experiment="*) preset=() ;; *) preset=(experiment=first_experiment_h100x1) ;; esac
# ${seed} is for the config of each run.
exec "$python" -m skyrl_nat.cli ablate "$out/rewards" --variants "${VARIANTS:-$here/rewards.yaml}" \
  --seeds "$(IFS=,; echo "${seeds[*]}")" --at-once "${AT_ONCE:-${#seeds[@]}}" --threshold 0.6 \
  "${preset[@]}" trainer.steps=30 trainer.tasks_per_step=32 trainer.updates_per_batch=1 \
  evaluation.every_steps=10 checkpoint.keep_last=1 checkpoint.keep_best=0 environment.max_difficulty=2 \
  'model.path='"$out"'/seed_${seed}/sft_model' \
  'environment.train_files=["'"$out"'/seed_${seed}/grpo_tasks.parquet"]' \
  "environment.validation_files=[\"$data/validation.parquet\"]" "$@"
