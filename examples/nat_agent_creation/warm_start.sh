#!/usr/bin/env bash
# Baseline, supervised warm start from reference solutions, GRPO, evaluation of all three, comparison, analysis.
#
#   usage: EPISODES=FILE bash examples/nat_agent_creation/warm_start.sh FOLDER [hydra overrides of all stages]
#
#   EPISODES   dialogues to imitate: train_episodes.jsonl of `skyrl-nat prepare`, or any that docs/data.md describes
#   MODEL      that both begin with (smollm2-135m-instruct)
#   SFT, GRPO  overrides of one stage, for instance SFT="trainer.epochs=3 optimizer.lr=1e-5"
#   SAMPLES    rollouts per task besides the greedy one, for pass@k (0)
#
# Everything is in FOLDER; seconds.tsv has the wall-clock seconds of every stage. The same command goes on where a killed
# one was; what is done is not done again.
set -euo pipefail
usage() { sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 1 ] && [[ $1 != *=* ]] || usage
if [ ! -f "${EPISODES:-}" ]; then
  echo "warm_start: EPISODES must be a file of dialogues, found '${EPISODES:-}'. Make one with skyrl-nat prepare" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
model=${MODEL:-smollm2-135m-instruct}
read -ra sft <<< "${SFT:-}"
read -ra grpo <<< "${GRPO:-}"
samples=(--samples "${SAMPLES:-0}")

# stage N NAME: begins one; however it ends, its wall-clock seconds are written down.
running=
note() { [ -z "$running" ] || printf '%s\t%s\n' "$running" "$(($(date +%s) - begun))" >> "$out/seconds.tsv"; }
trap note EXIT
stage() {
  note
  begun=$(date +%s) running=$2
  echo "== $1 of 6: $2"
}
train() { skyrl-nat train "$@" "root_dir=$out" resume=latest; }

stage 1 "start"
skyrl-nat evaluate "$model" "${samples[@]}" --out "$out/start" "$@" > "$out/start.json"
stage 2 "sft"
train "$@" name=sft "model.path=$model" algorithm=sft evaluation.before_and_after=false \
  "environment.recorded_files=[\"$EPISODES\"]" "${sft[@]}"
[ -d "$out/sft_model" ] || skyrl-nat export "$out/sft" "$out/sft_model"
stage 3 "evaluation of sft"
skyrl-nat evaluate "$out/sft" "${samples[@]}" --out "$out/after_sft" > "$out/after_sft.json"
stage 4 "grpo"
train "$@" name=grpo "model.path=$out/sft_model" "${grpo[@]}"
stage 5 "evaluation of grpo"
skyrl-nat evaluate "$out/grpo" "${samples[@]}" --out "$out/after_grpo" > "$out/after_grpo.json"
stage 6 "comparison"
skyrl-nat compare "$out/start" "$out/after_sft" --out "$out/sft_against_start"
skyrl-nat compare "$out/after_sft" "$out/after_grpo" --out "$out/grpo_against_sft"
skyrl-nat compare "$out/start" "$out/after_grpo" --out "$out/grpo_against_start"
skyrl-nat analyze "$out/grpo" --out "$out/analysis"
