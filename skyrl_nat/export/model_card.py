"""README.md of what is exported: what it is, how good it is, and how it was tested."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.evaluate import EVALUATIONS
from skyrl_nat.evaluation.evaluator import EvaluationResult
from skyrl_nat.evaluation.statistics import wilson_interval
from skyrl_nat.export.equality import Comparison
from skyrl_nat.json_lines import whole_lines

USES = {
    "hf": "transformers, vLLM and `model.path=FOLDER` of another run",
    "merged": "transformers, vLLM and `model.path=FOLDER` of another run",
    "lora": "peft (`PeftModel.from_pretrained`) and vLLM (`--lora-modules NAME=FOLDER`), on its base model",
    "gguf": "llama.cpp and all that is built on it",
    "ollama": "Ollama: `ollama create NAME -f Modelfile.PROFILE` in this folder",
}


LIBRARIES = {"lora": "peft", "gguf": "gguf", "ollama": "gguf"}


def evaluation_of(run_dir: Path, step: int) -> EvaluationResult | None:
    """Return the newest recorded evaluation of a step of a run, None if it was never evaluated."""
    file = run_dir / EVALUATIONS
    lines = whole_lines(file.read_bytes(), file) if file.is_file() else []
    found = [data for line in lines if (data := json.loads(line))["step"] == step]
    return EvaluationResult.from_dict(found[-1]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What a card tells."""

    form: str
    """One of the formats."""
    name: str
    """Of the run or model."""
    step: int | None
    """Optimizer steps of a run; None of a model."""
    config: RunConfig
    evaluation: EvaluationResult | None
    """Of this step, if there is one."""
    prompts: str
    """Where the prompts of the test are from."""
    comparisons: Sequence[Comparison]
    """What the test found."""


def write_card(folder: Path, exported: Exported) -> None:
    """Write the card into the folder of an export."""
    config, step = exported.config, exported.step
    trained = "a model as it was" if step is None else f"step {step} of the run `{exported.name}`"
    lines = [
        "---",
        f"library_name: {LIBRARIES.get(exported.form, 'transformers')}",
        "tags: [skyrl-nat, grpo]",
        "---",
        f"# {exported.name}",
        "",
        f"Exported by skyrl-nat from {trained}. For {USES[exported.form]}.",
        "",
        f"* Base model: `{config.model.path}`",
    ]
    if step is not None:
        objective = f"`{config.algorithm.name}`, learning rate {config.optimizer.lr:g}"
        lines += [f"* Task family: `{config.environment.family}`", f"* Objective: {objective}"]
    lines += ["", "## Evaluation", "", *_evaluation(exported.evaluation)]
    lines += ["", "## Equality with the trainer", "", *_equality(exported.prompts, exported.comparisons), ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _evaluation(result: EvaluationResult | None) -> list[str]:
    if result is None:
        return ["This step was not evaluated."]
    judged = result.num_tasks - result.num_without_verdict
    if not judged:
        return [f"None of {result.num_tasks} held-out tasks got a verdict."]
    interval = wilson_interval(round(result.success * judged), judged)
    levels = [f"| {level} | {share:.1%} |" for level, share in sorted(result.success_by_difficulty.items())]
    return [
        f"Greedy play of {result.num_tasks} held-out tasks, {result.num_without_verdict} without a verdict: success "
        f"{result.success:.1%} (95 % interval {interval.low:.1%} to {interval.high:.1%}), mean reward "
        f"{result.reward:.3f}.",
        "",
        *(["| difficulty | success |", "| --- | --- |", *levels] if levels else []),
    ]


def _equality(prompts: str, comparisons: Sequence[Comparison]) -> list[str]:
    rows = [
        f"| {each.engine} | {each.num_places} | {each.agreement:.1%} (>= {each.tolerance.agreement:.0%}) | "
        f"{each.mean:.5f} (<= {each.tolerance.mean:g}) | {each.worst:.5f}"
        f"{'' if each.tolerance.worst is None else f' (<= {each.tolerance.worst:g})'} |"
        for each in comparisons
    ]
    return [
        f"Greedy tokens and their log-probs against the trainer's forward pass, on {prompts}; tolerances in brackets.",
        "",
        "| engine | tokens | same greedy token | mean difference (nats) | largest |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]
