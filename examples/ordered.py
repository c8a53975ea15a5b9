"""Order per key: the steps of one order are handled one after the other, other orders do not wait for them."""

import bucketmq

with bucketmq.connect("inbox") as bucket:
    queue = bucket.queue("orders", ordered=True, shards=2)
    steps = [(order, step) for step in ("packed", "sent", "billed") for order in ("A", "B", "C")]
    queue.send_many(steps, key=lambda body: body[0])

    first = [*queue.receive(10), *queue.receive(10)]  # from both shards
    print("in hand:", sorted(delivery.body for delivery in first))

    # Nobody else gets anything of A, B or C now. B fails, and keeps its turn.
    for delivery in first:
        if delivery.key == "B":
            delivery.retry("no tape", delay_seconds=0.2)
        else:
            delivery.ack()

    done: list[tuple[str, str]] = []
    while queue.stats().depth:
        for delivery in queue.receive(10, wait_seconds=1):
            done.append(tuple(delivery.body))
            delivery.ack()
        queue.flush()
    for order in ("A", "B", "C"):
        print(order, [step for each, step in done if each == order])

# Output:
# in hand: [['A', 'packed'], ['B', 'packed'], ['C', 'packed']]
# A ['sent', 'billed']
# B ['packed', 'sent', 'billed']
# C ['sent', 'billed']
