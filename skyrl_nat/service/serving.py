"""The service as a process: one for each root folder, on the loopback address unless it is told otherwise."""

import fcntl
import ipaddress
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn

from skyrl_nat.errors import ConfigError
from skyrl_nat.service.app import create_app
from skyrl_nat.service.protocol import protocol_within
from skyrl_nat.service.settings import ServiceSettings

MAX_HEADER_BYTES = 64 * 1024
END_S = 3
"""For requests that run when the service is told to end; events would go on for ever."""


def serve(settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT; jobs that run go on, and are found again by the next start.

    Raises:
        ConfigError: Another service has the folder, or the address is taken.
    """
    with _alone(settings):
        listening = _listen(settings)
        config = uvicorn.Config(
            create_app(settings),
            http=protocol_within(settings.limits),
            ws="none",
            log_level="info",
            # Addresses may hold the token.
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=settings.limits.max_connections,
            timeout_graceful_shutdown=END_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        # Uvicorn raises what it was told again once it has ended in order, which is no fault.
        signal.signal(signal.SIGTERM, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _listen(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--host and --port must be free on this machine, {settings.host}:{settings.port} is not: {error}. "
            "Choose another port"
        ) from error
    listening.set_inheritable(False)
    return listening


@contextmanager
def _alone(settings: ServiceSettings) -> Iterator[None]:
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(settings.state_dir / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(
            f"--root-dir must have one service at a time, another one serves {settings.root_dir}. End that first"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)
