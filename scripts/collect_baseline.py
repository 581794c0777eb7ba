"""Evaluate the model that a config trains, before any training.

usage: collect_baseline.py FOLDER [--samples 0] [key=value ...]

The overrides are those of training, e.g. experiment=agenthands_h100x1. FOLDER gets the report, and is what
`compare_baseline_trained.py` compares with. Exit code 3 where the success lies outside of
`environment.baseline_success`: the report is whole, but says little of what training could gain.
"""

import json
import sys
from pathlib import Path

from skyrl_nat.cli import main
from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.evaluation.folder import GREEDY
from skyrl_nat.evaluation.model_report import RESULT

INSANE = 3
"""Exit code."""


def baseline_arguments(arguments: list[str]) -> tuple[RunConfig, list[str]]:
    """Return the config, and the arguments of `skyrl-nat evaluate`.

    Raises:
        ConfigError: The overrides are no config.
    """
    folder, *rest = arguments
    config = load_config([text for text in rest if "=" in text and not text.startswith("-")])
    return config, ["evaluate", config.model.path, "--out", folder, *rest]


def insanity(folder: Path, bounds: list[float]) -> str:
    """Return why the baseline in a folder says little, empty where it does not."""
    success = json.loads((folder / RESULT).read_text(encoding="utf-8"))[GREEDY]["success"]["value"]
    low, high = bounds
    if success is not None and low <= success <= high:
        return ""
    found = "no verdict" if success is None else f"{success:.1%}"
    return (
        f"A baseline's success must be between {low:.0%} and {high:.0%} (environment.baseline_success), found {found}. "
        "Choose easier or harder tasks, or another model"
    )


def collect(arguments: list[str]) -> int:
    """Evaluate and judge; returns the exit code."""
    try:
        config, chosen = baseline_arguments(arguments)
    except ConfigError as error:
        print(f"collect_baseline: {error}", file=sys.stderr)
        return 2
    if code := main(chosen):
        return code
    if problem := insanity(Path(arguments[0]), config.environment.baseline_success):
        print(f"collect_baseline: {problem}", file=sys.stderr)
        return INSANE
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(collect(sys.argv[1:]))
