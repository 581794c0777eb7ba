"""Runs attacks against one profile and prints one JSON line for each: `attack_runner.py PROFILE [NAME ...]`."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from security.attacks import ATTACKS, run_attack
from security.host import Host
from security.process_attacks import MAX_PROCESSES

from skyrl_nat.config.environment import SandboxBackend, SandboxConfig
from skyrl_nat.sandbox.launch import BARE_PRELOAD
from skyrl_nat.sandbox.profiles import BACKENDS, try_out


def main(profile: str, names: list[str]) -> None:
    """Say first whether the profile holds here at all."""
    backend = BACKENDS[SandboxBackend(profile)]
    config = SandboxConfig(python=os.environ.get("SANDBOX_PYTHON", sys.executable), max_processes=MAX_PROCESSES)
    reason = try_out(backend, config)
    print(json.dumps({"attack": "", "held": not reason, "evidence": reason}), flush=True)
    if reason:
        return
    for name in names or ATTACKS:
        with Host() as host:
            sandbox = backend(config, preload=BARE_PRELOAD)
            try:
                held, evidence = run_attack(sandbox, ATTACKS[name], host)
            finally:
                sandbox.close()
        print(json.dumps({"attack": name, "held": held, "evidence": evidence}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
