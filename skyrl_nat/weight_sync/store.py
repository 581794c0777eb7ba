"""Where processes meet: a key-value store that listens on one address of its node, never on all of them."""

import datetime
import os
import socket

import torch.distributed as dist

TCPStore = dist.TCPStore  # pyright: ignore[reportPrivateImportUsage]


def open_store(address: str, port: int, size: int, timeout: datetime.timedelta, *, is_master: bool) -> TCPStore:
    """Return this process' end of a store.

    Args:
        address: Of the node of the process that holds the store, reachable from all.
        port: Its port; 0 lets the holder take a free one.
        size: Number of processes that meet.
        timeout: Deadline of every wait.
        is_master: Whether this process holds the store.

    Raises:
        RuntimeError: It cannot be held or reached.
    """
    if address.startswith("127."):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # gloo listens where the host's name leads to, else
    if not is_master:
        return TCPStore(address, port, size, is_master=False, timeout=timeout, wait_for_workers=False)
    try:
        # Left to itself torch listens on every address, where whoever reaches the machine may read and write keys.
        family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(place[:2], family=family, backlog=max(size, 128))
    except OSError as error:
        raise RuntimeError(f"{address}:{port} is no address to listen on: {error}") from error
    return TCPStore(
        address,
        listener.getsockname()[1],
        size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
