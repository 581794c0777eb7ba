"""Ray's head of this machine, for the jobs of one service: it outlives the service, and is found again.

It listens on the loopback address alone, on free ports, and answers only those who know a word that lies beside it.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

import psutil

from skyrl_nat.cluster.folders import ray_folder
from skyrl_nat.cluster.ray_settings import RAY_SETTINGS
from skyrl_nat.service.access import TOKEN_VARIABLE
from skyrl_nat.service.runner.backend import BackendError

NOTE = "ray.json"
OUTPUT = "ray.log"
START_S = 120.0
END_S = 20.0
LOOK_S = 0.2
ANSWER_S = 10.0
STOP_WAIT_S = 180
"""From SIGTERM to SIGKILL of a job: longer than a trainer takes to save and end, or to end itself."""
OBJECT_STORE_BYTES = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One that was started."""

    pid: int
    started: float
    """Of the process, so that another one with its number is not taken for it."""
    address: str
    """Of its dashboard."""
    word: str
    """What it must be told."""
    folder: str
    """Of Ray's own files."""


def find_head(state_dir: Path) -> Head | None:
    """Return the head that was started for this folder, if its process lives."""
    head = _noted(state_dir)
    return head if head is not None and _process(head) is not None else None


def start_head(state_dir: Path) -> Head:
    """Start a head in a session of its own, so that no signal for the service reaches it; it is not up yet.

    What is left of one before it goes: it was killed, or its service was before it could note it.
    """
    name = f"snt-{sha256(str(state_dir.resolve()).encode()).hexdigest()[:6]}-{secrets.token_hex(3)}"
    folder, word = ray_folder(name, os.environ), secrets.token_hex(32)
    _clear(state_dir, str(folder).rpartition("-")[0])
    folder.mkdir(mode=0o700)
    port, client_port = _free_ports(2)
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=0"),
        *("--node-ip-address=127.0.0.1", "--include-dashboard=true", "--dashboard-host=127.0.0.1"),
        *(f"--dashboard-port={port}", f"--ray-client-server-port={client_port}", "--dashboard-agent-listen-port=0"),
        *("--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"),
        *(f"--temp-dir={folder}", f"--object-store-memory={OBJECT_STORE_BYTES}"),
    ]
    with (state_dir / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command,
            env=_environment(os.environ, word),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    head = Head(
        pid=process.pid,
        started=psutil.Process(process.pid).create_time(),
        address=f"http://127.0.0.1:{port}",
        word=word,
        folder=str(folder),
    )
    # Noted before it is up: a service that is killed meanwhile finds it again.
    _write_private(state_dir / NOTE, json.dumps(asdict(head)))
    return head


def wait_until_up(head: Head, output: Path, timeout_s: float = START_S) -> None:
    """Return when a head answers.

    Raises:
        BackendError: It has ended, or does not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with suppress(OSError, ValueError):
            ask(head.address, "/api/version", head.word)
            return
        if _process(head) is None or time.monotonic() > deadline:
            text = output.read_text(errors="replace") if output.exists() else ""
            last = " / ".join(line.strip() for line in text.splitlines() if line.strip())[-400:]
            raise BackendError(f"Ray must come up within {timeout_s:g} s on this machine, it did not: {last}")
        time.sleep(LOOK_S)


def end_head(head: Head, state_dir: Path) -> None:
    """End a head with all that it has started, and forget it."""
    process = _process(head)
    if process is not None:
        _end_family(process)
    (state_dir / NOTE).unlink(missing_ok=True)
    _remove(Path(head.folder))


def ask(address: str, path: str, word: str) -> object:
    """Return what a dashboard answers to a GET.

    Raises:
        OSError: It does not answer.
        ValueError: It answers no JSON.
    """
    headers = {"Authorization": f"Bearer {word}"} if word else {}
    request = urllib.request.Request(f"{address.rstrip('/')}{path}", headers=headers)
    # Never through a proxy of the environment: it is this machine, or a cluster's own network.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=ANSWER_S) as found:
        return json.load(found)


def _noted(state_dir: Path) -> Head | None:
    try:
        return Head(**json.loads((state_dir / NOTE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _clear(state_dir: Path, prefix: str) -> None:
    """End this user's heads whose folder begins like this; remove their folders and that of the one that is noted."""
    head = _noted(state_dir)
    folders = set() if head is None else {head.folder}
    option = f"--temp-dir={prefix}-"
    for process in psutil.process_iter(["cmdline", "uids"]):
        found = [word.partition("=")[2] for word in process.info["cmdline"] or () if word.startswith(option)]
        if found and process.info["uids"].real == os.getuid():
            folders.update(found)
            _end_family(process)
    for folder in folders:
        _remove(Path(folder))


def _end_family(process: psutil.Process) -> None:
    with suppress(psutil.Error):
        family = [*process.children(recursive=True), process]
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(family, END_S)
        for each in alive:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(alive, END_S)


def _environment(own: Mapping[str, str], word: str) -> dict[str, str]:
    """Return what a head, and so every job, sees: nothing of the service's own token."""
    package = str(Path(__file__).resolve().parents[3])
    paths = [package, *filter(None, own.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **RAY_SETTINGS,
        **{name: value for name, value in own.items() if name not in (TOKEN_VARIABLE, "RAY_ADDRESS")},
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": word,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_enable_metrics_collection": "0",
        "AUTOSCALER_METRIC_PORT": "-1",
        "DASHBOARD_METRIC_PORT": "-1",
        "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S),
    }


def _process(head: Head) -> psutil.Process | None:
    try:
        process = psutil.Process(head.pid)
        is_same = process.create_time() == head.started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return process if is_same else None


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _write_private(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + END_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
