"""The probe: does this store honour conditional writes, in a race too? And what does its clock say?

Made when a bucket is opened. About ten requests on one object of its own, deleted afterwards.
"""

from __future__ import annotations

import contextlib

import msgspec

from bucketmq.bucket.port import Missing, Object, Refused, Unknown, Version, Written
from bucketmq.errors import BucketMQError, Unavailable, Unsupported
from bucketmq.log.layout import join
from bucketmq.procedures.requests import Create, NewId, Procedure, Replace, Together
from bucketmq.procedures.verbs import delete, get

RACERS = 4

CURE = (
    "BucketMQ needs a store that refuses these writes: S3, GCS, Azure, R2, Tigris, current MinIO, Ceph or SeaweedFS "
    "do; older gateways often answer 200 and overwrite"
)


class Probed(msgspec.Struct, frozen=True):
    """What the probe found, for `doctor`."""

    checks: tuple[str, ...]


def probe(prefix: str) -> Procedure[Probed]:
    """Raise `Unsupported` unless creates and replaces are conditional, one after the other and in a race."""
    key = join(prefix, "probe", (yield from NewId()) + ".json")
    try:
        yield from _check_create(key)
        version = yield from _check_race(key)
        yield from _check_stale(key, version)
    except BucketMQError:
        with contextlib.suppress(BucketMQError):  # a store that fails here must not hide why it was refused
            yield from delete(key)
        raise
    yield from delete(key)
    return Probed(
        ("create is refused where an object exists", "one of many replaces wins", "a stale replace is refused")
    )


def _check_create(key: str) -> Procedure[None]:
    first = yield from Create(key, b'{"probe":1}\n')
    if isinstance(first, Unknown):
        found = yield from get(key)
        if isinstance(found, Missing):
            raise Unavailable(f"the probe could not write {key} ({first.reason}); check the connection and try again")
    second = yield from Create(key, b'{"probe":2}\n')
    if isinstance(second, Written):
        raise Unsupported(f"the store created {key} twice: it ignores If-None-Match. {CURE}")


def _check_race(key: str) -> Procedure[Version]:
    """Several replaces of one state at once; returns the version of the state they replaced."""
    before = yield from _read(key)
    replies = yield from Together(
        tuple(Replace(key, b'{"probe":%d}\n' % (10 + racer), before.version) for racer in range(RACERS))
    )
    for reply in replies:
        if isinstance(reply, BucketMQError):
            raise reply
    winners = sum(isinstance(reply, Written) for reply in replies)
    unsure = sum(isinstance(reply, Unknown) for reply in replies)
    if winners > 1:
        raise Unsupported(f"{winners} of {RACERS} racing replaces of {key} won: it ignores If-Match in a race. {CURE}")
    if winners == 0 and not unsure:
        after = yield from _read(key)
        if after.body == before.body:
            reply = yield from Replace(key, b'{"probe":20}\n', before.version)
            if isinstance(reply, Refused):
                raise Unsupported(
                    f"the store refused a correct replace of {key}: its If-Match does not work. "
                    f"Ceph up to 16 needs the option unquoted_etags=true. {CURE}"
                )
    return before.version


def _check_stale(key: str, stale: Version) -> Procedure[None]:
    reply = yield from Replace(key, b'{"probe":30}\n', stale)
    if isinstance(reply, Written):
        raise Unsupported(f"the store replaced {key} under a stale condition: it ignores If-Match. {CURE}")


def _read(key: str) -> Procedure[Object]:
    found = yield from get(key)
    if isinstance(found, Missing):
        raise Unsupported(f"the store lost {key} right after writing it. {CURE}")
    return found
