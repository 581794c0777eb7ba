"""Evaluate the model that a config trains, before any training.

usage: collect_baseline.py FOLDER [--samples 0] [key=value ...]

The overrides are those of training, e.g. experiment=agenthands_h100x1. FOLDER gets the report, and is what
`compare_baseline_trained.py` compares with.
"""

import sys

from skyrl_nat.cli import main
from skyrl_nat.config.load import load_config
from skyrl_nat.errors import ConfigError


def baseline_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments of `skyrl-nat evaluate`.

    Raises:
        ConfigError: The overrides are no config.
    """
    folder, *rest = arguments
    overrides = [text for text in rest if "=" in text and not text.startswith("-")]
    return ["evaluate", load_config(overrides).model.path, "--out", folder, *rest]


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        chosen = baseline_arguments(sys.argv[1:])
    except ConfigError as error:
        print(f"collect_baseline: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(chosen))
