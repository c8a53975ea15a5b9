"""A work queue: one message of twenty is trouble, the others get done.

Put a bucket's URL in place of the folder, start the second half on as many machines as you like, and nothing changes.
"""

import bucketmq

with bucketmq.connect("inbox") as bucket:
    queue = bucket.queue("pictures", attempts_max=3, backoff=bucketmq.Backoff(first_seconds=0.01, factor=1))

    # Somewhere: something sends.
    queue.send_many({"picture": n} for n in range(20))
    print("sent:", queue.stats().depth)

    # Elsewhere: something works.
    resized: list[int] = []

    @queue.handler
    def resize(delivery: bucketmq.Delivery) -> None:
        if delivery.body["picture"] == 13:
            raise ValueError("not a picture")
        resized.append(delivery.body["picture"])

    while queue.stats().depth:  # a real worker just calls resize.run(concurrency=3), and goes on for ever
        resize.run(concurrency=3, stop_when_empty=True)

    print("resized:", len(resized))
    for letter in queue.dead_letters.peek():
        print("gave up on:", letter.body, "after", len(letter.failures), "attempts:", letter.reason)

# Output:
# sent: 20
# resized: 19
# gave up on: {'picture': 13} after 3 attempts: ValueError: not a picture
