"""The guarded HTTP client: one request to somebody else's address, and what came of it as a value.

Engines perform `procedures.requests.Post` with it, on as many threads as they like. It decides nothing about retries.

For each request the name is looked up once, every address is checked (`notify.addresses`), and the connection goes to a
checked address while `Host` and the certificate's name stay the name. It runs on httpcore2, the transport below httpx2,
because that is where a connection's way to the network can be replaced; it also means that there are no redirects, no
proxies from the environment, no cookies and no unpacking of answers to switch off. Nothing here logs; httpcore2's own
debug log has answers' headers, never what is sent.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from bucketmq.errors import Invalid, Unsupported
from bucketmq.notify.addresses import PORTS, Refused, Target, check_address, target
from bucketmq.procedures.requests import Answer, NoAnswer, Post

if TYPE_CHECKING:
    from types import TracebackType

    from httpcore2 import Request, Response

BODY_BYTES_MAX = 64 << 10
"""How much of an answer is read. An answer that goes on is cut here and its connection closed."""
BODY_BYTES_KEPT = 1 << 10
"""How much is kept of an answer that is not a success. A success is kept whole: it may name single events that
failed."""
HEADERS_MAX = 100
HEADER_BYTES_MAX = 32 << 10
RAW_BYTES_MAX = 1 << 20
"""Bytes off the wire for one answer, framing and interim answers included."""
GET_BYTES_MAX = 512 << 10
ADDRESSES_TRIED_MAX = 4
KEEP_ALIVE_SECONDS = 4.0  # many servers hang up after 5: do not send into a connection that is about to be closed
IDLE_CONNECTIONS_MAX = 64
REASON_CHARS_MAX = 300

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a host name, as texts. Raises `OSError` when there are none."""

_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer"})
"""Headers that belong to the connection; a caller's are left out."""


def system_resolve(host: str, port: int) -> list[str]:
    """What the machine's resolver says, in its order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Poster:
    """Sends requests to checked addresses. Safe to share between threads; `close` when done."""

    def __init__(
        self,
        *,
        resolve: Resolve = system_resolve,
        ports: tuple[int, ...] = PORTS,
        tls: ssl.SSLContext | None = None,
        idle_connections_max: int = IDLE_CONNECTIONS_MAX,
        get_bytes_max: int = GET_BYTES_MAX,
    ) -> None:
        """`tls` is for endpoints whose certificates come from an authority of your own. `get_bytes_max` is the most
        that a `get` may ask for; it bounds what any answer may take off the wire as well."""
        try:
            import httpcore2

            from bucketmq.notify.network import GuardedNetwork
        except ImportError:
            raise Unsupported("webhooks need the package httpx2; run: pip install 'bucketmq[server]'") from None
        self._http = httpcore2
        self._ports = ports
        self._get_bytes_max = get_bytes_max
        self._names = _Names(resolve)
        self._closed = False
        # Callers' threads bound how many connections there are at a time; a limit here would let the requests of one
        # slow endpoint stand in the way of all others. What is bounded is how many are kept for later.
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls if tls is not None else httpcore2.default_ssl_context(),
            max_connections=None,
            max_keepalive_connections=idle_connections_max,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
            http1=True,
            http2=False,
            retries=0,
            network_backend=GuardedNetwork(max(RAW_BYTES_MAX, 2 * get_bytes_max)),
        )

    def post(self, request: Post) -> Answer | NoAnswer:
        """POST, and wait at most `timeout_seconds` for the whole of it: looking up, connecting, sending, reading."""
        return self._ask("POST", request, BODY_BYTES_MAX)

    def get(
        self, url: str, *, bytes_max: int = BODY_BYTES_MAX, timeout_seconds: float = 10.0, private: bool = False
    ) -> Answer | NoAnswer:
        """GET with the same guards. A body longer than `bytes_max` is cut."""
        if not 0 <= bytes_max <= self._get_bytes_max:
            raise Invalid(f"bytes_max must be 0 to {self._get_bytes_max}")
        return self._ask("GET", Post(url, {}, b"", timeout_seconds, private), bytes_max)

    def close(self) -> None:
        """Close all connections. Requests under way end without an answer."""
        self._closed = True
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, method: str, asked: Post, bytes_max: int) -> Answer | NoAnswer:
        started = time.monotonic()
        seconds = asked.timeout_seconds
        if not (seconds > 0 and math.isfinite(seconds)):
            raise Invalid(f"timeout_seconds must be more than 0, not {seconds}")
        try:
            if self._closed:
                raise _Failed("the client is closed")
            where = target(asked.url, private=asked.private, ports=self._ports)
            if isinstance(where, Refused):
                raise _Failed(f"refused: {where.reason}", refused=True)
            addresses = self._checked_addresses(where, started + seconds, asked.private)[:ADDRESSES_TRIED_MAX]
            requests = self._requests(method, where, asked, addresses=addresses, deadline=started + seconds)
            status, answered, read = self._first_answer(requests, bytes_max)
        except _Failed as failed:
            reason = failed.reason if not failed.timed_out else f"timed out after {seconds:g} s {failed.reason}"
            return NoAnswer(reason[:REASON_CHARS_MAX], time.monotonic() - started, failed.refused)
        kept = read if method == "GET" or 200 <= status < 300 else read[:BODY_BYTES_KEPT]
        return Answer(status, answered, kept, time.monotonic() - started)

    def _requests(
        self,
        method: str,
        where: Target,
        asked: Post,
        *,
        addresses: Sequence[str],
        deadline: float,
    ) -> Iterator[Request]:
        """The request to each of the addresses in turn. An address that swallows packets gets its share of the time."""
        headers = _request_headers(where, asked.headers, None if method == "GET" else asked.body)
        for left in range(len(addresses), 0, -1):
            now = time.monotonic()
            yield self._http.Request(
                method,
                # One connection belongs to one name at one checked address: the pool takes both for the host, so
                # neither a name that moved nor another name on the same server is ever given it.
                self._http.URL(
                    scheme=where.scheme, host=f"{where.host}@{addresses[-left]}", port=where.port, target=where.path
                ),
                headers=headers,
                content=asked.body,
                extensions={
                    "sni_hostname": where.host,
                    # Our streams take these for moments, not for lengths: see `notify.network`.
                    "timeout": {
                        "connect": now + (deadline - now) / left,
                        "write": deadline,
                        "read": deadline,
                        "pool": max(0.0, deadline - now),
                    },
                },
            )

    def _first_answer(self, requests: Iterator[Request], bytes_max: int) -> tuple[int, dict[str, str], bytes]:
        """The next address is tried only when nothing can have been sent to the one before."""
        failed: _Failed | None = None
        for request in requests:
            try:
                return self._converse(request, bytes_max)
            except _Failed as error:
                if not error.another_address:
                    raise
                failed = error
        assert failed is not None, "there is at least one address"
        raise failed

    def _converse(self, request: Request, bytes_max: int) -> tuple[int, dict[str, str], bytes]:
        """Send one request on one connection and read its answer, with every failure as `_Failed`."""
        from bucketmq.notify.network import TooLong

        http = self._http
        try:
            response = self._pool.handle_request(request)
            try:
                answered = _answer_headers(response)
                return response.status, answered, _read(response, bytes_max)
            finally:
                response.close()
        except http.ConnectTimeout:
            raise _Failed("while connecting", timed_out=True, another_address=True) from None
        except http.ConnectError as error:
            raise _not_connected(error) from None
        except http.TimeoutException as error:
            doing = "while sending" if isinstance(error, http.WriteTimeout) else "while waiting for the answer"
            raise _Failed(doing, timed_out=True) from None
        except http.LocalProtocolError as error:
            raise _Failed(f"the request cannot be sent as HTTP: {error}", refused=True) from None
        except http.RemoteProtocolError as error:
            raise _Failed(f"the answer is not HTTP: {error}") from None
        except TooLong:
            raise _Failed("the answer is too long") from None
        except http.NetworkError as error:
            raise _Failed(f"the connection broke: {_why(error)}") from None

    def _checked_addresses(self, where: Target, deadline: float, private: bool) -> list[str]:
        if where.address is not None:
            if (why := check_address(where.address, private=private)) is not None:
                raise _Failed(f"refused: address {where.address} {why}", refused=True)
            return [str(where.address)]
        addresses = self._names.look_up(where.host, where.port, deadline)
        if not addresses:
            raise _Failed(f"no connection: host {where.host} has no address")
        for address in addresses:
            if (why := check_address(address, private=private)) is not None:
                raise _Failed(f"refused: address {address} of host {where.host} {why}", refused=True)
        return list(addresses)


class _Failed(Exception):
    """Why there is no answer, on its way to becoming a `NoAnswer`."""

    def __init__(
        self, reason: str, *, refused: bool = False, timed_out: bool = False, another_address: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.refused = refused
        self.timed_out = timed_out
        self.another_address = another_address


class _Lookup:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.addresses: Sequence[str] = ()
        self.error: str | None = None


class _Names:
    """Looks names up on threads of their own, because the system's resolver cannot be told when to give up.

    Whoever asks for a name that is being looked up waits for that lookup, so a name server that does not answer holds
    one thread for each name, not one for each request.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._running: dict[tuple[str, int], _Lookup] = {}

    def look_up(self, host: str, port: int, deadline: float) -> Sequence[str]:
        key = (host, port)
        with self._lock:
            lookup = self._running.get(key)
            if lookup is None:
                lookup = self._running[key] = _Lookup()
                thread = threading.Thread(
                    target=self._run, args=(key, lookup), name=f"bucketmq-lookup-{host[:40]}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    del self._running[key]
                    raise _Failed("no connection: this process has too many threads to look up the host") from None
        if not lookup.done.wait(max(0.0, deadline - time.monotonic())):
            raise _Failed(f"while looking up host {host}", timed_out=True)
        if lookup.error is not None:
            raise _Failed(f"no connection: host {host} was not found ({lookup.error})")
        return lookup.addresses

    def _run(self, key: tuple[str, int], lookup: _Lookup) -> None:
        try:
            lookup.addresses = tuple(self._resolve(*key))
        except (OSError, UnicodeError) as error:
            lookup.error = _why(error)
        except Exception as error:
            # A resolver that was plugged in may raise anything; the waiting caller must get it rather than wait on.
            lookup.error = type(error).__name__
        finally:
            with self._lock:
                del self._running[key]
            lookup.done.set()


def _request_headers(where: Target, headers: Mapping[str, str], body: bytes | None) -> list[tuple[bytes, bytes]]:
    given: list[tuple[str, str]] = [("host", where.host_header)]
    given += [(name, value) for name, value in headers.items() if name.lower() not in _OURS]
    names = {name.lower() for name in headers}
    if "user-agent" not in names:
        given.append(("user-agent", "bucketmq"))
    if "accept" not in names:
        given.append(("accept", "*/*"))
    if body is not None:
        given.append(("content-length", str(len(body))))
    try:
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in given]
    except UnicodeEncodeError:
        raise _Failed("the request cannot be sent as HTTP: a header is not plain ASCII", refused=True) from None


def _answer_headers(response: Response) -> dict[str, str]:
    """Names in lower case; values of a name that comes more than once are joined, as HTTP says."""
    if len(response.headers) > HEADERS_MAX or sum(len(n) + len(v) for n, v in response.headers) > HEADER_BYTES_MAX:
        raise _Failed(f"the answer has more than {HEADERS_MAX} headers or {HEADER_BYTES_MAX >> 10} KiB of them")
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _read(response: Response, bytes_max: int) -> bytes:
    """The body up to `bytes_max`. The deadline is kept below, in each read of the stream."""
    parts: list[bytes] = []
    size = 0
    stream = response.stream
    assert isinstance(stream, Iterable)
    for part in stream:
        parts.append(part)
        size += len(part)
        if size > bytes_max:
            break
    return b"".join(parts)[:bytes_max]


def _not_connected(error: Exception) -> _Failed:
    cause = error.args[0] if error.args else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _Failed(f"TLS failure: the certificate was refused: {cause.verify_message or cause.reason}")
    if isinstance(cause, ssl.SSLError):
        return _Failed(f"TLS failure: {cause.reason or cause}")
    return _Failed(f"no connection: {_why(error)}", another_address=True)


def _why(error: BaseException) -> str:
    """The words of the system for what happened."""
    cause = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__
