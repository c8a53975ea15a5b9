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

from bucketmq import aio
from bucketmq.changes import AsyncChange, Change
from bucketmq.client import Bucket, DeadLetters, Delivery, Queue, Subscription, connect
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
    Unsupported,
)
from bucketmq.events.event import ObjectEvent
from bucketmq.events.rule import Policy, Rule
from bucketmq.outcomes import Bury, Done, Release, Retry
from bucketmq.procedures.audit import Audited
from bucketmq.procedures.gather import Complete
from bucketmq.procedures.objects import Read, Stored
from bucketmq.procedures.redrive import Redriven
from bucketmq.procedures.send import Receipt
from bucketmq.procedures.stats import QueueStats
from bucketmq.procedures.sweep import Swept
from bucketmq.queue.settings import Backoff, Settings

__version__ = "0.1.0"

__all__ = [
    "AsyncChange",
    "Audited",
    "Backoff",
    "Batch",
    "Bucket",
    "BucketMQError",
    "Bury",
    "Change",
    "Complete",
    "Contended",
    "Corrupt",
    "DeadLetter",
    "DeadLetters",
    "Delivery",
    "Denied",
    "Done",
    "Invalid",
    "LeaseLost",
    "NotFound",
    "ObjectEvent",
    "PeekedMessage",
    "Policy",
    "Queue",
    "QueueStats",
    "Read",
    "Receipt",
    "Redriven",
    "Release",
    "Requests",
    "Retry",
    "Rule",
    "Settings",
    "Stored",
    "Subscription",
    "Swept",
    "Unavailable",
    "Unsupported",
    "aio",
    "connect",
]
