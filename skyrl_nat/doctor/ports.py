"""Whether ports can be had: any free one, and those that the config names."""

import contextlib
import socket

from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check

LOOPBACK = "127.0.0.1"


def named_ports(config: RunConfig) -> dict[str, tuple[str, int]]:
    """Return host and port by config path, of those that this run will open."""
    tracking, rollout = config.tracking, config.rollout
    has_page = "prometheus" in tracking.backends and not tracking.prometheus_textfile
    wanted = {
        "tracking.prometheus_port": (LOOPBACK, tracking.prometheus_port if has_page else 0),
        "rollout.gateway_port": (rollout.gateway_host, rollout.gateway_port if rollout.harness else 0),
    }
    return {name: place for name, place in wanted.items() if place[1]}


def check_free_port(host: str = LOOPBACK) -> Check:
    """Return whether the system gives a port on the loopback address, and takes a connection there."""
    found = "one was opened and reached"
    try:
        with socket.create_server((host, 0)) as server:
            socket.create_connection(server.getsockname()[:2], timeout=5.0).close()
    except OSError as error:
        found = f"none: {error}"
    return Check(
        name=f"a free port on {host}",
        expected="can be opened and reached",
        found=found,
        is_ok=not found.startswith("none"),
        advice="Bring the loopback interface up; Ray and gloo start there",
        is_needed=True,
    )


def check_named_ports(places: dict[str, tuple[str, int]]) -> Check:
    """Return whether nobody else has the ports that a config names.

    Args:
        places: Host and port by config path.
    """
    taken = [f"{name}={place[1]}: {why}" for name, place in places.items() if (why := _why_taken(place))]
    names = ", ".join(f"{name}={port}" for name, (_, port) in places.items())
    return Check(
        name="ports that the config names",
        expected="free",
        found="; ".join(taken) or names or "it names none",
        is_ok=not taken,
        advice="End who listens there, or use 0 for any free port",
        is_needed=True,
    )


def _why_taken(place: tuple[str, int]) -> str:
    with contextlib.ExitStack() as opened:
        try:
            # With SO_REUSEADDR, as the servers themselves: a port that was just closed is free.
            opened.enter_context(socket.create_server(place))
        except OSError as error:
            return error.strerror or str(error)
    return ""
