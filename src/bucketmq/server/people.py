"""Who may do what, at every door: people and programs by name, each with a token, roles and perhaps a scope.

From the command line, a file or the environment, one in each line:

    rosa=TOKEN:operate+review
    nightly=TOKEN:operate;queues=orders,mail-*;prefixes=raw/
    vera=sha256-HEX:look

A file holds hashes best (`sha256-...`, see `token_line`): reading it does not let anybody log in. In memory there are
hashes only, compared in constant time. A plain SHA-256 is enough because tokens are long and random, unlike passwords.
Who is asking, by cookie or by header, is `gate`'s.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from bucketmq.errors import Invalid

Role = Literal["look", "operate", "review", "administer"]
ROLES: tuple[Role, ...] = get_args(Role)

RIGHTS: dict[Role, frozenset[Role]] = {
    "look": frozenset({"look"}),
    "operate": frozenset({"look", "operate"}),
    "review": frozenset({"look", "review"}),
    "administer": frozenset(ROLES),
}
"""What each role may: look at everything in its scope; operate what can be made good again (send, pause, redrive,
replay); review what an application lays before people; administer, which also is what cannot be undone (purge)."""

FORMERLY: dict[str, tuple[Role, ...]] = {"read-only": ("look",), "reviewer": ("operate", "review")}
"""Roles of the review desk before there were others: they go on working."""

TOKENS_VARIABLE = "BUCKETMQ_DASHBOARD_TOKENS"
"""Where the dashboard finds who may log in."""
HOW = f"write NAME=TOKEN:ROLE, the role one of {', '.join(ROLES)}, or several joined by +"

TOKEN_CHARS_MIN = 16
"""Shorter ones could be guessed in time, for all that guessing is slowed down."""
TOKEN_BYTES = 24
NAME_CHARS_MAX = 100
PEOPLE_MAX = 1_000
PATTERNS_MAX = 100

_HASHED = re.compile(r"sha256-([0-9a-f]{64})\Z")
_PATTERN = re.compile(r"[A-Za-z0-9_.-]{0,80}\*?\Z")


class Caller(msgspec.Struct, frozen=True):
    """Somebody whom a door knows, and what they may."""

    name: str
    roles: tuple[Role, ...]
    queues: tuple[str, ...] = ("*",)
    """Names of queues; one that ends with `*` is for all that begin so."""
    prefixes: tuple[str, ...] = ("",)
    """Where objects may lie."""

    def may(self, role: Role) -> bool:
        return any(role in RIGHTS[each] for each in self.roles)

    def sees(self, queue: str) -> bool:
        """Whether a queue is in the scope."""
        return any(queue.startswith(each[:-1]) if each.endswith("*") else queue == each for each in self.queues)

    def reaches(self, key: str) -> bool:
        """Whether an object is in the scope."""
        return any(key.startswith(each) for each in self.prefixes)


class Person(msgspec.Struct, frozen=True):
    """Somebody who may come in. A program is a person too."""

    caller: Caller
    digest: bytes
    """Of the token."""

    def __repr__(self) -> str:
        return f"Person({self.caller.name!r}, {'+'.join(self.caller.roles)})"


def read_person(text: str) -> Person:
    """One line. Errors do not repeat the token."""
    name, equals, rest = text.strip().partition("=")
    token, colon, tail = rest.rpartition(":")
    if not (equals and colon and token):
        raise Invalid(f"a token lacks a part; {HOW}")
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise Invalid(f"a name must be 1 to {NAME_CHARS_MAX} characters that can be printed; {HOW}")
    spoken, *scopes = tail.split(";")
    return Person(_with_scopes(Caller(name, _roles(name, spoken)), scopes), _digest_in(name, token))


def read_people(texts: Iterable[str], *, variable: str) -> tuple[Person, ...]:
    """All of them. A name may come twice, while its token is changed, but with the same rights.

    `variable` is where else tokens are looked for, for the message when there are none.
    """
    people = tuple(read_person(text) for text in texts)
    if not people:
        raise Invalid(f"no one could log in: give --token or --token-file, or set {variable}; {HOW}")
    if len(people) > PEOPLE_MAX:
        raise Invalid(f"at most {PEOPLE_MAX} tokens at a time")
    callers: dict[str, Caller] = {}
    digests: dict[bytes, str] = {}
    for person in people:
        name = person.caller.name
        if callers.setdefault(name, person.caller) != person.caller:
            raise Invalid(f"{name!r} has two different sets of rights; give one")
        if digests.setdefault(person.digest, name) != name:
            raise Invalid(f"{name!r} and {digests[person.digest]!r} have the same token; give each their own")
    return people


def lines_of(text: str) -> list[str]:
    """What a file of tokens holds: one in each line, `#` begins a comment line."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def who_has(people: Sequence[Person], token: str) -> Caller | None:
    """Whose token it is. As long for a wrong one as for a right one."""
    shown, found = _digest(token), None
    for person in people:
        if hmac.compare_digest(person.digest, shown):
            found = person.caller
    return found


def token_line(name: str, rights: str) -> tuple[str, str]:
    """A new token, and the line for a file that lets it in without holding it."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    line = f"{name}=sha256-{_digest(token).hex()}:{rights}"
    read_person(line)
    return token, line


def _roles(name: str, spoken: str) -> tuple[Role, ...]:
    found: list[Role] = []
    for word in spoken.split("+"):
        known: tuple[Role, ...] = FORMERLY.get(word) or tuple(each for each in ROLES if each == word)
        if not known:
            raise Invalid(f"{name!r} has a role that does not exist; {HOW}")
        found += known
    return tuple(dict.fromkeys(found))


def _with_scopes(caller: Caller, scopes: list[str]) -> Caller:
    for scope in scopes:
        kind, equals, listed = scope.partition("=")
        parts = tuple(listed.split(","))
        if not equals or kind not in ("queues", "prefixes") or not all(parts) or len(parts) > PATTERNS_MAX:
            raise Invalid(f"the scope of {caller.name!r} cannot be read; write ;queues=orders,mail-* or ;prefixes=raw/")
        if kind == "queues" and not all(_PATTERN.match(each) for each in parts):
            raise Invalid(f"the queues of {caller.name!r} must be names, or end with a single *")
        caller = msgspec.structs.replace(caller, **{kind: parts})
    return caller


def _digest_in(name: str, token: str) -> bytes:
    hashed = _HASHED.match(token)
    if hashed:
        return bytes.fromhex(hashed[1])
    if len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid(
            f"the token of {name!r} must be {TOKEN_CHARS_MIN} or more ASCII characters without spaces; "
            "make one with: bucketmq token NAME"
        )
    return _digest(token)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
