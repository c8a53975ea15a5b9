"""Alerts out of logs: a rule whose filter looks into the JSON of the object, so only what matters is fetched, matched
and queued. The program that alerts is an ordinary worker."""

import bucketmq

with bucketmq.connect("logs") as bucket:
    filter = 'WHERE key LIKE "logs/%.json" AND body.level IN ("error", "fatal") AND NOT body.known = true'
    bucket.rules.add("alerts", to="queue:alerts", filter=filter)
    print(bucket.rules.explain(filter).cost)

    bucket.put("logs/1.json", {"level": "info", "text": "started"})
    bucket.put("logs/2.json", {"level": "error", "text": "disk full", "host": {"name": "db-1"}, "known": False})
    bucket.put("logs/3.json", {"level": "error", "text": "flaky sensor", "known": True})
    bucket.put("logs/4.txt", "error: not JSON, so it has no level")
    bucket.put("logs/5.json", {"level": "fatal", "text": "kernel panic", "known": False})

    bucket.notify(stop_when_empty=True)  # leave out stop_when_empty to run for ever

    for delivery in bucket.queue("alerts").receive(10):
        event = delivery.body
        print("alert:", bucket.get_json(event["key"])["text"])
        delivery.ack()

    for key in ("logs/2.json", "logs/3.json"):
        tested = bucket.rules.test(filter, key)
        print(key, tested.matches, [why.condition for why in tested.why if why.decides and not tested.matches])

# Output:
# one GET of up to 1,048,576 bytes for events that pass the rest
# alert: disk full
# alert: kernel panic
# logs/2.json True []
# logs/3.json False ['body.known = true']
