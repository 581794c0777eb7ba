"""Time `skyrl-nat hardware` and `plan` as new processes, and exit with 1 where one is slower than 2 and 3 seconds.

usage: planning_speed.py [REPEATS]      (default: 3; the quickest of them counts)
"""

import subprocess
import sys
import time

LIMITS_S = {"hardware": 2.0, "plan experiment=agenthands_h100x8": 3.0, "plan experiment=smoke_cpu": 3.0}


def seconds(words: str) -> float:
    """Return how long a command takes from its start to its end."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "skyrl_nat.cli", *words.split()], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main(num_repeats: int) -> int:
    """Time all and print one line for each."""
    is_slow = False
    for words, limit_s in LIMITS_S.items():
        found = min(seconds(words) for _ in range(num_repeats))
        is_slow |= found > limit_s
        print(f"{words}: {found:.2f} s, at most {limit_s:g}")
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
