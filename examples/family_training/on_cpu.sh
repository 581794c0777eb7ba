#!/usr/bin/env bash
# Train on a CPU with nothing downloaded: a model of two million random weights imitates reference dialogues until it
# earns something, GRPO takes it from there, and paired tests on held-out tasks say whether it gained (results.json).
#
#   usage: bash examples/family_training/on_cpu.sh FAMILY OUT [--minutes M] [hydra overrides]
#
#   FAMILY     jira or task_dag (plans of difficulty 1 and 2)
#   OUT        folder to make; the model that is begun with is OUT/model
#   SFT, GRPO  overrides of one stage, in the place of those below
#   EPISODES   a file of dialogues to imitate, in the place of those that the family's careless_plans.py writes
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10p' "${BASH_SOURCE[0]}" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
family=$1 out=$2
shift 2
python=python3
[ ! -x "$root/.venv/bin/python" ] || python=$root/.venv/bin/python
export CUDA_VISIBLE_DEVICES="" PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# Of so careless dialogues that much is left to gain.
export EPISODES=${EPISODES:-$out/careless_plans.jsonl}
case "$family" in
  jira)
    [ -e "$EPISODES" ] || "$python" "$root/examples/jira_workflow/careless_plans.py" "$EPISODES"
    SFT=${SFT:-trainer.steps=180 trainer.tasks_per_step=16 optimizer.lr=1e-3}
    GRPO=${GRPO:-trainer.steps=60 trainer.tasks_per_step=16 optimizer.lr=1e-4}
    ;;
  task_dag)
    # Its held-out requests are of domains whose words the model has read.
    held_out=$out/held_out.parquet
    [ -e "$EPISODES" ] && [ -e "$held_out" ] ||
      "$python" "$root/examples/task_decomposition/careless_plans.py" "$out/careless_plans.jsonl" "$held_out"
    set -- "environment.validation_files=[\"$held_out\"]" "$@"
    SFT=${SFT:-trainer.steps=600 trainer.tasks_per_step=16 optimizer.lr=2e-3}
    GRPO=${GRPO:-trainer.steps=60 trainer.tasks_per_step=16 optimizer.lr=1e-4}
    ;;
esac
export SFT GRPO
[ -e "$out/model/model.safetensors" ] || "$python" "$here/family_model.py" "$family" "$out/model"
exec "$python" "$here/stages.py" "$family" "$out" "$out/model" --imitate "experiment=${family}_tiny_cpu" "$@"
