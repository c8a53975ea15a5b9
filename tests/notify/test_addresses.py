"""Each line of the list of addresses and spellings that a webhook must not have."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.notify.addresses import (
    PORTS,
    SNS_CERTIFICATE,
    SNS_CONFIRMATION,
    Refused,
    Target,
    check_address,
    check_sns_url,
    target,
)

NOT_PUBLIC = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "100.64.0.1": "shared",
    "100.127.255.255": "shared",
    "127.0.0.1": "this machine",
    "127.255.255.254": "this machine",
    "169.254.1.1": "link-local",
    "169.254.169.254": "metadata",
    "169.254.170.2": "metadata",
    "168.63.129.16": "metadata",
    "100.100.100.200": "metadata",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.8": "protocols",
    "192.0.0.192": "metadata",
    "192.0.2.1": "documentation",
    "192.31.196.1": "AS112",
    "192.52.193.1": "tunnels",
    "192.88.99.1": "6to4",
    "192.168.1.1": "private",
    "192.175.48.1": "AS112",
    "198.18.0.1": "benchmarks",
    "198.19.255.255": "benchmarks",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "this machine",
    "fc00::1": "private",
    "fd00:ec2::254": "metadata",
    "fd00:ec2::23": "metadata",
    "fd20:ce::254": "metadata",
    "fe80::1": "link-local",
    "fe80::1%1": "zone",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "ff0e::1": "multicast",
    "100::1": "discarding",
    "2001::1": "contains",
    "2001:10::1": "protocols",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "2620:4f:8000::1": "AS112",
    "5f00::1": "public",
    "4000::1": "public",
    # An address in an address.
    "::ffff:127.0.0.1": "contains 127.0.0.1",
    "::ffff:169.254.169.254": "metadata",
    "::ffff:10.1.2.3": "contains 10.1.2.3",
    "::ffff:224.0.0.1": "multicast",
    "::127.0.0.1": "contains 127.0.0.1",
    "::ffff:0:127.0.0.1": "contains 127.0.0.1",
    "2002:7f00:1::": "contains 127.0.0.1",
    "2002:a9fe:a9fe::1": "metadata",
    "2002:a00:1::1": "contains 10.0.0.1",
    "2002:5db8:d822::1": "6to4",
    "64:ff9b::7f00:1": "contains 127.0.0.1",
    "64:ff9b::a9fe:a9fe": "metadata",
    "64:ff9b:1::7f00:1": "NAT64",
    "64:ff9b:1::5db8:d822": "NAT64",
    "2001:0:4136:e378:8000:63bf:80ff:fffe": "contains 127.0.0.1",  # Teredo hides the client's address by inverting it
    "2001:0:7f00:1::": "contains 127.0.0.1",  # Teredo's server
    "2a00:1450::5efe:7f00:1": "contains 127.0.0.1",  # ISATAP
    "2a00:1450::200:5efe:a00:1": "contains 10.0.0.1",
    "no address": "not an address",
    "1.2.3": "not an address",
    "": "not an address",
}

PUBLIC = (
    "93.184.216.34",
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "198.17.255.255",
    "198.20.0.1",
    "223.255.255.255",
    "2606:2800:220:1:248:1893:25c8:1946",
    "2a00:1450:4001::5efe:5db8:d822",
    "64:ff9b::5db8:d822",
    "::ffff:93.184.216.34",
)

ALLOWED_IN_DEVELOPMENT = ("127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "172.17.0.1", "fd12::1", "100.64.0.1")

NEVER = {
    "169.254.169.254": "metadata",
    "fd00:ec2::254": "metadata",
    "::ffff:169.254.169.254": "metadata",
    "64:ff9b::a9fe:a9fe": "metadata",
    "0.0.0.0": "unspecified",
    "::": "unspecified",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "255.255.255.255": "reserved",
}


@pytest.mark.parametrize(("address", "why"), NOT_PUBLIC.items())
def test_an_address_that_is_not_public_is_refused_with_its_reason(address: str, why: str) -> None:
    found = check_address(address)
    assert found is not None
    assert why in found


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_spoken_to(address: str) -> None:
    assert check_address(address) is None


@pytest.mark.parametrize("address", ALLOWED_IN_DEVELOPMENT)
def test_private_targets_can_be_allowed(address: str) -> None:
    assert check_address(address) is not None
    assert check_address(address, private=True) is None


@pytest.mark.parametrize(("address", "why"), NEVER.items())
def test_some_addresses_are_refused_even_where_private_targets_are_allowed(address: str, why: str) -> None:
    found = check_address(address, private=True)
    assert found is not None
    assert why in found


@given(st.ip_addresses())
def test_nothing_the_standard_library_calls_private_or_multicast_passes(address: object) -> None:
    if check_address(str(address)) is None:
        assert not address.is_private  # type: ignore[attr-defined]
        assert not address.is_multicast  # type: ignore[attr-defined]
        assert not address.is_loopback  # type: ignore[attr-defined]


@given(st.ip_addresses(v=4))
def test_an_address_in_an_address_is_as_good_as_the_one_inside(inner: object) -> None:
    for outer in (f"::ffff:{inner}", f"64:ff9b::{inner}"):
        assert (check_address(outer) is None) == (check_address(str(inner)) is None)


REFUSED_URLS = {
    "http://example.com/": "not encrypted",
    "ftp://example.com/": "https://",
    "//example.com/": "https://",
    "example.com": "https://",
    "https://": "not a host name",
    "https:///hook": "not a host name",
    "https://user@example.com/": "user",
    "https://user:word@example.com/": "user",
    "https://example.com@10.0.0.1/": "user",
    "https://example.com:8443/": "port 8443",
    "https://example.com:22/": "port 22",
    "https://example.com:0/": "port 0",
    "https://example.com:99999/": "cannot be read",
    "https://example.com:x/": "cannot be read",
    "https://example.com/#top": "'#'",
    "https://exa mple.com/": "space",
    "https://example.com\\@10.0.0.1/": "backslash",
    "https://example.com/\r\nHost: other": "control",
    "https://example.com/\x00": "control",
    "https://bücher.example/": "ASCII",
    "https://\uff11\uff12\uff17.0.0.1/": "ASCII",
    "https://\u24dbocalhost/": "ASCII",
    "https://%31%32%37.0.0.1/": "four decimal numbers",
    "https://exa%00mple.com/": "not a host name",
    "https://example..com/": "not a host name",
    "https://example.com../": "not a host name",
    "https://.example.com/": "not a host name",
    "https://-example.com/": "not a host name",
    "https://" + "a" * 64 + ".com/": "not a host name",
    "https://" + "a." * 130 + "com/": "not a host name",
    "https://example.com/" + "a" * 2000: "longer than 2000",
    # Ways to write 127.0.0.1 that C's library reads and ours does not.
    "https://2130706433/": "four decimal numbers",
    "https://017700000001/": "four decimal numbers",
    "https://0x7f000001/": "four decimal numbers",
    "https://0X7F000001/": "four decimal numbers",
    "https://0x7f.1/": "four decimal numbers",
    "https://127.1/": "four decimal numbers",
    "https://127.0.1/": "four decimal numbers",
    "https://0177.0.0.1/": "four decimal numbers",
    "https://127.0.0.01/": "four decimal numbers",
    "https://127.0.0.0x1/": "four decimal numbers",
    "https://127.0.0.1.1/": "four decimal numbers",
    "https://256.0.0.1/": "four decimal numbers",
    "https://1.0x/": "four decimal numbers",
    "https://example.123/": "four decimal numbers",
    "https://[fe80::1%25eth0]/": "zone",
    "https://[fe80::1%eth0]/": "zone",
    "https://[::g]/": "",
    "https://[::1/": "cannot be read",
    "https://[::1]x/": "",
    "https://[127.0.0.1]/": "",
}


@pytest.mark.parametrize(("url", "why"), REFUSED_URLS.items())
def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str, why: str) -> None:
    found = target(url)
    assert isinstance(found, Refused)
    assert why in found.reason


MAPPED = str(ipaddress.ip_address("::ffff:127.0.0.1"))  # Python 3.13 writes the last part as it is here

READ_URLS = {
    "https://example.com": ("example.com", 443, "/", "example.com"),
    "https://EXAMPLE.com./hook?a=1&b=%20": ("example.com", 443, "/hook?a=1&b=%20", "example.com"),
    "HTTPS://example.com:443/": ("example.com", 443, "/", "example.com"),
    "https://example.com:80/": ("example.com", 80, "/", "example.com:80"),
    "https://example.com:/": ("example.com", 443, "/", "example.com"),
    "https://xn--bcher-kva.example/": ("xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
    "https://a_b-c.example/?q": ("a_b-c.example", 443, "/?q", "a_b-c.example"),
    "https://93.184.216.34/": ("93.184.216.34", 443, "/", "93.184.216.34"),
    "https://127.0.0.1./": ("127.0.0.1", 443, "/", "127.0.0.1"),
    "https://[2A00:1450:0::1]/": ("2a00:1450::1", 443, "/", "[2a00:1450::1]"),
    "https://[::ffff:127.0.0.1]:80/": (MAPPED, 80, "/", f"[{MAPPED}]:80"),
}


@pytest.mark.parametrize(("url", "parts"), READ_URLS.items())
def test_a_url_is_read_in_one_way(url: str, parts: tuple[str, int, str, str]) -> None:
    found = target(url)
    assert isinstance(found, Target)
    assert (found.host, found.port, found.path, found.host_header) == parts


def test_an_address_written_with_a_trailing_dot_is_still_an_address() -> None:
    found = target("https://127.0.0.1./")
    assert isinstance(found, Target)
    assert check_address(found.address or "") == "is this machine"


def test_ports_are_a_choice_and_private_targets_have_any() -> None:
    assert PORTS == (443, 80)
    assert isinstance(target("https://example.com:8443/", ports=(8443,)), Target)
    assert isinstance(target("https://example.com/", ports=(8443,)), Refused)
    found = target("http://localhost:9000/", private=True)
    assert isinstance(found, Target)
    assert (found.scheme, found.host_header) == ("http", "localhost:9000")


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for url in (text, f"https://{text}/", f"https://[{text}]/"):
        assert isinstance(target(url), Target | Refused)


CONFIRMATION = (
    "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:eu-west-1:1:t&Token=t"
)
CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
HOSTS = ("sns.us-gov-west-1.amazonaws.com", "sns.cn-north-1.amazonaws.com.cn")
OTHER_HOSTS = (
    "sns.eu-west-1.amazonaws.com.example.com",
    "sns.eu-west-1.amazonaws.com@example.com",
    "sns.eu-west-1.amazonaws.com%2eexample.com",
    "sns.eu-west-1.amazonaws.com%00.example.com",
    "sns.eu-west-1.amazonaws.com\\.example.com",
    "sns.eu-west-1.amazonaws.com\n",
    "example.com/sns.eu-west-1.amazonaws.com",
    "example.com?sns.eu-west-1.amazonaws.com",
    "s3.eu-west-1.amazonaws.com",
    "xsns.eu-west-1.amazonaws.com",
    "a.sns.eu-west-1.amazonaws.com",
    "sns.a.b.amazonaws.com",
    "sns.amazonaws.com",
    "sns.eu-west-1.amazonaws.com:80",
    "sns\u3002eu-west-1.amazonaws.com",
    "\u017fns.eu-west-1.amazonaws.com",
    "sns.eu-west-1.amazonaws.co\uff4d",
    "127.0.0.1",
    "[::ffff:127.0.0.1]",
)


@pytest.mark.parametrize("host", ["SNS.EU-WEST-1.amazonaws.com.", *HOSTS])
def test_sns_itself_is_asked_for_confirmations_and_certificates(host: str) -> None:
    own = "sns.eu-west-1.amazonaws.com"
    assert check_sns_url(CONFIRMATION.replace(own, host), SNS_CONFIRMATION) is None
    assert check_sns_url(CERTIFICATE.replace(own, host), SNS_CERTIFICATE) is None


@pytest.mark.parametrize("host", OTHER_HOSTS)
def test_nobody_else_is_asked(host: str) -> None:
    own = "sns.eu-west-1.amazonaws.com"
    assert check_sns_url(CONFIRMATION.replace(own, host, 1), SNS_CONFIRMATION)
    assert check_sns_url(CERTIFICATE.replace(own, host, 1), SNS_CERTIFICATE)
    assert check_sns_url(CERTIFICATE.replace("https:", "http:"), SNS_CERTIFICATE)
    assert check_sns_url("", SNS_CERTIFICATE)


@pytest.mark.parametrize(
    "path",
    [
        "?Action=-----BEGIN%20CERTIFICATE-----",
        "?Action=Publish&TopicArn=t&Action=ConfirmSubscription",
        "?Action=ConfirmSubscription&Action=Publish",
        "?Action=ConfirmSubscriptions&Token=t",
        "?action=ConfirmSubscription",
        "SimpleNotificationService-0123.pem?Action=ListTopics",
        "SimpleNotificationService-0123.pem%00",
        "simplenotificationservice-0123.PEM",
        "SimpleNotificationService-../../x.pem",
        "x/SimpleNotificationService-0123.pem",
        "cert.pem",
        "",
    ],
)
def test_sns_is_asked_for_nothing_else(path: str) -> None:
    """Some of its answers have words of the question in them: they could hold a certificate that somebody wrote."""
    url = f"https://sns.eu-west-1.amazonaws.com/{path}"
    assert check_sns_url(url, SNS_CONFIRMATION)
    assert check_sns_url(url, SNS_CERTIFICATE)
    assert check_sns_url(CERTIFICATE, SNS_CONFIRMATION) and check_sns_url(CONFIRMATION, SNS_CERTIFICATE)


def test_a_test_server_can_be_allowed_to_stand_in_for_sns() -> None:
    own, asked = "http://127.0.0.1:5000/", "http://127.0.0.1:5000/?Action=ConfirmSubscription"
    assert check_sns_url(asked, SNS_CONFIRMATION) is not None
    assert check_sns_url(asked, SNS_CONFIRMATION, allowed_prefix=own) is None
    for other in ("http://127.0.0.1:5001/", "https://127.0.0.1:5000/", "http://127.0.0.1:5000@example.com/"):
        assert check_sns_url(other, SNS_CONFIRMATION, allowed_prefix=own) is not None
    assert check_sns_url(CONFIRMATION, SNS_CONFIRMATION, allowed_prefix=own) is None
