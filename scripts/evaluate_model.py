"""Play held-out tasks with a model and write a report; the same as `skyrl-nat evaluate`, from a checkout.

usage: evaluate_model.py SUBJECT [--checkpoint latest] [--samples 0] [--out FOLDER] [key=value ...]

SUBJECT is the folder of a run, of a checkpoint, of a model or of a LoRA adapter, or a model's name.
"""

import sys

from skyrl_nat.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
