"""Prepare a data set; the same as `skyrl-nat prepare`, see its `--help`."""

import sys

from skyrl_nat.cli import main

if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]]))
