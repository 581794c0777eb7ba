"""Serve a trained policy, or let it create NAT agents; the same as `skyrl-nat deploy`, from a checkout.

usage: deploy_trained.py serve SUBJECT [--checkpoint latest] [--folder deployment] [key=value ...]
       deploy_trained.py agents SUBJECT [--port 8080] [...]
       deploy_trained.py create SUBJECT --request TEXT [...]
       deploy_trained.py flag FOLDER --percent 10
       deploy_trained.py feedback FOLDER TRACES

SUBJECT is the folder of a run, of a checkpoint, of a model or of a LoRA adapter, or a GGUF file.
"""

import sys

from skyrl_nat.cli import main

if __name__ == "__main__":
    sys.exit(main(["deploy", *sys.argv[1:]]))
