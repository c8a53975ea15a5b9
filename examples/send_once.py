"""A sender that is not sure whether it sent: it repeats itself, and the message is there once."""

import bucketmq

INVOICES = [f"invoice-{n}" for n in range(5)]


def bill_everybody(bucket: bucketmq.Bucket, *, crash_after: int | None = None) -> int:
    """Send every invoice; returns how many of them were new."""
    queue = bucket.queue("billing", dedup_seconds=3600)
    new = 0
    for number, invoice in enumerate(INVOICES):
        if number == crash_after:
            raise KeyboardInterrupt
        new += not queue.send({"invoice": invoice}, dedup_key=invoice).duplicate
    return new


with bucketmq.connect("inbox") as bucket:
    try:
        bill_everybody(bucket, crash_after=3)
    except KeyboardInterrupt:
        print("crashed after three")

with bucketmq.connect("inbox") as bucket:  # started again, with no memory of the first time
    print("new this time:", bill_everybody(bucket))
    print("in the queue:", [delivery.body["invoice"] for delivery in bucket.queue("billing").receive(10)])

# Output:
# crashed after three
# new this time: 2
# in the queue: ['invoice-0', 'invoice-1', 'invoice-2', 'invoice-3', 'invoice-4']
