"""Where a request comes from, and how much one address may try: failed secrets are limited, by address.

An address is the connection's, or the one that a trusted proxy names in `X-Forwarded-For`: without a proxy that was
configured that header is not believed, because anybody can write it.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from bucketmq.errors import Invalid
from bucketmq.server.wire import Scope, header_pairs

ADDRESSES_MAX = 10_000
"""Addresses whose failures are remembered; the one that failed longest ago is forgotten first."""
FAILURES_SECONDS = 60.0
IPV6_SITE_BITS = 64
"""One customer has at least that much of IPv6, and so counts as one caller."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Clock = Callable[[], float]


def proxies_of(texts: Sequence[str]) -> tuple[Network, ...]:
    """The networks of trusted proxies, each written `10.0.0.0/8` or `10.0.0.7`."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            raise Invalid(f"{text[:60]!r} is not a network of proxies; write one like 10.0.0.0/8 or 10.0.0.7") from None
    return tuple(found)


def caller_address(scope: Scope, proxies: Sequence[Network] = ()) -> str:
    """Who is calling: the last address in `X-Forwarded-For` that is not itself a trusted proxy."""
    client = scope.get("client")
    peer = str(client[0]) if client is not None else ""
    address = _address(peer)
    if address is None or not _trusted(address, proxies):
        return peer
    lines = [value for name, value in header_pairs(scope) if name == "x-forwarded-for"]
    for text in reversed(",".join(lines).split(",")):
        found = _address(text)
        if found is None:
            break  # what stands before it was written by nobody we trust
        address = found
        if not _trusted(found, proxies):
            break
    return str(address)


def is_trusted(address: str, proxies: Sequence[Network]) -> bool:
    found = _address(address)
    return found is not None and _trusted(found, proxies)


def _trusted(address: Address, proxies: Sequence[Network]) -> bool:
    return any(address in network for network in proxies)


def _address(text: str) -> Address | None:
    text = text.strip().strip('"')
    if text.startswith("["):  # [::1]:443
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:  # 192.0.2.1:443
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def site_of(address: str) -> str:
    """Whom an address belongs to, as far as it says: itself, or the network of an IPv6 address."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, IPV6_SITE_BITS), strict=False))
    return address


class Limit:
    """Failures by address: after too many within a minute even a right secret is refused for a while."""

    def __init__(self, failures_max: int, *, clock: Clock = time.monotonic) -> None:
        self._failures_max = failures_max
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """How long until this address may try again; 0 if it may now."""
        failures = self._recent(site_of(address))
        return 0.0 if len(failures) < self._failures_max else failures[0] + FAILURES_SECONDS - self._clock()

    def failed(self, address: str) -> None:
        """Count a failure; or an attempt that is under way, before anything of it is known."""
        site = site_of(address)
        self._failures[site] = self._recent(site)
        self._failures[site].append(self._clock())
        self._failures.move_to_end(site)
        while len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def forgive(self, address: str) -> None:
        """Take back the newest failure: the attempt was a success."""
        failures = self._failures.get(site_of(address))
        if failures:
            failures.pop()

    def _recent(self, site: str) -> deque[float]:
        found = self._failures.get(site)
        if found is None:
            return deque(maxlen=self._failures_max)
        while found and found[0] <= self._clock() - FAILURES_SECONDS:
            found.popleft()
        return found
