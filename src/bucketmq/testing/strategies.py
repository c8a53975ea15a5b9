"""Hypothesis strategies for the values of this library: JSON bodies, messages, settings, heads, and spoiled bytes.

```python
from hypothesis import given
from bucketmq.testing import strategies

@given(strategies.messages())
def test_my_handler_takes_any_message(message): ...
```

All values drawn are valid: `log.segment` and `log.documents` write it and read the same value back, and heads keep the
rules of `queue.head`. This is the only module that needs Hypothesis (`pip install hypothesis`).
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from hypothesis import strategies as st

from bucketmq.log.bodies import to_base64
from bucketmq.log.segment import time_text
from bucketmq.queue.head import Head, Held, LastCommit, Lease, Moving, Span, Target, Waiting
from bucketmq.queue.message import BodyAt, Died, Failure, Message
from bucketmq.queue.settings import SHARDS_MAX, Backoff, Fences, Settings

State = Literal["settled", "held", "waiting", "moving"]

_OFFSET_MAX = 2**63 - 1
_JSON_SCALAR = re.compile(rb'(?<=[:\[,])(?:-?[0-9.]+|null|true|false|"[^"\\]*")')
_JSON_TOKENS = (
    b"null",
    b"-1",
    b"0",
    b"1e5",
    b"1.5",
    b'"x"',
    b"[]",
    b"{}",
    b"true",
    b"1" * 5000,
    b"1e999",
    b"[[0,0,1]]",
)
_HELD_WAITING_MOVING: tuple[State, ...] = ("held", "waiting", "moving")


def json_values(*, max_leaves: int = 20) -> st.SearchStrategy[Any]:
    """Any JSON value that comes back equal: null, booleans, integers, finite numbers, text, arrays, objects."""
    numbers = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | numbers | st.text()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
        max_leaves=max_leaves,
    )


def names() -> st.SearchStrategy[str]:
    """Names of queues and subscriptions that every store can take in a key."""
    return st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}", fullmatch=True)


def ids() -> st.SearchStrategy[str]:
    """Short texts that identify something."""
    return st.text("0123456789abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)


def times() -> st.SearchStrategy[float]:
    """Seconds on the store's clock, to the millisecond, as commits write them."""
    return st.integers(0, 4_102_444_800_000).map(lambda milliseconds: milliseconds / 1000)


def failures() -> st.SearchStrategy[Failure]:
    """Attempts that did not end well."""
    return st.builds(
        Failure,
        attempt=st.integers(1, 1000),
        error=st.text(max_size=40),
        at=st.none() | times().map(time_text),
        holder=st.none() | ids(),
    )


def messages() -> st.SearchStrategy[Message]:
    """Messages with every kind of body (JSON with null and Unicode, bytes, elsewhere, none) and any optional field."""
    died = st.builds(
        Died,
        subscription=names(),
        shard=st.integers(0, SHARDS_MAX - 1),
        offset=st.integers(0, _OFFSET_MAX),
        at=times().map(time_text),
        attempts=st.integers(1, 1000),
        failures=st.lists(failures(), max_size=3).map(tuple),
    )
    body_at = st.builds(BodyAt, key=st.text(min_size=1), size_bytes=st.integers(0, 1 << 40), json=st.booleans())
    bodies = st.one_of(
        st.fixed_dictionaries({"body": json_values()}),
        st.fixed_dictionaries({"body_base64": st.binary().map(to_base64)}),
        st.fixed_dictionaries({"body_at": body_at}),
        st.just({}),
    )
    others = st.fixed_dictionaries(
        {"id": ids(), "at": times().map(time_text)},
        optional={
            "key": st.text(max_size=20),
            "headers": st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
            "to": names(),
            "move": ids(),
            "died": died,
            "fence": st.integers(1, SHARDS_MAX),
        },
    )
    return st.builds(lambda other, body: Message(**other, **body), others, bodies)


def settings() -> st.SearchStrategy[Settings]:
    """Settings that `check_settings` accepts."""
    seconds = st.floats(0, 1e7)
    return st.builds(
        Settings,
        shards=st.integers(1, SHARDS_MAX),
        shards_max=st.integers(0, SHARDS_MAX),
        ordered=st.booleans(),
        lease_seconds=st.floats(0.1, 12 * 3600),
        attempts_max=st.integers(1, 1000),
        backoff=st.builds(
            Backoff,
            first_seconds=st.floats(0, 3600),
            factor=st.floats(1, 100),
            max_seconds=seconds,
            jitter=st.floats(0, 1),
        ),
        dedup_seconds=seconds,
        keep_seconds=seconds,
        expire_seconds=seconds,
        inline_bytes_max=st.integers(0, 1 << 20),
        in_flight_max=st.integers(1, 100_000),
        main=st.booleans(),
        fences=st.lists(
            st.builds(
                Fences,
                shards_before=st.integers(1, SHARDS_MAX),
                at=st.lists(st.integers(0, _OFFSET_MAX), max_size=4).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    )


def targets() -> st.SearchStrategy[Target]:
    """Where a move intends to put its segment."""
    return st.builds(Target, shard=st.integers(0, SHARDS_MAX - 1), base=st.integers(0, _OFFSET_MAX), move=ids())


@st.composite
def heads(draw: st.DrawFn) -> Head:
    """Heads that keep the rules: some segments handed out, with runs of them settled, held, waiting or moving."""
    head = Head(0, 0, version=draw(st.integers(0, 10**6)), lease=draw(st.integers(8, 10**6)))
    next_ = draw(st.integers(0, 10**6))
    listed: dict[State, list[Span]] = {state: [] for state in _HELD_WAITING_MOVING}
    states: st.SearchStrategy[State] = st.sampled_from(("settled", *_HELD_WAITING_MOVING))
    base = next_
    for lengths in draw(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=4), max_size=4)):
        base = next_
        for length in lengths:
            state = draw(states)
            if state != "settled":
                listed[state].append(Span(base, next_, next_ + length))
            next_ += length
    # `next` is inside the last segment drawn, or just behind it.
    segment = draw(st.sampled_from((base, next_)))
    return msgspec.structs.replace(
        head,
        next=next_,
        segment=segment,
        leases=draw(_leases(listed["held"], head.lease)),
        waiting=tuple(draw(_waiting(span)) for span in listed["waiting"]),
        moving=tuple(draw(_moving(span)) for span in listed["moving"]),
        holders=draw(
            st.dictionaries(
                ids(),
                st.builds(LastCommit, commit=st.integers(0, 10**6), at=times(), lost=st.integers(0, 10**6)),
                max_size=3,
            ),
        ),
    )


@st.composite
def _leases(draw: st.DrawFn, spans: list[Span], number_max: int) -> tuple[Lease, ...]:
    owners = [draw(st.integers(0, 2)) for _ in spans]
    numbers = draw(st.lists(st.integers(1, number_max), min_size=3, max_size=3, unique=True))
    leases = []
    for owner, number in enumerate(numbers):
        held = tuple(draw(_held(span)) for span, whose in zip(spans, owners, strict=True) if whose == owner)
        if held:
            leases.append(Lease(number, draw(ids()), draw(times()), held))
    return tuple(leases)


def _keys() -> st.SearchStrategy[str | None]:
    return st.none() | st.text(max_size=8)


def _failed() -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(ids(), max_size=3).map(tuple)


def _held(span: Span) -> st.SearchStrategy[Held]:
    return st.builds(Held, st.just(span), attempt=st.integers(1, 1000), failed=_failed(), key=_keys())


def _waiting(span: Span) -> st.SearchStrategy[Waiting]:
    return st.builds(
        Waiting, st.just(span), attempts=st.integers(0, 1000), after=times(), failed=_failed(), key=_keys()
    )


def _moving(span: Span) -> st.SearchStrategy[Moving]:
    return st.builds(
        Moving,
        st.just(span),
        attempts=st.integers(1, 1000),
        since=times(),
        failed=_failed(),
        target=st.none() | targets(),
    )


@st.composite
def spoiled(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were JSON once: some changed, put in or cut out, the end lost, or one value replaced by another."""
    body = draw(bodies)
    at = draw(st.integers(0, len(body)))
    match draw(st.sampled_from(("change", "insert", "cut", "truncate", "replace"))):
        case "change":
            return body[:at] + draw(st.binary(min_size=1, max_size=3)) + body[at + 1 :]
        case "insert":
            return body[:at] + draw(st.binary(max_size=3) | st.sampled_from((b"\n", b'"', b"{", b"]"))) + body[at:]
        case "cut":
            return body[:at] + body[at + draw(st.integers(1, 8)) :]
        case "truncate":
            return body[:at]
    scalars = list(_JSON_SCALAR.finditer(body))
    if not scalars:
        return draw(st.sampled_from(_JSON_TOKENS))
    scalar = draw(st.sampled_from(scalars))
    return body[: scalar.start()] + draw(st.sampled_from(_JSON_TOKENS)) + body[scalar.end() :]
