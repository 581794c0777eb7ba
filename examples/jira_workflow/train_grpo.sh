#!/usr/bin/env bash
# Jira issues as a language task (docs/jira.md): GRPO from the model as it is, and whether it gained.
#
#   usage: bash examples/jira_workflow/train_grpo.sh OUT MODEL [--minutes M] [--imitate] [hydra overrides]
#
#   OUT        folder to make: results.json, learning_curve.png, the runs and the pages of the comparisons
#   MODEL      folder or name of the model to train, e.g. smollm2-135m-instruct
#   --minutes  wall time of the whole; GRPO is told to end after the last evaluation that fits
#   --imitate  reference plans first, for a model that earns next to nothing as it is
#   SFT, GRPO  overrides of one stage, for instance SFT="trainer.epochs=1"
#
# With a GPU it takes experiment=jira_h100x1, else jira_cpu. The same command goes on where a killed one was.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2; }
exec bash "$(dirname "${BASH_SOURCE[0]}")/../family_training/run.sh" jira "$@"
