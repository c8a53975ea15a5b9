"""What keeps failing is kept, with its history. Look at it, repair the cause, send it again."""

import bucketmq

BROKEN = {"smtp": True}

with bucketmq.connect("inbox") as bucket:
    queue = bucket.queue("mail", attempts_max=2, backoff=bucketmq.Backoff(first_seconds=0.01, factor=1))
    queue.send_many([{"to": "ada@example.com"}, {"to": "bob@example.net"}, {"to": "nobody"}])

    def deliver(delivery: bucketmq.Delivery) -> bucketmq.Bury | None:
        if "@" not in delivery.body["to"]:
            return bucketmq.Bury("not an address")  # trying again cannot help
        if BROKEN["smtp"] and delivery.body["to"].endswith(".com"):
            raise ConnectionError("no route to example.com")
        print("delivered to", delivery.body["to"])
        return None

    def work() -> None:
        while queue.stats().depth:
            queue.run(deliver, stop_when_empty=True)

    work()
    for letter in sorted(queue.dead_letters.peek(), key=lambda letter: letter.body["to"]):
        print("dead:", letter.body["to"], "|", letter.reason, "| attempts:", len(letter.failures))

    BROKEN["smtp"] = False
    repaired = queue.dead_letters.redrive(where=lambda letter: "no route" in letter.reason)
    print("sent again:", repaired.redriven)
    work()
    print("still dead:", queue.stats().dead)

# Output:
# delivered to bob@example.net
# dead: ada@example.com | ConnectionError: no route to example.com | attempts: 2
# dead: nobody | not an address | attempts: 1
# sent again: 1
# delivered to ada@example.com
# still dead: 1
