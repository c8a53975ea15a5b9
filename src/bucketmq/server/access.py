"""Who may speak to us: bearer tokens, basic secrets and signatures, several of each so that they can be changed over.

A caller needs to fit one of them. What can be checked without the body is checked before it is read; a signature is
over the body, which is read (bounded) but not parsed before it fits. Every refusal is the same 401.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.signing import (
    SIGNATURE_HEADER,
    Rejected,
    Verified,
    authorization,
    authorized,
    check_secret,
    verify,
)
from bucketmq.server.wire import Refusal, Scope, header_pairs

TOKEN_USER = "token"
"""Browsers can show a token only as a password; this is the user name that goes with it."""

SECRETS_MAX = 32


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that open the door. Never shown."""

    bearer: tuple[str, ...] = ()
    basic: tuple[str, ...] = ()
    """Each written user:password."""
    signing: tuple[str, ...] = ()
    """Standard Webhooks secrets, whsec_..."""
    no_auth: bool = False

    def __repr__(self) -> str:
        return (
            f"Access({len(self.bearer)} bearer, {len(self.basic)} basic, {len(self.signing)} signing"
            f"{', no_auth' if self.no_auth else ''})"
        )


def make_access(
    *, bearer: Sequence[str] = (), basic: Sequence[str] = (), signing: Sequence[str] = (), no_auth: bool = False
) -> Access:
    """Checked. Having no secret at all must be said explicitly."""
    for each, what in ((bearer, "bearer"), (basic, "basic"), (signing, "signing")):
        if isinstance(each, str):
            raise Invalid(f"{what} is a list of secrets, not one; write [secret]")
        if len(each) > SECRETS_MAX:
            raise Invalid(f"at most {SECRETS_MAX} {what} secrets at a time")
    access = Access(bearer=tuple(bearer), basic=tuple(basic), signing=tuple(signing), no_auth=no_auth)
    for secret in access.bearer:
        if secret != secret.strip() or not authorization(bearer=secret):
            raise Invalid("a bearer token must not be empty or begin or end with a space")
    for secret in access.basic:
        authorization(basic=secret)
    for secret in access.signing:
        check_secret(secret)
    has_secret = bool(access.bearer or access.basic or access.signing)
    if has_secret and no_auth:
        raise Invalid("secrets were given and switched off with no_auth; leave one of the two out")
    if not has_secret and not no_auth:
        raise Invalid("nobody could be let in: give a bearer token, a basic secret or a signing secret (or no_auth)")
    return access


def admit(access: Access, scope: Scope, *, close: bool = False) -> bool:
    """Before the body is read: True if the caller is known, False if that depends on the body's signature, or 401.

    `close` is for requests whose body is then left unread.
    """
    if access.no_auth or _shows_secret(access, scope):
        return True
    if access.signing and any(name == SIGNATURE_HEADER for name, _ in header_pairs(scope)):
        return False
    raise unauthorized(access, close=close)


def admit_signed(access: Access, scope: Scope, body: bytes) -> Verified:
    """After the body was read: 401 unless its signature fits and is fresh."""
    found = verify(access.signing, header_pairs(scope), body, time.time())
    if isinstance(found, Rejected):
        raise unauthorized(access)
    return found


def admit_reader(access: Access, scope: Scope) -> None:
    """For pages: 401 unless a secret is shown, where a token also counts as the password of the user `token`."""
    if access.no_auth or _shows_secret(access, scope):
        return
    as_passwords = msgspec.structs.replace(access, basic=tuple(f"{TOKEN_USER}:{each}" for each in access.bearer))
    if not _shows_secret(as_passwords, scope):
        raise Refusal(401, "unauthorized", headers={"www-authenticate": 'Basic realm="bucketmq"'})


def _shows_secret(access: Access, scope: Scope) -> bool:
    given = [value for name, value in header_pairs(scope) if name == "authorization"]
    if len(given) != 1:
        return False
    return authorized(given[0], bearer=access.bearer, basic=access.basic)


def unauthorized(access: Access, *, close: bool = False) -> Refusal:
    """The same for every reason. SNS shows its password only when it is asked for it."""
    schemes = [*(['Basic realm="bucketmq"'] if access.basic else []), *(["Bearer"] if access.bearer else [])]
    return Refusal(
        401, "unauthorized", headers={"www-authenticate": ", ".join(schemes)} if schemes else None, close=close
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(scope: Scope) -> None:
    """For servers without secrets: 403 for everybody but programs on this machine.

    Other people's web pages are not, though the browser they run in is: they name themselves in `Origin`, or reach us
    under a host name of theirs.
    """
    client = scope.get("client")
    named = [value for name, value in header_pairs(scope) if name in ("host", "origin")]
    if client is None or not is_loopback(client[0]) or not all(is_loopback(_host(each)) for each in named):
        raise Refusal(403, "this server has no secrets and so answers only to this machine", "start it with a token")


def _host(value: str) -> str:
    """The host in a `Host` or `Origin` header."""
    try:
        return urlsplit(value if "://" in value else f"//{value}").hostname or ""
    except ValueError:
        return ""
