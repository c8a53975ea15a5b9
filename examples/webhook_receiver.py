"""A webhook receiver in FastAPI that checks signatures with the `standardwebhooks` package: the other side of a rule.
It fails the first request and one event of a batch, to show that only what failed comes again."""

import json
import socket
import threading

import fastapi
import uvicorn
from standardwebhooks import Webhook, WebhookVerificationError

import bucketmq

app = fastapi.FastAPI()
SECRETS: list[str] = []
seen: list[str] = []


@app.post("/hook")
async def hook(request: fastapi.Request) -> dict:
    body = await request.body()  # the bytes as they came: the signature is over these
    try:
        Webhook(SECRETS[0]).verify(body, dict(request.headers))
    except WebhookVerificationError:
        raise fastapi.HTTPException(401) from None
    if request.headers["bucketmq-attempt"] == "1" and not seen:
        seen.append("sent us away")
        raise fastapi.HTTPException(503)
    failed = []
    for event in json.loads(body)["events"]:
        key = event["object"]["key"]
        first_time = f"refused {key}" not in seen
        if key == "orders/2.json" and first_time:
            seen.append(f"refused {key}")
            failed.append(event["id"])
        else:
            seen.append(f"took {key}")
    return {"failed": failed}


sock = socket.socket()
sock.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
thread.start()

with bucketmq.connect("shop") as bucket:
    bucket.rules.add(
        "orders",
        to=f"http://127.0.0.1:{sock.getsockname()[1]}/hook",
        private=True,  # a webhook to this machine is refused unless you allow it
        filter='WHERE key LIKE "orders/%"',
        sign=True,  # makes a secret, which the receiver needs too
        batch=10,
        retry_seconds=(0.05, 0.05, 0.05),  # by default seconds to a day
    )
    SECRETS.extend(bucket.rules.secrets("orders").signing)

    for number in range(1, 4):
        bucket.put(f"orders/{number}.json", {"number": number})
    while len([each for each in seen if each.startswith("took")]) < 3:
        bucket.notify(stop_when_empty=True)

    print("\n".join([seen[0], *sorted(seen[1:])]))
    found = bucket.audit("orders")
    print(found.delivered, "delivered,", found.failed_attempts, "failed attempts,", found.missed, "missed")

server.should_exit = True
thread.join()

# Output:
# sent us away
# refused orders/2.json
# took orders/1.json
# took orders/2.json
# took orders/3.json
# 3 delivered, 4 failed attempts, 0 missed
