"""A real Prometheus on the loopback address, ended with the block; its programs come from Debian's package."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import debian

UP_S = 60.0


def programs(folder: Path) -> Path:
    """Return the folder of `prometheus` and `promtool`; who has neither and may not fetch them, skips.

    The package is unpacked, not installed: that would start a service.
    """
    if shutil.which("prometheus") and (found := shutil.which("promtool")):
        return Path(found).parent
    debian.unpack("Prometheus", "prometheus", folder)
    return folder / "usr" / "bin"


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Prometheus:
    """Asks a Prometheus that runs."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, text: str) -> list[dict[str, Any]]:
        """Return the series that a query has now."""
        return self.get("query", query=text)["result"]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"}


@contextlib.contextmanager
def running(programs: Path, folder: Path) -> Iterator[Prometheus]:
    """Have a Prometheus with the configuration in a folder."""
    port = free_port()
    log = (folder / "prometheus.log").open("w")
    process = subprocess.Popen(
        [
            str(programs / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        cwd=folder,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        server = Prometheus(port)
        wait_until(lambda: _is_ready(server, process), UP_S, "Prometheus answers")
        yield server
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def wait_until(holds: Callable[[], bool], limit_s: float, what: str) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.3)


def _is_ready(server: Prometheus, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "Prometheus has ended"
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5):
            return True
    except OSError:
        return False
