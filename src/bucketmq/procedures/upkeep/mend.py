"""Mending a queue: what an inspection found and can be repaired, repaired by conditional writes.

Nothing is deleted. What is replaced is copied to `damaged/` first. A write that is refused because the object has
changed since the inspection is left for the next round, which inspects again: what one repair sets right, a trim mark
say, decides what the next one sees. A head that is moved back delivers again what lies behind it.
"""

from __future__ import annotations

import msgspec

from bucketmq.bucket.port import Missing, Object, Written
from bucketmq.log.layout import QueueKeys
from bucketmq.procedures.requests import Create, NewId, Procedure, Replace
from bucketmq.procedures.segments.losses import record_loss
from bucketmq.procedures.upkeep.inspect import Finding, Rewrite, inspect
from bucketmq.procedures.verbs import create_named, get

ROUNDS_MAX = 6


class Mended(msgspec.Struct, frozen=True):
    """What was repaired, and what is still damaged: a person must repair it, or it changed meanwhile."""

    mended: tuple[Finding, ...]
    left: tuple[Finding, ...]


def mend(prefix: str, queue: str) -> Procedure[Mended]:
    """Inspect and repair until nothing is left that can be. For each round an inspection; then two PUTs and a GET for
    each object that is replaced, and a GET and a PUT for each loss."""
    keys = QueueKeys(prefix, queue)
    mended: list[Finding] = []
    for _ in range(ROUNDS_MAX):
        findings = (yield from inspect(prefix, queue)).findings
        if not any(each.mendable for each in findings):
            break
        for finding in findings:
            if finding.loss is not None:
                yield from record_loss(keys, finding.loss.shard, finding.loss.start, finding.loss.stop)
                mended.append(finding)
            elif finding.rewrite is not None and (yield from _rewrite(keys, finding.rewrite)):
                mended.append(finding)
    return Mended(tuple(mended), findings)


def _rewrite(keys: QueueKeys, rewrite: Rewrite) -> Procedure[bool]:
    """Whether the object is now as it should be. A reply that was lost is recognised by reading back."""
    before = yield from get(rewrite.key)
    if isinstance(before, Object):
        if before.version != rewrite.version:
            return before.body == rewrite.body
        yield from create_named(keys.damaged((yield from NewId()), rewrite.key), before.body)
        reply = yield from Replace(rewrite.key, rewrite.body, before.version)
    elif rewrite.version is not None:
        return False
    else:
        reply = yield from Create(rewrite.key, rewrite.body)
    if isinstance(reply, Written):
        return True
    after = yield from get(rewrite.key)
    return not isinstance(after, Missing) and after.body == rewrite.body
