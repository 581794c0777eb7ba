"""Connections that cost nobody anything: clients that end no request, or take nothing of their answer, are cut off."""

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from skyrl_nat.service.settings import Limits


def protocol_within(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's protocol with limits of time for requests and answers."""
    return type("InTime", (_InTime,), {"limits": limits})


class _InTime(H11Protocol):
    limits: Limits
    _waiting: asyncio.TimerHandle | None = None
    _watching: asyncio.TimerHandle | None = None
    _num_taken = -1

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        self._watch()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._waiting is None and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waiting, self._watching):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.limits.header_timeout_s, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():
            # It still takes the last answer.
            self._wait()
        else:
            self.transport.abort()

    def _watch(self) -> None:
        """Look twice within the limit whether anything was taken of what is to be sent."""
        num_taken = num_bytes_taken(self.transport.get_extra_info("socket"))
        if num_taken == self._num_taken and self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self._num_taken = num_taken
            self._watching = self.loop.call_later(self.limits.send_timeout_s / 2, self._watch)


def num_bytes_taken(connection: socket.socket) -> int:
    """Return how much the other side has confirmed: `tcpi_bytes_acked` of Linux's `struct tcp_info`."""
    return struct.unpack_from("=Q", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), 120)[0]
