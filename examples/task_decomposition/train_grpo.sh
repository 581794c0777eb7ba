#!/usr/bin/env bash
# Plans of tasks (docs/task_dag.md): imitation of reference plans, GRPO from there, and whether GRPO gained.
#
#   usage: bash examples/task_decomposition/train_grpo.sh OUT MODEL [--minutes M] [hydra overrides of all stages]
#
#   OUT        folder to make: results.json, learning_curve.png, the runs and the pages of the comparisons
#   MODEL      folder or name of the model that imitation begins with, e.g. smollm2-135m-instruct
#   --minutes  wall time of the whole; GRPO is told to end after the last evaluation that fits
#   SFT, GRPO  overrides of one stage, for instance GRPO="optimizer.lr=1e-5"
#
# With a GPU it takes experiment=task_dag_h100x1, else task_dag_cpu. The same command goes on where a killed one was.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,11p' "${BASH_SOURCE[0]}" >&2; exit 2; }
# After two epochs four plans of five are broken, and GRPO pays for those that put nothing in order (README.md).
export SFT="trainer.epochs=8 ${SFT:-}"
exec bash "$(dirname "${BASH_SOURCE[0]}")/../family_training/run.sh" task_dag "$@"
