"""One queue, several subscriptions: each gets every message, at its own pace, and a late one reads it all again."""

import bucketmq


def everything(subscription: bucketmq.Subscription) -> list[str]:
    found = []
    while batch := subscription.receive(100):
        for delivery in batch:
            found.append(delivery.body)
            delivery.ack()
    subscription.flush()
    return found


with bucketmq.connect("inbox") as bucket:
    uploads = bucket.queue("uploads", main=False)  # nobody reads the subscription "main"
    thumbnails = uploads.subscription("thumbnails")
    search = uploads.subscription("search")

    uploads.send_many(["cat.png", "dog.png"])
    print("thumbnails:", everything(thumbnails))
    uploads.send("owl.png")
    print("thumbnails:", everything(thumbnails))
    print("search:", everything(search))

    print("backup, added later:", everything(uploads.subscription("backup", start="earliest")))
    print("from now on:", everything(uploads.subscription("live", start="latest")))

# Output:
# thumbnails: ['cat.png', 'dog.png']
# thumbnails: ['owl.png']
# search: ['cat.png', 'dog.png', 'owl.png']
# backup, added later: ['cat.png', 'dog.png', 'owl.png']
# from now on: []
