"""Hold `skyrl-nat plan` against what was measured: each result is predicted from its own overrides.

usage: python benchmarks/plan_against_reality.py [--check]

Writes `results/plan_against_reality.json` and the table in README.md; `--check` writes nothing and exits with 1 where
they are not what the code says. A plan knows no lengths, so that those of the result are given to it where it has them
(of P8 the turns; its random model ends a turn once in 217 tokens). A result that set a constant of `planning/rates.py`
or `memory.py` is marked: that it agrees shows little.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planned import plan, story

from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.hardware import Cpu, cpu_machine
from skyrl_nat.planning.memory import CONTEXT_GIB
from skyrl_nat.planning.plan import Setting
from skyrl_nat.planning.rates import Machine, machine_of
from skyrl_nat.planning.roofline import Roofline
from skyrl_nat.planning.workload import guess_workload

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE / "results", HERE / "README.md"
OUTPUT = RESULTS / "plan_against_reality.json"
BEGIN, END = "<!-- plan -->", "<!-- end of plan -->"
BARS = {"step": 0.25, "memory": 0.15, "push": 0.25}
"""By how much a prediction may be off."""
LEFT_OUT = ("model.path", "environment", "name=", "root_dir", "rollout.harness", "rollout.stop")
"""What needs files of the machine that measured, and changes no prediction."""
MODELS = {"smollm2": "smollm2-135m", "q15": "qwen2.5-1.5b", "q7": "qwen2.5-7b"}
VERDICT_S = 1.8
"""Of a full check: validator_speed.json."""
CPU = Cpu(model="2 cores", num_cores=2, num_cores_of_machine=2, ghz=2.6, vectors=("AMX", "AVX-512", "AVX2"))
"""The machine on which the CPU presets were measured."""
CPU_STEP = [
    "trainer.tasks_per_step=4",
    "trainer.rollouts_per_task=4",
    "rollout.max_new_tokens=64",
    "rollout.max_total_tokens=256",
    "rollout.max_turns=1",
]
"""What cpu_step.json says of its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured run."""

    name: str
    file: str
    overrides: list[str]
    model: str
    machine: Machine
    lengths: dict[str, float]
    measured: dict[str, float]
    """By quantity, a key of `BARS`; parts of a step by their names."""
    sets: tuple[str, ...] = ()
    """Quantities that constants were taken from."""
    note: str = ""
    is_trainer_alone: bool = False
    parts: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds measured by stage."""


def load(name: str) -> Any:
    """Return a result file's content."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def model_of(overrides: list[str]) -> str:
    """Return the known size that a run's model folder holds."""
    path = next(text for text in reversed(overrides) if text.startswith("model.path="))
    return next(size for mark, size in MODELS.items() if mark in path.rpartition("/")[2])


def parts_of(run: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of the stages that are predicted."""
    return {name: run[name] for name in ("rollout", "train", "push") if name in run}


def trainer_cases() -> Iterator[Case]:
    """Yield P3."""
    for path in sorted(RESULTS.glob("P3-*.json")):
        raw = load(path.name)["raw"]
        is_first = "2026-11-28-h200.json" in path.name
        for size in raw["sizes"]:
            tokens, length = size["tokens"], raw["length"]
            batch = [f"trainer.micro_batch_tokens={tokens}", f"trainer.tasks_per_step={tokens // length // 2}"]
            yield Case(
                name=f"P3 {tokens:,} tokens",
                file=path.name,
                overrides=[*raw["overrides"], *batch, "trainer.rollouts_per_task=2"],
                model="qwen2.5-1.5b",
                machine=machine_of("h200"),
                lengths={"prompt_tokens": 0, "sampled_tokens": length, "longest_tokens": length, "spread": 0},
                measured={"step": size["step_s"], "memory": size["peak_gib"]},
                sets=() if is_first else ("step", "memory"),
                note="trainer alone; memory as torch allocates it",
                is_trainer_alone=True,
            )


def story_cases() -> Iterator[Case]:
    """Yield P1 and P2."""
    for name in ("P1-2026-11-29-h200.json", "P1-2026-11-30-h200.json"):
        for number, found in load(name)["raw"]["ours"].items():
            is_set = "11-30" in name
            yield story_case(f"P1 {number} engines", name, found["overrides"], found["run"], is_set=is_set)
    for name in ("P2-2026-11-29-h200-smollm2.json", "P2-2026-11-30-h200-qwen2.5-1.5b.json"):
        raw = load(name)["raw"]
        yield story_case("P2", name, raw["overrides"], raw["ours"], is_set="smollm2" in name)


def story_case(name: str, file: str, overrides: list[str], run: dict[str, Any], *, is_set: bool) -> Case:
    """Return a run on the story family with limits of 256 tokens."""
    return Case(
        name=name,
        file=file,
        overrides=overrides,
        model=model_of(overrides),
        machine=machine_of("h100" if "h100" in file else "h200"),
        lengths=story(run["completion_tokens"], spread=0.0 if run["completion_tokens"] > 254 else 0.2),
        measured={"step": run["step"]},
        parts=parts_of(run),
        sets=("step",) if is_set else (),
    )


def push_cases() -> Iterator[Case]:
    """Yield P4."""
    for name, key in (("P4-2026-11-29-h200.json", "colocated"), ("P4-2026-11-29-2xh200.json", "apart")):
        found = load(name)["raw"][key]
        yield Case(
            name=f"P4 {key}",
            file=name,
            overrides=found["overrides"],
            model=model_of(found["overrides"]),
            machine=machine_of("h200"),
            lengths=story(64, longest=64),
            measured={"push": found["median_s"]},
            sets=("push",),
        )


def apart_cases() -> Iterator[Case]:
    """Yield P5, P7 and P8."""
    name = "P5-2026-11-30-2xh200.json"
    for key, found in load(name)["raw"]["variants"].items():
        yield Case(
            name=f"P5 {key}",
            file=name,
            overrides=found["overrides"],
            model=model_of(found["overrides"]),
            machine=machine_of("h200"),
            lengths=story(found["trained_mean_tokens"], longest=found["planned_longest_tokens"], spread=1.0),
            measured={"step": found["step_mean_s"]},
            parts=parts_of(found["parts_s"]),
            sets=("step",) if key == "s0" else (),
        )
    name = "P7-2026-11-30-2xh200.json"
    raw = load(name)["raw"]
    median = {key.removeprefix("time/").removesuffix("_s"): value for key, value in raw["median_s"].items()}
    yield Case(
        name="P7",
        file=name,
        overrides=raw["overrides"],
        model=model_of(raw["overrides"]),
        machine=machine_of("h200"),
        lengths=story(raw["completion_tokens"][-1], longest=4096, spread=0.0),
        measured={"step": median["step"], "memory": max(max(cards) for cards in raw["step_peaks_gib"])},
        parts=parts_of(median),
        note="memory as nvidia-smi says it; set the size of a context (1 GiB)",
    )
    name = "P8-2026-11-30-2xh200.json"
    raw = load(name)["raw"]
    turns = sum(step["turns/mean"] for step in raw["rollouts"][1:]) / len(raw["rollouts"][1:])
    yield Case(
        name="P8",
        file=name,
        overrides=raw["overrides"],
        model=model_of(raw["overrides"]),
        machine=machine_of("h200"),
        lengths={
            "prompt_tokens": 1646,
            "sampled_tokens": 217 * turns,
            "longest_tokens": 6500,
            "turns": turns,
            "verdict_s": VERDICT_S,
        },
        measured={"step": raw["median_s"]["step"]},
        parts=parts_of(raw["median_s"]),
        note="replies of the environment are not recorded",
    )


def cpu_cases() -> Iterator[Case]:
    """Yield the CPU presets, and the measurement that set a CPU's constants."""
    machine = cpu_machine(CPU, 23.5)
    found = load("cpu_step.json")["results"]["hf"]
    yield Case(
        name="CPU step",
        file="cpu_step.json",
        overrides=CPU_STEP,
        model="smollm2-135m",
        machine=machine,
        lengths=story(found["completion_tokens"], longest=64, spread=0.0),
        measured={"step": found["step"]},
        parts=parts_of(found),
        sets=("step",),
    )
    for path in sorted(RESULTS.glob("cpu_preset_*.json")):
        found = load(path.name)
        config = load_config(found["overrides"])
        means = found["means"]
        guessed = guess_workload(config)
        sampled = means["rollout/completion_tokens/mean"]
        turns = means["rollout/turns/mean"]
        rollouts = config.trainer.tasks_per_step * config.trainer.rollouts_per_task
        replies = max(0.0, means["pack/num_tokens"] / rollouts - guessed.prompt_tokens - sampled)
        yield Case(
            name=f"CPU {found['preset']}",
            file=path.name,
            overrides=found["overrides"],
            model="smollm2-135m",
            machine=machine,
            lengths={
                "prompt_tokens": guessed.prompt_tokens,
                "sampled_tokens": sampled,
                "longest_tokens": max(sampled, min(guessed.longest_tokens, turns * config.rollout.max_new_tokens)),
                "observation_tokens": replies,
                "turns": turns,
                "verdict_s": guessed.verdict_s,
            },
            measured={"step": found["parts_s"]["step"], "memory": found["peak_gib"]},
            parts=parts_of(found["parts_s"]),
            sets=("memory",) if found["preset"] == "smoke_cpu" else (),
            note="memory of all processes",
        )


def cases() -> list[Case]:
    """Return all of them."""
    every = (trainer_cases, story_cases, push_cases, apart_cases, cpu_cases)
    return [case for part in every for case in part()]


def predict(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Return what a plan says, by quantity and by stage."""
    config = load_config([text for text in case.overrides if not text.startswith(LEFT_OUT)])
    config.environment.family = "nat_agent" if case.name == "P8" else config.environment.family
    setting, found = plan(config, case.model, case.machine, case.lengths)
    stages = {"rollout": found.seconds.rollout, "train": found.seconds.train, "push": found.seconds.push}
    if case.is_trainer_alone:
        return {"step": compute_s(config, setting), "memory": alone_gib(found)}, {}
    return {"step": found.seconds.step, "push": found.seconds.push, "memory": found.peak_gib}, stages


def compute_s(config: RunConfig, setting: Setting) -> float:
    """Return the seconds of the trainer alone."""
    return Roofline(config, setting.decoder, setting.machine, setting.workload).compute_s()


def alone_gib(found: Any) -> float:
    """Return what the trainer's own tensors take, without context and sleeping engine."""
    parts = found.gpus.training.parts
    return sum(size for name, size in parts.items() if name != "engine work space") - CONTEXT_GIB


def rows() -> list[dict[str, Any]]:
    """Return one row for each measured quantity."""
    table = []
    for case in cases():
        predicted, stages = predict(case)
        for quantity, measured in case.measured.items():
            ratio = predicted[quantity] / measured
            table.append(
                {
                    "case": case.name,
                    "quantity": f"{quantity}, {'GiB' if quantity == 'memory' else 's'}",
                    "predicted": round(predicted[quantity], 3),
                    "measured": round(measured, 3),
                    "ratio": round(ratio, 3),
                    "bar": BARS[quantity],
                    "met": abs(ratio - 1) <= BARS[quantity],
                    "set_a_constant": quantity in case.sets,
                    "note": case.note,
                    "file": case.file,
                    "stages": {
                        name: {"predicted": round(stages[name], 2), "measured": round(seconds, 2)}
                        for name, seconds in case.parts.items()
                    }
                    if quantity == "step"
                    else {},
                }
            )
    return table


def render(page: str, table: list[dict[str, Any]]) -> str:
    """Return a page with a new table between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    head = ("case", "quantity", "predicted", "measured", "ratio", "within", "met", "set a constant", "stages", "note")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in table:
        stages = ", ".join(
            f"{name} {each['predicted']:.3g} for {each['measured']:.3g}" for name, each in row["stages"].items()
        )
        cells = (
            row["case"],
            row["quantity"],
            f"{row['predicted']:.3g}",
            f"{row['measured']:.3g}",
            f"{row['ratio']:.2f}",
            f"{row['bar']:.0%}",
            "yes" if row["met"] else "**no**",
            "yes" if row["set_a_constant"] else "",
            stages,
            row["note"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    held_out = [row for row in table if not row["set_a_constant"]]
    met = sum(row["met"] for row in held_out)
    lines += ["", f"Of {len(held_out)} figures that set no constant {met} are within their bar."]
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"


def main() -> int:
    """Write table and page, or compare."""
    table = rows()
    text = json.dumps({"predictions": table}, indent=1) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    rendered = render(page, table)
    if "--check" in sys.argv[1:]:
        return int(OUTPUT.read_text(encoding="utf-8") != text or page != rendered)
    OUTPUT.write_text(text, encoding="utf-8")
    PAGE.write_text(rendered, encoding="utf-8")
    for row in table:
        print(
            f"{row['case']:24} {row['quantity']:12} {row['predicted']:9.2f} {row['measured']:9.2f} {row['ratio']:6.2f} "
            f"{'met' if row['met'] else 'MISSED':7}{'set' if row['set_a_constant'] else '':4} {row['file']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
