"""A pipeline: two stages between a queue and objects, one row is trouble, the others arrive.

A stage is a function over a batch of rows. Here a worker runs the pipeline, one message at a time. On Spark it runs on
thousands of rows at a time, with the same results: `bucketmq.spark.start(invoicing, url, spark, checkpoint=...)`.
Needs the package `pyarrow`.
"""

from typing import Any

import bucketmq
from bucketmq.pipeline import FromQueue, Pipeline, ToObjects, stage

ORDER = "id string, customer string, items array<struct<price: double, count: int>>"


@stage(takes=ORDER, gives="id string, customer string, total double")
def add_up(batch: Any) -> Any:
    orders = batch.to_pylist()
    totals = [sum(item["price"] * item["count"] for item in order["items"]) for order in orders]
    return {"id": batch.column("id"), "customer": batch.column("customer"), "total": totals}


@stage(takes="id string, customer string, total double", gives="id string, customer string, text string")
def write_out(batch: Any) -> Any:
    orders = batch.to_pylist()
    if any(order["total"] <= 0 for order in orders):
        raise ValueError("an order that costs nothing")
    texts = [f"Invoice {order['id']}\n{order['customer']} owes {order['total']:.2f}\n" for order in orders]
    return {"id": batch.column("id"), "customer": batch.column("customer"), "text": texts}


invoicing = Pipeline(
    name="invoicing",
    source=FromQueue("orders", ORDER),
    stages=(add_up, write_out),
    target=ToObjects(template="invoices/{customer}/{id}.txt", body="text"),
)

with bucketmq.connect("shop") as bucket:
    orders = bucket.queue("orders")
    orders.send({"id": "1", "customer": "rosa", "items": [{"price": 2.5, "count": 4}, {"price": 1.0, "count": 2}]})
    orders.send({"id": "2", "customer": "omar", "items": []})
    orders.send({"id": "3", "customer": "../omar", "items": [{"price": 99.0, "count": 1}]})

    orders.run(invoicing.watcher(bucket), stop_when_empty=True)

    for key in bucket.rules.matching('WHERE `key` LIKE "invoices/%"').keys:
        print(key, "|", bucket.get(key).body.decode().replace("\n", " ").strip())
    for letter in orders.dead_letters.peek():
        print("failed:", letter.body["id"], letter.reason)

# Output:
# invoices/..%2Fomar/3.txt | Invoice 3 ../omar owes 99.00
# invoices/rosa/1.txt | Invoice 1 rosa owes 12.00
# failed: 2 stage write_out: ValueError: an order that costs nothing
