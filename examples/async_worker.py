"""A hundred coroutines send at the same time, and share a few writes; then an async handler works them off."""

import asyncio

import bucketmq


async def main() -> None:
    async with bucketmq.aio.connect("inbox") as bucket:
        queue = bucket.queue("pages")
        before = bucket.requests.create
        await asyncio.gather(*(queue.send({"page": n}) for n in range(100)))
        print("sent 100 messages with fewer than 30 writes:", bucket.requests.create - before < 30)

        fetched: list[int] = []

        async def fetch(delivery: bucketmq.aio.Delivery) -> None:
            await asyncio.sleep(0.001)  # a page is fetched here
            fetched.append(delivery.body["page"])

        await queue.run(fetch, concurrency=20, stop_when_empty=True)
        print("fetched:", len(set(fetched)))
        print("left:", (await queue.stats()).depth)


asyncio.run(main())

# Output:
# sent 100 messages with fewer than 30 writes: True
# fetched: 100
# left: 0
