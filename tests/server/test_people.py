"""Who may do what, and sessions: without a server."""

from __future__ import annotations

import pytest

from bucketmq.errors import Invalid
from bucketmq.server.callers import FAILURES_SECONDS, Limit
from bucketmq.server.gate import FAILURES_MAX
from bucketmq.server.people import Person, lines_of, read_people, read_person, token_line, who_has
from bucketmq.server.session import SESSION_SECONDS, Sessions

TOKEN = "a:token=with:signs-in-it"


def people_of(*texts: str) -> tuple[Person, ...]:
    return read_people(texts, variable="TOKENS")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_people_are_read_from_text() -> None:
    people = people_of(f"rosa={TOKEN}:operate+review", "Ömer B.=another-token-0001:look")
    assert [(each.caller.name, each.caller.roles) for each in people] == [
        ("rosa", ("operate", "review")),
        ("Ömer B.", ("look",)),
    ]
    assert who_has(people, TOKEN) is people[0].caller
    assert who_has(people, TOKEN + "x") is None and who_has(people, "") is None and who_has(people, "\udc80") is None
    assert TOKEN not in repr(people)
    assert lines_of("# ours\n\n  a=b:c  \nd\n") == ["a=b:c", "d"]


@pytest.mark.parametrize(
    ("spoken", "may"),
    [
        ("look", {"look"}),
        ("operate", {"look", "operate"}),
        ("review", {"look", "review"}),
        ("operate+review", {"look", "operate", "review"}),
        ("administer", {"look", "operate", "review", "administer"}),
        ("reviewer", {"look", "operate", "review"}),
        ("read-only", {"look"}),
    ],
)
def test_what_each_role_may(spoken: str, may: set[str]) -> None:
    caller = read_person(f"rosa={TOKEN}:{spoken}").caller
    assert {role for role in ("look", "operate", "review", "administer") if caller.may(role)} == may  # type: ignore[arg-type]


def test_a_scope_names_queues_and_prefixes() -> None:
    everything = read_person(f"rosa={TOKEN}:operate").caller
    assert everything.sees("any") and everything.reaches("any/key")
    some = read_person(f"nightly={TOKEN}:operate;queues=orders,mail-*;prefixes=raw/,docs/").caller
    assert some.sees("orders") and some.sees("mail-out") and not some.sees("orders2") and not some.sees("events")
    assert some.reaches("raw/x") and not some.reaches("rawx") and not some.reaches("")
    for wrong in (";queues=", ";queues=a,,b", ";queues=a*b", ";topics=a", ";queues", ";prefixes="):
        with pytest.raises(Invalid, match="nightly"):
            read_person(f"nightly={TOKEN}:operate{wrong}")


def test_a_line_for_a_file_lets_the_token_in_and_does_not_hold_it() -> None:
    token, line = token_line("rosa", "operate;queues=orders")
    person = read_person(line)
    assert token not in line and len(token) >= 32
    found = who_has([person], token)
    assert found is not None and found.roles == ("operate",) and found.queues == ("orders",)
    hashed = line.partition("=")[2].rpartition(":")[0]
    assert who_has([person], hashed) is None, "reading the file lets nobody log in"
    with pytest.raises(Invalid):
        token_line("rosa", "emperor")


@pytest.mark.parametrize(
    "text",
    [
        "rosa",
        "rosa=a-token-that-is-long",
        "rosa=:look",
        "=a-token-that-is-long:look",
        "rosa=a-token-that-is-long:admin",
        "rosa=a-token-that-is-long:look+",
        "rosa=short-token:look",
        "rosa=a token with some spaces:look",
        "ro\nsa=a-token-that-is-long:look",
        f"{'x' * 101}=a-token-that-is-long:look",
    ],
)
def test_what_lets_nobody_in_is_refused_without_repeating_the_token(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_person(text)
    assert "token-that-is-long" not in str(refused.value)


def test_nobody_or_mixed_up_people_are_refused() -> None:
    with pytest.raises(Invalid, match="TOKENS"):
        people_of()
    for texts in (
        ["rosa=a-token-that-is-long:review", "rosa=b-token-that-is-long:look"],
        ["rosa=a-token-that-is-long:look", "rosa=b-token-that-is-long:look;queues=a"],
        ["rosa=a-token-that-is-long:review", "omar=a-token-that-is-long:review"],
    ):
        with pytest.raises(Invalid):
            people_of(*texts)
    assert len(people_of("rosa=a-token-that-is-long:review", "rosa=b-token-that-is-long:review")) == 2


def test_a_session_ends_by_itself_and_with_its_process() -> None:
    people, clock = people_of(f"rosa={TOKEN}:review"), Clock()
    sessions = Sessions(people, clock=clock)
    assert sessions.begin("wrong") is None
    session = sessions.begin(TOKEN)
    assert session is not None
    cookie = sessions.write(session)
    assert sessions.read(cookie) == session and TOKEN not in cookie
    assert Sessions(people, clock=clock).read(cookie) is None, "another process has another key"
    clock.now += SESSION_SECONDS - 1
    assert sessions.read(cookie) == session
    clock.now += 1
    assert sessions.read(cookie) is None


def test_a_cookie_holds_no_rights() -> None:
    key = b"k" * 32
    before = Sessions(people_of(f"rosa={TOKEN}:administer", f"omar={TOKEN}2:look"), key=key)
    rosa = before.begin(TOKEN)
    assert rosa is not None
    cookie = before.write(rosa)
    lowered = Sessions(people_of(f"rosa={TOKEN}:look"), key=key).read(cookie)
    assert lowered is not None and not lowered.caller.may("operate")
    assert Sessions(people_of(f"omar={TOKEN}2:look"), key=key).read(cookie) is None, "who is let in no more has none"


def test_each_session_has_its_own_proof_of_the_page() -> None:
    sessions = Sessions(people_of(f"rosa={TOKEN}:review"))
    one, other = sessions.begin(TOKEN), sessions.begin(TOKEN)
    assert one is not None and other is not None
    assert sessions.fits(one, sessions.csrf(one)) and not sessions.fits(one, sessions.csrf(other))
    assert not sessions.fits(one, "") and not sessions.fits(one, "é\udc80")
    sessions.end(one)
    assert sessions.read(sessions.write(one)) is None and sessions.read(sessions.write(other)) == other


def test_an_address_that_fails_too_often_waits_and_others_do_not() -> None:
    clock = Clock()
    limit = Limit(FAILURES_MAX, clock=clock)
    for _ in range(FAILURES_MAX):
        assert limit.wait_seconds("10.0.0.1") == 0
        limit.failed("10.0.0.1")
        clock.now += 1
    assert limit.wait_seconds("10.0.0.1") == FAILURES_SECONDS - FAILURES_MAX
    assert limit.wait_seconds("10.0.0.2") == 0
    clock.now += FAILURES_SECONDS - FAILURES_MAX
    assert limit.wait_seconds("10.0.0.1") == 0
