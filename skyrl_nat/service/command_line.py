"""The command `serve`; imports late."""

import argparse
import sys
from pathlib import Path
from typing import Any

from skyrl_nat.errors import ConfigError

LOOPBACK = "127.0.0.1"


def add_commands(commands: Any) -> None:
    """Add `serve` to the subparsers of `skyrl-nat`."""
    serve = commands.add_parser("serve", help="take training jobs over HTTP and run them in Ray, see docs/service.md")
    serve.add_argument("--root-dir", type=Path, default=Path("runs"), help="folder of all run folders")
    serve.add_argument("--host", help=f"address to listen on; default: {LOOPBACK}, which only this machine reaches")
    serve.add_argument("--port", type=int, default=8700)
    serve.add_argument("--token-file", type=Path, help="default: ROOT_DIR/.service/token, made where it is missing")
    serve.add_argument("--max-running", type=int, default=2, help="jobs that train at once; the others wait")
    serve.add_argument("--ray-address", default="", help="dashboard of a running cluster; default: Ray on this machine")
    serve.add_argument("overrides", nargs="*", help="config overrides of every job, e.g. model.path=FOLDER")
    serve.set_defaults(function=_serve, goes_on="the same command")


def _serve(options: argparse.Namespace) -> None:
    from skyrl_nat.config.load import load_config
    from skyrl_nat.service.access import TOKEN_VARIABLE, read_token
    from skyrl_nat.service.serving import is_loopback, serve
    from skyrl_nat.service.settings import STATE_FOLDER, ServiceSettings

    if not 0 < options.port < 2**16:
        raise ConfigError(f"--port must be in 1..65535, got {options.port}. The default is 8700")
    if options.max_running < 1:
        raise ConfigError(f"--max-running must be at least 1, got {options.max_running}. The default is 2")
    load_config(options.overrides)
    root = options.root_dir.expanduser().resolve()
    (root / STATE_FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
    file = options.token_file or root / STATE_FOLDER / "token"
    token, is_made = read_token(file)
    if is_made:
        _say(
            f"a token was made: {file}. Clients send it as `Authorization: Bearer TOKEN`, or it comes from the "
            f"variable {TOKEN_VARIABLE}"
        )
    host = options.host or LOOPBACK
    if not is_loopback(host):
        _say(
            f"warning: {host} can be reached from other machines, and whoever knows the token runs code as this "
            "user. There is no TLS: put a proxy with TLS before it"
        )
    settings = ServiceSettings(
        root_dir=root,
        token=token,
        host=host,
        port=options.port,
        max_running=options.max_running,
        ray_address=options.ray_address,
        overrides=tuple(options.overrides),
    )
    _say(f"http://{host}:{options.port} serves {root}")
    serve(settings)


def _say(text: str) -> None:
    print(f"skyrl-nat: {text}", file=sys.stderr, flush=True)
