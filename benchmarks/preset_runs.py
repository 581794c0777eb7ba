"""Short runs of every algorithm preset on the story family, all weights and LoRA, and whether any alarm sounds.

usage: python benchmarks/preset_runs.py MODEL_FOLDER --output FILE [--steps 20] [--presets grpo dapo ...]
       [--forms full lora] [--streams 2] [--limit-s 240] [OVERRIDES ...]

A run fails where it does not end with 0 or counts an alarm at any step; after each push the engine's weights are
compared with the policy's by checksum. A first run of grpo writes the rollouts on which kto, sft and offline_grpo
learn. `--streams` runs go on at once, each with an engine of its own on the card.
"""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from bars import attempt, parse, write_result
from story_run import layout, story_overrides, train

PRESETS = sorted(path.stem for path in (Path(__file__).parents[1] / "conf" / "algorithm").glob("*.yaml"))
OFFLINE = ("kto", "offline_grpo", "sft")
FORMS = {"full": ["optimizer.lr=1e-6"], "lora": ["model.lora.rank=16", "optimizer.lr=2e-5"]}
SMALL = (
    "trainer.tasks_per_step=16",
    "trainer.rollouts_per_task=8",
    "trainer.micro_batch_tokens=16384",
    "rollout.max_new_tokens=64",
    "rollout.max_total_tokens=320",
    "engine.max_num_seqs=128",
    "weight_sync.verify_checksums=true",
)
SHARED_GPU = (
    "engine.gpu_memory_fraction=0.15",
    "engine.extra.compilation_config.cudagraph_capture_sizes=[1,2,4,8,16,32,64,128]",
    # Engines that profile the card's memory stop where another process frees some meanwhile.
    f"+engine.extra.kv_cache_memory_bytes={2 * 2**30}",
    # And those that sleep, where another one takes some.
    "engine.sleep=false",
)
LAST = ("rollout/reward/mean", "loss/total", "loss/grad_norm", "batch/first_logprob_diff", "batch/no_signal_groups")


RECORDING = "recording"


def run_preset(
    preset: str, form: str, folder: Path, options: argparse.Namespace, overrides: list[str], *, name: str = ""
) -> dict[str, Any]:
    """Run one preset in one form; offline ones learn from the run named `RECORDING`."""
    name = name or f"{preset}-{form}"
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    recorded = [str(path) for path in sorted(folder.glob(f"{RECORDING}/{RECORDING}/rollouts/train_*.jsonl"))]
    chosen = [
        *layout(num_gpus=1),
        *SMALL,
        *(SHARED_GPU if torch.cuda.is_available() else ()),
        f"model.path={options.model}",
        f"algorithm={preset}",
        *FORMS[form],
        *([f"environment.recorded_files=[{','.join(recorded)}]"] if preset in OFFLINE else []),
        *overrides,
        *story_overrides(name, home, options.steps),
    ]
    run = train(home / name, chosen, options.limit_s)
    return {**_summary(run, options.steps), "preset": preset, "form": form}


def _summary(run: Any, num_steps: int) -> dict[str, Any]:
    """Return one row of the result."""
    counts = [step["alarm/count"] for step in run.steps]
    last = run.steps[-1] if run.steps else {}
    return {
        "is_ok": not run.error and len(counts) == num_steps and not any(counts),
        "error": run.error,
        "num_steps": len(counts),
        "steps_with_alarm": sum(count > 0 for count in counts),
        "alarms": sorted({line.split(": ", 1)[-1][:160] for line in run.alarms})[:6],
        "last": {name: last.get(name) for name in LAST},
    }


def write(path: Path, raw: dict[str, Any], num_runs: int) -> None:
    """Write what is known so far; a run that is not over has not gone well."""
    raw["runs"].sort(key=lambda row: (row.get("preset", ""), row.get("form", "")))
    failed = num_runs - sum(bool(row.get("is_ok")) for row in raw["runs"])
    write_result(path, "presets", float(failed), "runs that failed", 0.0, is_met=failed == 0, raw=raw)


def main() -> int:
    """Run all and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=PRESETS)
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=240, help="of each run, its start included")
    options, overrides = parse(parser)
    raw: dict[str, Any] = {"steps": options.steps, "overrides": overrides, "runs": []}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.streams) as pool:
        if set(options.presets) & set(OFFLINE):
            raw[RECORDING] = attempt(
                RECORDING,
                lambda: run_preset("grpo", "full", Path(folder), options, overrides, name=RECORDING),
            )
        runs = [
            pool.submit(
                attempt,
                f"{preset}-{form}",
                lambda preset=preset, form=form: run_preset(preset, form, Path(folder), options, overrides),
            )
            for preset in options.presets
            for form in options.forms
        ]
        for done in as_completed(runs):
            raw["runs"].append(done.result())
            write(options.output, raw, len(runs))  # after each, so that a time limit loses few
    return 0


if __name__ == "__main__":
    sys.exit(main())
