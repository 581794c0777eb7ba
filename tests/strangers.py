"""Calls of somebody who may not know the word of a Ray cluster: every method of gRPC, plain HTTP, torch's store."""

import concurrent.futures
import datetime
import pkgutil
import re
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import grpc
import ray.core.generated
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

CALL_S = 5.0
AT_ONCE = 16
REFUSED = "UNAUTHENTICATED"
NOT_THERE = "UNIMPLEMENTED"
"""The server does not have the method."""
NO_GRPC = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
"""What listens speaks something else."""
WITHOUT_STUB = (
    "/ray.rpc.ObjectManagerService/Push",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.syncer.RaySyncer/StartSync",
)
OF_GRPC = (
    "/grpc.health.v1.Health/Check",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/grpc.channelz.v1.Channelz/GetServers",
)
"""What gRPC's own services answer to everyone: alive, names of services, addresses and counts of connections."""
NODE = ("node_id", "ab" * 28)
"""Ray 2.60 reads it before it asks for the word: `StartSync` without it ends `gcs_server`, see docs/security.md."""
LIST_SERVICES = b"\x3a\x01*"
METHOD = re.compile(r"'(/ray\.rpc\.[\w.]+/\w+)'")
SERVICE = re.compile(rb"ray\.rpc\.[\w.]+")
PATHS = (
    ("GET", "/"),
    ("GET", "/metrics"),
    ("GET", "/logs"),
    ("GET", "/api/healthz"),
    ("GET", "/api/local_raylet_healthz"),
    ("POST", "/api/job_agent/jobs/"),
    ("POST", "/get_or_create_runtime_env"),
    ("POST", "/delete_runtime_env_if_possible"),
)


class Channel:
    """A connection to one address, with or without the word."""

    def __init__(self, address: str, word: str = "") -> None:
        """Connect at the first call."""
        self._channel = grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        self._metadata = [NODE, *([("authorization", f"Bearer {word}")] if word else [])]

    def call(self, method: str, message: bytes = b"") -> tuple[str, bytes]:
        """Call a method; return the code and the first answer."""
        call = self._channel.stream_stream(method)(iter([message]), timeout=CALL_S, metadata=self._metadata)
        try:
            return "OK", next(call, b"")
        except grpc.RpcError as error:
            return call.code().name, str(error).encode()
        finally:
            call.cancel()

    def close(self) -> None:
        """Disconnect."""
        self._channel.close()


def methods() -> list[str]:
    """Return the name of every gRPC method of the installed Ray, and of what gRPC itself brings along."""
    return [*sorted(set(_with_stub())), *WITHOUT_STUB, *OF_GRPC]


def _with_stub() -> Iterator[str]:
    for folder in ray.core.generated.__path__:
        for module in pkgutil.iter_modules([folder]):
            if module.name.endswith("_pb2_grpc"):
                yield from METHOD.findall((Path(folder) / f"{module.name}.py").read_text(encoding="utf-8"))


def grpc_answers(address: str) -> dict[str, set[str]]:
    """Call every method with an empty message and no word; return the methods by code, empty where no gRPC is spoken.

    A service that the server itself names and whose methods are not known here would be missing: it is an error.
    """
    channel = Channel(address)
    try:
        found: dict[str, set[str]] = {}
        if channel.call(WITHOUT_STUB[0])[0] in NO_GRPC:
            return {}
        names = methods()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for method, (code, _) in zip(names, pool.map(channel.call, names), strict=True):
                found.setdefault(code, set()).add(method)
        _, services = channel.call(OF_GRPC[1], LIST_SERVICES)
    finally:
        channel.close()
    known = {method.split("/")[1] for method in names}
    named = {name.decode() for name in SERVICE.findall(services)}
    assert named <= known, f"{address} has services that were not called: {named - known}"
    return found


def http_answers(address: str) -> dict[int, set[str]]:
    """Call paths of Ray's agents without the word; return them by status, empty where no HTTP is spoken."""
    found: dict[int, set[str]] = {}
    for method, path in PATHS:
        connection = HTTPConnection(address, timeout=CALL_S)
        try:
            connection.request(method, path)
            found.setdefault(connection.getresponse().status, set()).add(path)
        except (OSError, HTTPException):
            return {}
        finally:
            connection.close()
    return found


def is_store(address: str) -> bool:
    """Return whether torch's key-value store is there, which asks nobody for anything."""
    host, port = address.rsplit(":", 1)
    limit = datetime.timedelta(seconds=CALL_S)
    try:
        store = TCPStore(host, int(port), is_master=False, timeout=limit, wait_for_workers=False)
        return store.num_keys() > 0
    except (RuntimeError, ValueError):
        return False
