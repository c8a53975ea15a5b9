"""BucketMQ turns a bucket you already have into a message queue and an event bus.

```python
import bucketmq

bucket = bucketmq.connect("file:///tmp/inbox")
queue = bucket.queue("jobs")
queue.send({"n": 1})
for delivery in queue.receive(10):
    delivery.ack()
```
"""

import typing

if typing.TYPE_CHECKING:
    from bucketmq import aio
    from bucketmq.changes import AsyncChange, AsyncChanges, Change, Changes
    from bucketmq.client import Bucket, DeadLetters, Delivery, DeliveryOf, Queue, Subscription, connect
    from bucketmq.deliveries import Batch, DeadLetter, PeekedMessage
    from bucketmq.engines.meter import Requests
    from bucketmq.errors import (
        BucketMQError,
        Contended,
        Corrupt,
        Denied,
        Invalid,
        LeaseLost,
        NotFound,
        Unavailable,
        Unfit,
        Unsupported,
    )
    from bucketmq.events.event import ObjectEvent
    from bucketmq.events.rule import Policy, Rule
    from bucketmq.outcomes import Bury, Done, Release, Retry
    from bucketmq.procedures.claiming.redrive import Redriven
    from bucketmq.procedures.objects.batches import Failed, Stored
    from bucketmq.procedures.objects.move import Move
    from bucketmq.procedures.objects.put import Put
    from bucketmq.procedures.objects.read import Read
    from bucketmq.procedures.objects.remove import Delete, Deleted
    from bucketmq.procedures.objects.sweep import Swept
    from bucketmq.procedures.rules.audit import Audited
    from bucketmq.procedures.rules.fan_in import Complete
    from bucketmq.procedures.sending.send import Sent
    from bucketmq.procedures.upkeep.stats import QueueStats
    from bucketmq.queue.settings import Backoff, Settings
    from bucketmq.spark.history.tables import history

__version__ = "0.1.0"

__all__ = [
    "AsyncChange",
    "AsyncChanges",
    "Audited",
    "Backoff",
    "Batch",
    "Bucket",
    "BucketMQError",
    "Bury",
    "Change",
    "Changes",
    "Complete",
    "Contended",
    "Corrupt",
    "DeadLetter",
    "DeadLetters",
    "Delete",
    "Deleted",
    "Delivery",
    "DeliveryOf",
    "Denied",
    "Done",
    "Failed",
    "Invalid",
    "LeaseLost",
    "Move",
    "NotFound",
    "ObjectEvent",
    "PeekedMessage",
    "Policy",
    "Put",
    "Queue",
    "QueueStats",
    "Read",
    "Redriven",
    "Release",
    "Requests",
    "Retry",
    "Rule",
    "Sent",
    "Settings",
    "Stored",
    "Subscription",
    "Swept",
    "Unavailable",
    "Unfit",
    "Unsupported",
    "aio",
    "connect",
    "history",
]

_HOMES = {
    "bucketmq.changes": ("AsyncChange", "AsyncChanges", "Change", "Changes"),
    "bucketmq.client": ("Bucket", "DeadLetters", "Delivery", "DeliveryOf", "Queue", "Subscription", "connect"),
    "bucketmq.deliveries": ("Batch", "DeadLetter", "PeekedMessage"),
    "bucketmq.engines.meter": ("Requests",),
    "bucketmq.errors": (
        "BucketMQError",
        "Contended",
        "Corrupt",
        "Denied",
        "Invalid",
        "LeaseLost",
        "NotFound",
        "Unavailable",
        "Unfit",
        "Unsupported",
    ),
    "bucketmq.events.event": ("ObjectEvent",),
    "bucketmq.events.rule": ("Policy", "Rule"),
    "bucketmq.outcomes": ("Bury", "Done", "Release", "Retry"),
    "bucketmq.procedures.rules.audit": ("Audited",),
    "bucketmq.procedures.rules.fan_in": ("Complete",),
    "bucketmq.procedures.objects.batches": ("Failed", "Stored"),
    "bucketmq.procedures.objects.move": ("Move",),
    "bucketmq.procedures.objects.put": ("Put",),
    "bucketmq.procedures.objects.read": ("Read",),
    "bucketmq.procedures.objects.remove": ("Delete", "Deleted"),
    "bucketmq.procedures.claiming.redrive": ("Redriven",),
    "bucketmq.procedures.sending.send": ("Sent",),
    "bucketmq.procedures.upkeep.stats": ("QueueStats",),
    "bucketmq.procedures.objects.sweep": ("Swept",),
    "bucketmq.queue.settings": ("Backoff", "Settings"),
    "bucketmq.spark.history.tables": ("history",),
}
"""Where the public names live. A module is imported when one of its names is first used: Spark starts many processes
that need few of them."""

_PARTS = (
    "aio",
    "bucket",
    "changes",
    "client",
    "deliveries",
    "engines",
    "errors",
    "events",
    "log",
    "notify",
    "outcomes",
    "procedures",
    "queue",
    "rulebook",
)
"""Parts of the package that `import bucketmq` makes reachable, as it would if it imported everything."""

if not typing.TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _PARTS:
            return import_module(f"bucketmq.{name}")
        for home, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(home), name)
                return found
        raise AttributeError(f"module 'bucketmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PARTS, "__version__"})
