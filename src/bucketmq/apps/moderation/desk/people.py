"""Who may use the desk: names, roles and tokens, from the command line, a file or the environment. Pure.

A token is kept as its hash and compared in constant time. Sessions are `session`'s.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from bucketmq.errors import Invalid

DESK_TOKENS = "DESK_TOKENS"

Role = Literal["reviewer", "read-only"]
ROLES: tuple[Role, ...] = get_args(Role)
HOW = "write NAME=TOKEN:reviewer or NAME=TOKEN:read-only"

TOKEN_CHARS_MIN = 16
"""Shorter ones could be guessed in time, for all that guessing is slowed down."""
NAME_CHARS_MAX = 100
PEOPLE_MAX = 1_000


class Person(msgspec.Struct, frozen=True):
    """Somebody who may log in."""

    name: str
    role: Role
    digest: bytes
    """Of the token."""

    def __repr__(self) -> str:
        return f"Person({self.name!r}, {self.role!r})"


def read_person(text: str) -> Person:
    """`NAME=TOKEN:role`. Errors do not repeat the token."""
    name, equals, rest = text.strip().partition("=")
    token, colon, role = rest.rpartition(":")
    if not (equals and colon and token):
        raise Invalid(f"a token of the desk lacks a part; {HOW}")
    if role not in ROLES:
        raise Invalid(f"{name[:NAME_CHARS_MAX]!r} has no role that there is; {HOW}")
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        raise Invalid(f"a name must be 1 to {NAME_CHARS_MAX} characters that can be printed; {HOW}")
    if len(token) < TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid(
            f"the token of {name!r} must be {TOKEN_CHARS_MIN} or more ASCII characters without spaces; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(18))'"
        )
    return Person(name, role, _digest(token))


def read_people(texts: Iterable[str]) -> tuple[Person, ...]:
    """All of them. A name may come twice, while its token is changed, but with one role."""
    people = tuple(read_person(text) for text in texts)
    if not people:
        raise Invalid(f"nobody could log in: give --token or --token-file, or set {DESK_TOKENS}; {HOW}")
    if len(people) > PEOPLE_MAX:
        raise Invalid(f"the desk has at most {PEOPLE_MAX} tokens")
    roles: dict[str, Role] = {}
    digests: dict[bytes, str] = {}
    for person in people:
        if roles.setdefault(person.name, person.role) != person.role:
            raise Invalid(f"{person.name!r} has two roles; give one")
        if digests.setdefault(person.digest, person.name) != person.name:
            raise Invalid(f"{person.name!r} and {digests[person.digest]!r} have the same token; give each their own")
    return people


def lines_of(text: str) -> list[str]:
    """What a file of tokens holds: one in each line, `#` begins a comment line."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def who_has(people: Sequence[Person], token: str) -> Person | None:
    """Whose token it is. As long for a wrong one as for a right one."""
    shown, found = _digest(token), None
    for person in people:
        if hmac.compare_digest(person.digest, shown):
            found = person
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
