"""Receipts: the proof, as text, that settles a delivery from another process."""

from __future__ import annotations

import base64
import binascii

import msgspec

from bucketmq.errors import Invalid
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.receive import OpenSubscription
from bucketmq.queue.head import Held, Lease, Span
from bucketmq.queue.message import Message
from bucketmq.queue.settings import SHARDS_MAX


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """What a receipt holds."""

    queue: str
    subscription: str
    shard: int
    lease: int
    span: Span
    attempt: int


def write_receipt(lot: Lot, offset: int, attempt: int) -> str:
    """The receipt of one delivery of a lot."""
    desk = lot.desk
    (span,) = lot.spans_of([offset])
    proof = Proof(desk.queue.name, desk.subscription, desk.shard, lot.lease, span, attempt)
    return base64.urlsafe_b64encode(msgspec.json.encode(proof)).decode().rstrip("=")


def read_receipt(text: str) -> Proof:
    """What a receipt proves; `Invalid` if it is not one."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Proof)
    except (binascii.Error, ValueError, msgspec.DecodeError, TypeError) as error:
        raise Invalid(f"{str(text)[:40]!r} is not a receipt; use the one that receive printed") from error


def lot_of(subscription: OpenSubscription, receipt: str) -> Lot:
    """The lot of one delivery that was received elsewhere. It has no body. No request."""
    queue, proof = subscription.queue, read_receipt(receipt)
    if (proof.queue, proof.subscription) != (queue.name, subscription.name):
        raise Invalid(f"the receipt is for {proof.queue}/{proof.subscription}, not {queue.name}/{subscription.name}")
    if proof.span.count != 1 or not 0 <= proof.shard < SHARDS_MAX:
        raise Invalid(f"{receipt[:40]!r} is not the receipt of one message; use the one that receive printed")
    lease = Lease(proof.lease, queue.holder, 0.0, (Held(proof.span, proof.attempt),))
    return Lot(subscription.desk(proof.shard), lease, queue.settings.lease_seconds, [Message("", "")])
