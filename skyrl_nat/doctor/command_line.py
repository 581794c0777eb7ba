"""The command that examines: doctor; imports late."""

import argparse
import sys
from pathlib import Path
from typing import Any

from skyrl_nat.errors import ConfigError, StoppedError


def add_commands(commands: Any) -> None:
    """Add `doctor` to the subparsers of `skyrl-nat`."""
    doctor = commands.add_parser(
        "doctor", help="check machine, sandbox, data, rewards, model and engines of a config; trains nothing"
    )
    doctor.add_argument(
        "--only",
        metavar="SECTIONS",
        help="some of environment,cluster,sandbox,data,template,rewards,engine; default: all",
    )
    doctor.add_argument("--json", type=Path, metavar="FILE", help="write the table there too, as JSON")
    doctor.add_argument("overrides", nargs="*", help="as for train")
    doctor.set_defaults(function=_doctor, goes_on="the same command")


def _doctor(options: argparse.Namespace) -> None:
    from skyrl_nat.config.load import load_config
    from skyrl_nat.doctor.examination import Section, examine_sections
    from skyrl_nat.doctor.report import print_table, progress_line, write_json, wrong_names
    from skyrl_nat.doctor.sections import Sections

    names = options.only.split(",") if options.only else list(Section)
    unknown = [name for name in names if name not in list(Section)]
    if unknown:
        raise ConfigError(f"--only must name some of {', '.join(Section)}, got {unknown[0]!r}. Correct it")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise ConfigError(f"--json must be a file in a folder that exists, got {options.json}. Make its folder")
    sections = Sections(load_config(options.overrides))
    try:
        parts = examine_sections(
            sections.chosen([Section(name) for name in names]),
            lambda part: print(progress_line(part), file=sys.stderr, flush=True),
        )
    finally:
        sections.close()
    print_table(parts)
    if options.json is not None:
        write_json(parts, options.json)
    if wrong := wrong_names(parts):
        number = sum(len(part.checks) for part in parts)
        raise StoppedError(f"All {number} checks must hold, {len(wrong)} failed: {'; '.join(wrong)}. See the table")
