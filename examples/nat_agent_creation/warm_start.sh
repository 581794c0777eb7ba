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
# Everything is in FOLDER. The same command goes on where a killed one was; what is done is not done again.
set -euo pipefail
usage() { sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ $# -ge 1 ] && [[ $1 != *=* ]] || usage
[ -f "${EPISODES:-}" ] || { echo "warm_start: EPISODES must be a file of dialogues, found '${EPISODES:-}'. Make one with skyrl-nat prepare" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
model=${MODEL:-smollm2-135m-instruct}
read -ra sft <<< "${SFT:-}"
read -ra grpo <<< "${GRPO:-}"
samples=(--samples "${SAMPLES:-0}")

say() { echo "== $*"; }
train() { skyrl-nat train "$@" "root_dir=$out" resume=latest; }

say "1 of 6: the model as it is"
skyrl-nat evaluate "$model" "${samples[@]}" --out "$out/start" "$@" > "$out/start.json"
say "2 of 6: supervised warm start"
train "$@" name=sft "model.path=$model" algorithm=sft "environment.recorded_files=[\"$EPISODES\"]" "${sft[@]}"
[ -d "$out/sft_model" ] || skyrl-nat export "$out/sft" "$out/sft_model"
say "3 of 6: the warm model"
skyrl-nat evaluate "$out/sft" "${samples[@]}" --out "$out/after_sft" > "$out/after_sft.json"
say "4 of 6: GRPO from there"
train "$@" name=grpo "model.path=$out/sft_model" "${grpo[@]}"
say "5 of 6: the trained model"
skyrl-nat evaluate "$out/grpo" "${samples[@]}" --out "$out/after_grpo" > "$out/after_grpo.json"
say "6 of 6: what it was worth"
skyrl-nat compare "$out/start" "$out/after_sft" --out "$out/sft_against_start"
skyrl-nat compare "$out/after_sft" "$out/after_grpo" --out "$out/grpo_against_sft"
skyrl-nat compare "$out/start" "$out/after_grpo" --out "$out/grpo_against_start"
skyrl-nat analyze "$out/grpo" --out "$out/analysis"
