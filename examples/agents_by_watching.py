"""Two agents that never talk to each other: one writes verdicts, the other files what it finds. The bucket is all
they share. Each would be a process of its own, on any machine; here each is a thread with a connection of its own."""

import threading

import bucketmq

POSTS = {"1": "lovely weather today", "2": "BUY NOW, limited offer", "3": "how do I boil an egg?"}


def moderator(running: list, ready: threading.Event) -> None:
    """Reads what was submitted and writes a verdict. Knows nothing of who reads it."""
    with bucketmq.connect("moderation") as bucket:

        @bucket.watch('WHERE `key` REGEXP "^submitted/"', start="beginning")
        def judge(change: bucketmq.Change) -> None:
            post = change.json()
            spam = "BUY" in post["text"]  # a model would be asked here
            change.put(f"pending/{change.name}", {**post, "violation": spam})

        bucket.run_watchers(signals=False, started=lambda notifier: (running.append(notifier), ready.set()))


def router(running: list, ready: threading.Event, filed: threading.Semaphore) -> None:
    """Moves what is pending to where it belongs. Knows nothing of who wrote it."""
    with bucketmq.connect("moderation") as bucket:

        @bucket.watch('WHERE `key` REGEXP "^pending/"', start="beginning")
        def route(change: bucketmq.Change) -> None:
            folder = "flagged" if change.json()["violation"] else "approved"
            change.move(f"{folder}/{change.name}")
            filed.release()

        bucket.run_watchers(signals=False, started=lambda notifier: (running.append(notifier), ready.set()))


running: list = []
filed = threading.Semaphore(0)
agents = []
for agent, extra in ((moderator, ()), (router, (filed,))):
    ready = threading.Event()
    agents.append(threading.Thread(target=agent, args=(running, ready, *extra)))
    agents[-1].start()
    ready.wait()

with bucketmq.connect("moderation") as bucket:
    for name, text in POSTS.items():
        bucket.put(f"submitted/{name}.json", {"id": name, "text": text})
    for _ in POSTS:
        filed.acquire()
    for notifier in running:
        notifier.stop()
    for thread in agents:
        thread.join()

    for prefix in ("pending/", "approved/", "flagged/"):
        print(prefix, list(bucket.rules.matching("", prefix).keys))
    print("flagged in hop", bucket.get("flagged/2.json").hops, "of a chain of writes")

# Output:
# pending/ []
# approved/ ['approved/1.json', 'approved/3.json']
# flagged/ ['flagged/2.json']
# flagged in hop 2 of a chain of writes
