"""Refuse a wheel that lacks a tracked file of the package or of conf/, or that holds anything else.

usage: wheel_contents.py WHEEL
"""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, CONF = "skyrl_nat/", "conf/"


def expected() -> set[str]:
    """Return the wheel's paths of all files that git knows."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", PACKAGE, CONF], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return {f"{PACKAGE}{name}" if name.startswith(CONF) else name for name in listed if name}


def faults_of(names: list[str], wanted: set[str]) -> list[str]:
    """Return what is wrong with a wheel's list of files, one line each."""
    held = {name for name in names if ".dist-info/" not in name}
    faults = [f"it must hold {name}, which is not there" for name in sorted(wanted - held)]
    faults += [f"it must hold tracked files alone, but has {name}" for name in sorted(held - wanted)]
    if len(held) != sum(".dist-info/" not in name for name in names):
        faults.append("it must hold every file once, but has some twice")
    if not any(name.endswith(".dist-info/entry_points.txt") for name in names):
        faults.append("it must have the command skyrl-nat, but has no entry_points.txt")
    return faults


def main(arguments: list[str]) -> int:
    """Check one wheel."""
    with zipfile.ZipFile(arguments[0]) as wheel:
        names = wheel.namelist()
    faults = faults_of(names, expected())
    print(
        "\n".join(f"{arguments[0]}: {fault}" for fault in faults) or f"wheel: {len(names)} files, all that are needed"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
