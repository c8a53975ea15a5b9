"""BucketMQ turns a bucket you already have into a message queue.

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
from bucketmq.outcomes import Bury, Done, Release, Retry
from bucketmq.procedures.redrive import Redriven
from bucketmq.procedures.send import Receipt
from bucketmq.procedures.stats import QueueStats
from bucketmq.queue.settings import Backoff, Settings

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Batch",
    "Bucket",
    "BucketMQError",
    "Bury",
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
    "PeekedMessage",
    "Queue",
    "QueueStats",
    "Receipt",
    "Redriven",
    "Release",
    "Requests",
    "Retry",
    "Settings",
    "Subscription",
    "Unavailable",
    "Unsupported",
    "aio",
    "connect",
]
