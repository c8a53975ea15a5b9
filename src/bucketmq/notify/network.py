"""How the HTTP client's connections reach the network: only to addresses that were checked, only until a moment.

Imported by `notify.http` alone, and only where httpcore2 is installed. What HTTP is does not belong here.

httpcore2 hands each operation a timeout, and an endpoint that sends a byte a second never exceeds any of them. The
client therefore passes *moments* of the monotonic clock in their place, the same for all operations of a request, and
the streams here wait until that moment at most.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore2


class TooLong(Exception):
    """More bytes came for one answer than are ever needed."""


class GuardedNetwork(httpcore2.NetworkBackend):
    """Connects to the address in a host written `name@address`, and looks nothing up."""

    def __init__(self, raw_bytes_max: int) -> None:
        self._plain = httpcore2.SyncBackend()
        self._raw_bytes_max = raw_bytes_max

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        _, _, address = host.rpartition("@")
        seconds = _seconds_until(timeout, httpcore2.ConnectTimeout)
        stream = self._plain.connect_tcp(address, port, seconds, local_address, socket_options)
        return _Stream(stream, self._raw_bytes_max)

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Any = None
    ) -> httpcore2.NetworkStream:
        raise httpcore2.ConnectError("sockets of this machine are not webhooks")


class _Stream(httpcore2.NetworkStream):
    """A connection whose operations end at a moment, and which reads only so much between two requests."""

    def __init__(self, stream: httpcore2.NetworkStream, raw_bytes_max: int) -> None:
        self._stream = stream
        self._raw_bytes_max = raw_bytes_max
        self._raw_bytes_left = raw_bytes_max

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, _seconds_until(timeout, httpcore2.ReadTimeout))
        self._raw_bytes_left -= len(data)
        if self._raw_bytes_left < 0:
            raise TooLong
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._raw_bytes_left = self._raw_bytes_max  # a new request begins
        sock: socket.socket = self._stream.get_extra_info("socket")
        view = memoryview(buffer)
        while view:
            # A loop of our own: the plain stream would give each piece the whole time again.
            sock.settimeout(_seconds_until(timeout, httpcore2.WriteTimeout))
            try:
                sent = sock.send(view)
            except TimeoutError as error:
                raise httpcore2.WriteTimeout(error) from error
            except OSError as error:
                raise httpcore2.WriteError(error) from error
            view = view[sent:]

    def close(self) -> None:
        # A thread that waits in a read is not woken by closing alone.
        sock: socket.socket = self._stream.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        seconds = _seconds_until(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, seconds), self._raw_bytes_max)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _seconds_until(moment: float | None, too_late: type[Exception]) -> float:
    assert moment is not None, "every request has a deadline"
    seconds = moment - time.monotonic()
    if seconds <= 0:
        raise too_late("no time is left")
    return seconds
