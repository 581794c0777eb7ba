"""The service on a real socket: clients that send slowly, or never read, cost nobody anything."""

import contextlib
import json
import socket
import threading
import time

import pytest
import uvicorn
from fastapi import Response
from fastapi.responses import StreamingResponse
from service_parts import BODY, SMALL, TOKEN, FakeBackend, settings, waiting

from skyrl_nat.errors import ConfigError
from skyrl_nat.service.app import create_app
from skyrl_nat.service.protocol import protocol_within
from skyrl_nat.service.serving import _alone, is_loopback
from skyrl_nat.service.store import JobStore, State

LARGE = 32 * 1024**2
"""More than the kernel keeps for a client that does not read."""
HEAD = f"POST /train/jira HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serving")
    own = settings(folder, limits=SMALL)
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(own, FakeBackend(), waiting)
    app.get("/whole")(lambda: Response(bytes(LARGE)))
    app.get("/pieces")(lambda: StreamingResponse(bytes(65536) for _ in range(LARGE // 65536)))
    config = uvicorn.Config(app, http=protocol_within(SMALL), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield listening.getsockname()[1], own
    server.should_exit = True
    thread.join(20)
    listening.close()


def connect(port, receive_bytes=None):
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    return client


def read_all(client):
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            found += part
    return found


def num_jobs(own):
    store = JobStore(own.database)
    try:
        return len(store.in_states(tuple(State)))
    finally:
        store.close()


@pytest.mark.parametrize("begun", ["", "P", "GET /health HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_headers_that_never_end_are_cut_off(server, begun):
    port, _ = server
    with connect(port) as client:
        client.sendall(begun.encode())
        started = time.monotonic()
        assert read_all(client) == b""
        assert 0.2 < time.monotonic() - started < 5


def test_headers_that_trickle_are_cut_off(server):
    """Each letter would put off a limit on silence."""
    port, _ = server
    started = time.monotonic()
    with connect(port) as client, contextlib.suppress(ConnectionError):
        for letter in "GET /health HTTP/1.1\r\nX-A: " + "a" * 1000:
            client.sendall(letter.encode())
            time.sleep(0.05)
    assert time.monotonic() - started < 10


def test_body_that_comes_slowly_is_refused_and_nothing_is_begun(server):
    port, own = server
    body = json.dumps(BODY)
    with connect(port) as client:
        client.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n{body[:-1]}".encode())
        found = read_all(client)
    assert found.startswith(b"HTTP/1.1 408")
    assert b'"code":"timeout"' in found
    assert num_jobs(own) == 0


def test_body_whose_client_goes_begins_nothing(server):
    port, own = server
    with connect(port) as client:
        client.sendall(f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())
    time.sleep(0.3)
    assert num_jobs(own) == 0


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("Content-Length: 3000\r\n", "", 413),
        ("Content-Length: 99999999999999999999\r\n", "", 413),
        ("Content-Length: -1\r\n", "", 400),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", "x", 400),
        ("Transfer-Encoding: chunked\r\n", "bb8\r\n" + " " * 3000 + "\r\n0\r\n\r\n", 413),
        ("Transfer-Encoding: chunked\r\n", "zz\r\n", 400),
        ("X: " + "y" * 100_000 + "\r\n", "", 400),
    ],
)
def test_body_or_header_that_is_too_large_or_broken_is_refused(server, head, body, status):
    """SV-01, below the app."""
    port, own = server
    with connect(port) as client:
        client.sendall(f"{HEAD}{head}\r\n{body}".encode())
        assert read_all(client).startswith(f"HTTP/1.1 {status}".encode())
    assert num_jobs(own) == 0


def ask_for_large(port, path, connection):
    client = connect(port, receive_bytes=2**18)
    client.sendall(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nConnection: {connection}\r\n\r\n".encode()
    )
    return client


LARGE_ANSWERS = pytest.mark.parametrize(
    ("path", "connection"), [("/whole", "keep-alive"), ("/whole", "close"), ("/pieces", "keep-alive")]
)


@LARGE_ANSWERS
def test_answer_that_is_taken_slowly_comes_whole(server, path, connection):
    """Longer than a client may be without a request."""
    port, _ = server
    with ask_for_large(port, path, connection) as client:
        size = 0
        for _ in range(12):
            size += len(client.recv(65536))
            time.sleep(0.1)
        assert size + len(read_all(client)) > LARGE


@LARGE_ANSWERS
def test_client_that_takes_nothing_of_its_answer_is_cut_off(server, path, connection):
    port, _ = server
    with ask_for_large(port, path, connection) as client:
        time.sleep(SMALL.send_timeout_s + 0.5)
        assert len(read_all(client)) < LARGE


def test_slow_clients_hold_up_nobody(server):
    port, _ = server
    slow = [connect(port) for _ in range(50)]
    for client in slow:
        client.sendall(b"GET /health HT")
    with connect(port) as quick:
        started = time.monotonic()
        quick.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_all(quick).startswith(b"HTTP/1.1 200")
        assert time.monotonic() - started < 5
    for client in slow:
        client.close()


def test_connection_is_used_again_within_the_limit(server):
    port, _ = server
    with connect(port) as client:
        for _ in range(3):
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            found = client.recv(65536)
            while not found.endswith(b"}"):
                found += client.recv(65536)
            assert found.startswith(b"HTTP/1.1 200")
            time.sleep(0.15)


def test_root_has_one_service(tmp_path):
    own = settings(tmp_path)
    with _alone(own), pytest.raises(ConfigError, match="one service at a time"), _alone(own):
        pass
    with _alone(own):
        pass


@pytest.mark.parametrize(
    ("host", "is_so"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_told_from_what_others_reach(host, is_so):
    assert is_loopback(host) is is_so
    assert not is_loopback("localhost.example.org")
