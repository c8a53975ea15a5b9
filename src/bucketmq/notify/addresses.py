"""Which addresses a webhook may have: the defence against requests that reach into our own network. Pure.

`target` takes a URL apart and refuses every way of writing a host that two programs could read differently.
`check_address` says why an address must not be spoken to. Looking names up and connecting is `notify.http`'s work; it
checks every address it was told and connects to one of those, so a name that changes its meaning in between
gains nothing.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import msgspec

URL_CHARS_MAX = 2000
PORTS = (443, 80)
"""Where a webhook may listen unless private targets are allowed."""

SNS_HOST = re.compile(r"sns\.[a-z0-9-]+\.amazonaws\.com(\.cn)?\Z")
SNS_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9A-Za-z]{1,64}\.pem\Z")
SNS_CONFIRMATION = re.compile(r"/\?Action=ConfirmSubscription(&(?!Action=)[^&]*)*\Z")

Address = IPv4Address | IPv6Address


class Target(msgspec.Struct, frozen=True):
    """Where a URL leads, read in exactly one way."""

    scheme: str
    host: str
    """Lower case, no trailing dot, no brackets: what the certificate must be for."""
    port: int
    path: str
    """With the query, as it goes into the request line."""
    address: Address | None
    """The host, when it is an address."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"https": 443, "http": 80}[self.scheme] else f"{host}:{self.port}"


class Refused(msgspec.Struct, frozen=True):
    reason: str


_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
# A last label like this makes some resolvers read the whole host as an IPv4 address in C's notation.
_NUMBER = re.compile(r"([0-9]+|0x[0-9a-f]*)\Z")


def target(url: str, *, private: bool = False, ports: tuple[int, ...] = PORTS) -> Target | Refused:
    """Take a URL apart, or say why not. `private` allows plain http and every port."""
    if len(url) > URL_CHARS_MAX:
        return Refused(f"the URL is longer than {URL_CHARS_MAX} characters")
    if any(ord(c) <= 32 or ord(c) >= 127 or c == "\\" for c in url):
        return Refused("the URL has a space, backslash, control character or letters beyond ASCII (write xn--, %XX)")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return Refused("the URL cannot be read")
    if parts.scheme not in ("https", "http"):
        return Refused("the URL must begin with https://")
    if parts.scheme == "http" and not private:
        return Refused("http:// is not encrypted; use https://, or allow private targets")
    if "@" in parts.netloc:
        return Refused("the URL has a user or password in it")
    if parts.fragment:
        return Refused("the URL has a '#'")
    if port is None:
        port = 443 if parts.scheme == "https" else 80
    if port == 0 or (not private and port not in ports):
        return Refused(f"port {port} is not one of {', '.join(map(str, ports))}")
    found = _host(parts.netloc)
    if isinstance(found, Refused):
        return found
    host, address = found
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port, path, address)


def _host(netloc: str) -> tuple[str, Address | None] | Refused:
    if netloc.startswith("["):
        inside, bracket, after = netloc[1:].partition("]")
        if not bracket or (after and not re.fullmatch(r":[0-9]*", after)):
            return Refused("the host cannot be read")
        if "%" in inside:
            return Refused("the host has an IPv6 zone")
        try:
            six = IPv6Address(inside)
        except ValueError:
            return Refused("the host is not an IPv6 address")
        return str(six), six
    host, colon, port = netloc.partition(":")
    if colon and not re.fullmatch(r"[0-9]*", port):
        return Refused("the host cannot be read")
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if _NUMBER.match(labels[-1]):
        try:
            four = IPv4Address(host)
        except ValueError:
            return Refused(f"host {host[:100]} is a number; write an address as four decimal numbers, like 192.0.2.1")
        return host, four
    if len(host) > 253 or not all(_LABEL.match(each) for each in labels):
        return Refused(f"{host[:100]!r} is not a host name")
    return host, None


def check_address(address: Address | str, *, private: bool = False) -> str | None:
    """Why this address must not be spoken to; None when it may. Addresses inside an address are checked too.

    `private` allows this machine and private networks, but never what no webhook can be: the cloud's metadata service,
    multicast, broadcast, reserved and unspecified addresses.
    """
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return "is not an address"
    if isinstance(address, IPv6Address):
        return _check_six(address, private)
    return _check_four(address, private)


_METADATA: frozenset[Address] = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # AWS, GCP, Azure and most others
            "169.254.170.2",  # AWS, containers
            "168.63.129.16",  # Azure's host, in a public range
            "100.100.100.200",  # Alibaba
            "192.0.0.192",  # Oracle
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS, containers
            "fd20:ce::254",  # GCP
        ),
    )
)

_NEVER_FOUR = (
    (IPv4Network("0.0.0.0/8"), "is unspecified"),
    (IPv4Network("224.0.0.0/4"), "is multicast"),
    (IPv4Network("240.0.0.0/4"), "is reserved"),
)
_PRIVATE_FOUR = (
    (IPv4Network("127.0.0.0/8"), "is this machine"),
    (IPv4Network("10.0.0.0/8"), "is private"),
    (IPv4Network("172.16.0.0/12"), "is private"),
    (IPv4Network("192.168.0.0/16"), "is private"),
    (IPv4Network("100.64.0.0/10"), "is shared by a provider's customers"),
    (IPv4Network("169.254.0.0/16"), "is link-local"),
    (IPv4Network("192.0.0.0/24"), "is for protocols"),
    (IPv4Network("192.0.2.0/24"), "is for documentation"),
    (IPv4Network("198.51.100.0/24"), "is for documentation"),
    (IPv4Network("203.0.113.0/24"), "is for documentation"),
    (IPv4Network("198.18.0.0/15"), "is for benchmarks"),
    (IPv4Network("192.88.99.0/24"), "is a 6to4 relay"),
    (IPv4Network("192.31.196.0/24"), "is for AS112"),
    (IPv4Network("192.175.48.0/24"), "is for AS112"),
    (IPv4Network("192.52.193.0/24"), "is for multicast tunnels"),
)


def _check_four(address: IPv4Address, private: bool) -> str | None:
    if address in _METADATA:
        return "is a cloud's metadata service"
    for network, why in _NEVER_FOUR if private else _NEVER_FOUR + _PRIVATE_FOUR:
        if address in network:
            return why
    # The table above is ours; whatever else the standard library knows counts too.
    return None if private or address.is_global else "is not public"


_GLOBAL_SIX = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_NEVER_SIX = (
    (IPv6Network("::/128"), "is unspecified"),
    (IPv6Network("ff00::/8"), "is multicast"),
)
_PRIVATE_SIX = (
    (IPv6Network("::1/128"), "is this machine"),
    (IPv6Network("fc00::/7"), "is private"),
    (IPv6Network("fe80::/10"), "is link-local"),
    (IPv6Network("fec0::/10"), "is site-local"),
    (IPv6Network("64:ff9b:1::/48"), "is a private network's NAT64"),
    (IPv6Network("100::/64"), "is for discarding"),
    (IPv6Network("2001::/23"), "is for protocols"),
    (IPv6Network("2001:db8::/32"), "is for documentation"),
    (IPv6Network("3fff::/20"), "is for documentation"),
    (IPv6Network("2002::/16"), "is for 6to4, which is not in use any more"),
    (IPv6Network("2620:4f:8000::/48"), "is for AS112"),
)


def _check_six(address: IPv6Address, private: bool) -> str | None:
    if address.scope_id is not None:
        return "has a zone"
    if address in _METADATA:
        return "is a cloud's metadata service"
    for network, why in _NEVER_SIX:
        if address in network:
            return why
    if address.ipv4_mapped is not None:
        # The kernel speaks plain IPv4 to such an address, so it is exactly as good as the one inside.
        return _inside(address.ipv4_mapped, private)
    for inner in _inner_addresses(address):
        if (inner_why := _inside(inner, private)) is not None:
            return inner_why
    if private or address in _NAT64:
        return None
    for network, why in _PRIVATE_SIX:
        if address in network:
            return why
    if address not in _GLOBAL_SIX:
        return "is not a public IPv6 address"
    return None if address.is_global else "is not public"


def _inside(inner: IPv4Address, private: bool) -> str | None:
    why = _check_four(inner, private)
    return None if why is None else f"contains {inner}, which {why}"


def _inner_addresses(address: IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses a gateway could take out of this one: 6to4, Teredo, NAT64, ISATAP, compatible, translated."""
    number = int(address)
    low = IPv4Address(number & 0xFFFF_FFFF)
    found: list[IPv4Address] = []
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    if address in _NAT64:
        found.append(low)
    if (number >> 32) & 0xFCFF_FFFF == 0x0000_5EFE:  # ISATAP: an interface id of 0000:5efe or 0200:5efe and the address
        found.append(low)
    if number >> 32 in (0, 0xFFFF_0000) and number > 0xFFFF:  # ::a.b.c.d and ::ffff:0:a.b.c.d
        found.append(low)
    return found


def check_sns_url(url: str, path: re.Pattern[str], *, allowed_prefix: str | None = None) -> str | None:
    """Why nothing is fetched from this URL, which a message names; None when it is one of SNS' own with such a path.
    Other paths of its hosts are not ours to ask, and may answer with what somebody wrote into the query.

    `allowed_prefix` is for an SNS that runs elsewhere, such as a test server: a URL below it is allowed as well.
    """
    if allowed_prefix is not None:
        own, given = target(allowed_prefix, private=True), target(url, private=True)
        if isinstance(own, Target) and isinstance(given, Target):
            same_place = (own.scheme, own.host, own.port) == (given.scheme, given.host, given.port)
            if same_place and given.path.startswith(own.path):
                return None
    match target(url, ports=(443,)):
        case Refused(reason=reason):
            return reason
        case Target(host=host) if not SNS_HOST.match(host):
            return f"host {host[:100]} is not SNS (sns.<region>.amazonaws.com)"
        case Target(path=asked):
            return None if path.match(asked) else f"{asked[:100]} is not a path of SNS for this"
