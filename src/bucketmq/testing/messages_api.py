"""Anthropic's Messages API on this machine, with a model that is a function: for our tests and for users' own.

```python
with messages_api(lambda asked: "Hello!") as there:
    client = anthropic.Anthropic(api_key="any", base_url=there.url)
    ...
    there.asked[0].system, there.asked[0].user
```

The function is asked for every message. What it returns as text is the model's answer; anything else a server may do is
a step (`endpoints`): `refused(429, retry_after_seconds=1)`, `spoken("cut", stop_reason="max_tokens")`, `HangUp()`,
`Silent()`. Requests are checked as the real API checks them: key, version, and the shape of what is asked. Batches wait
until `there.finish(batch_id)`, which asks the function about each of their requests.

It does not stream, count tokens as a model does, or know which models exist.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bucketmq.testing.endpoints import Endpoint, Received, Reply, Step, endpoint

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
AT = "2026-01-01T00:00:00Z"


class Asked(msgspec.Struct, frozen=True):
    """One request for a message."""

    number: int
    """Counted from 1, those of batches included."""
    params: dict[str, Any]
    """The parameters, as they came."""
    headers: dict[str, str]
    custom_id: str | None = None
    """For a request of a batch."""

    @property
    def system(self) -> str:
        return _text(self.params.get("system", ""))

    @property
    def user(self) -> str:
        """All that was said in the user's turns."""
        return "\n".join(_text(each["content"]) for each in self.params["messages"] if each["role"] == "user")


Model = Callable[[Asked], str | Step]


class MessagesApi:
    """What a test sees of the running API."""

    def __init__(self, model: Model) -> None:
        self.url = ""
        self.key: str | None = None
        """If set, the only key that is accepted."""
        self._model = model
        self._lock = threading.Lock()
        self._asked: list[Asked] = []
        self._batches: dict[str, _Batch] = {}
        self._endpoint: Endpoint

    @property
    def asked(self) -> list[Asked]:
        """All requests for messages so far."""
        with self._lock:
            return list(self._asked)

    @property
    def batches(self) -> list[str]:
        """The ids of all batches, oldest first."""
        with self._lock:
            return list(self._batches)

    def requests(self) -> list[Received]:
        """All requests as they arrived, for whatever path."""
        return self._endpoint.requests

    def finish(self, batch_id: str, *, lines: Callable[[list[str]], list[str]] = list) -> None:
        """End a batch: its requests get their answers. `lines` may change the file of results."""
        with self._lock:
            batch = self._batches[batch_id]
        results = []
        for each in batch.requests:
            asked = self._count(each["params"], {}, each["custom_id"])
            results.append({"custom_id": each["custom_id"], "result": _result(self._model(asked))})
        with self._lock:
            batch.results = lines([msgspec.json.encode(each).decode() for each in reversed(results)])

    def attach(self, there: Endpoint) -> None:
        self._endpoint = there
        self.url = there.url

    def answer(self, request: Received) -> Step:
        """What the API does with a request."""
        if (complaint := self._stranger(request)) is not None:
            return complaint
        path = request.path.split("?")[0]
        match (request.method, path.strip("/").split("/")):
            case ("POST", ["v1", "messages"]):
                return self._message(request)
            case ("POST", ["v1", "messages", "batches"]):
                return self._batch(request)
            case ("GET", ["v1", "messages", "batches", batch_id]):
                return self._look(batch_id)
            case ("GET", ["v1", "messages", "batches", batch_id, "results"]):
                return self._results(batch_id)
        return refused(404, f"no such path: {path}")

    def _stranger(self, request: Received) -> Reply | None:
        key = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if not key or (self.key is not None and key != self.key):
            return refused(401, "invalid x-api-key")
        if "anthropic-version" not in request.headers:
            return refused(400, "anthropic-version: header is required")
        return None

    def _message(self, request: Received) -> Step:
        params = _decoded(request.body)
        if (wrong := _wrong(params)) is not None:
            return refused(400, wrong)
        said = self._model(self._count(params, request.headers, None))
        return spoken(said, model=params["model"]) if isinstance(said, str) else said

    def _count(self, params: dict[str, Any], headers: dict[str, str], custom_id: str | None) -> Asked:
        with self._lock:
            asked = Asked(len(self._asked) + 1, params, headers, custom_id)
            self._asked.append(asked)
        return asked

    def _batch(self, request: Received) -> Step:
        body = _decoded(request.body)
        requests = body.get("requests") if isinstance(body, dict) else None
        if not isinstance(requests, list) or not requests:
            return refused(400, "requests: field required")
        for each in requests:
            if (wrong := _wrong(each.get("params"))) is not None:
                return refused(400, wrong)
        ids = [each["custom_id"] for each in requests]
        if len(set(ids)) != len(ids) or not all(0 < len(each) <= 64 for each in ids):
            return refused(400, "custom_id: must be unique and of 1 to 64 characters")
        with self._lock:
            batch_id = f"msgbatch_{len(self._batches) + 1:04}"
            self._batches[batch_id] = _Batch(requests)
        return self._look(batch_id)

    def _look(self, batch_id: str) -> Step:
        with self._lock:
            batch = self._batches.get(batch_id)
        if batch is None:
            return refused(404, f"no batch {batch_id}")
        return _json(batch.document(batch_id, self.url))

    def _results(self, batch_id: str) -> Step:
        with self._lock:
            batch = self._batches.get(batch_id)
        if batch is None or batch.results is None:
            return refused(404, f"no results of batch {batch_id}")
        body = "".join(f"{line}\n" for line in batch.results).encode()
        return Reply(200, {"Content-Type": "application/x-jsonl"}, body)


class _Batch:
    def __init__(self, requests: list[dict[str, Any]]) -> None:
        self.requests = requests
        self.results: list[str] | None = None

    def document(self, batch_id: str, url: str) -> dict[str, Any]:
        ended = self.results is not None
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if self.results is None:
            counts["processing"] = len(self.requests)
        else:
            for line in self.results:
                with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
                    counts[msgspec.json.decode(line)["result"]["type"]] += 1
        return {
            "id": batch_id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": AT,
            "expires_at": AT,
            "ended_at": AT if ended else None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"{url}/v1/messages/batches/{batch_id}/results" if ended else None,
        }


def spoken(
    text: str,
    *,
    model: str = "claude-test",
    stop_reason: str = "end_turn",
    content: list[dict[str, Any]] | None = None,
    input_tokens: int = 100,
    output_tokens: int = 50,
) -> Reply:
    """A message of the model. `content` takes the place of the text where something else was said."""
    return _json(
        {
            "id": "msg_0001",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}] if content is None else content,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }
    )


def refused(status: int, message: str = "", *, retry_after_seconds: float | None = None) -> Reply:
    """An error as the API words it."""
    error = {"type": KINDS.get(status, "api_error"), "message": message or f"status {status}"}
    body = {"type": "error", "error": error}
    headers = {"Content-Type": "application/json"}
    if retry_after_seconds is not None:
        headers["Retry-After"] = f"{retry_after_seconds:g}"
    return Reply(status, headers, msgspec.json.encode(body))


@contextlib.contextmanager
def messages_api(model: Model) -> Iterator[MessagesApi]:
    """Run the API on a free port of 127.0.0.1 while the `with` block lasts."""
    there = MessagesApi(model)
    with endpoint(there.answer, path="") as served:
        there.attach(served)
        yield there


def _result(said: str | Step) -> dict[str, Any]:
    reply = spoken(said) if isinstance(said, str) else said
    if isinstance(reply, Reply) and reply.status == 200:
        return {"type": "succeeded", "message": msgspec.json.decode(reply.body)}
    if isinstance(reply, Reply):
        return {"type": "errored", "error": msgspec.json.decode(reply.body)}
    return {"type": "expired"}


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _wrong(params: Any) -> str | None:
    """What the API would complain about."""
    if not isinstance(params, dict):
        return "the request body is not valid JSON"
    for name, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if not isinstance(params.get(name), kind):
            return f"{name}: field required"
    turns = params["messages"]
    if not turns or not all(isinstance(each, dict) and {"role", "content"} <= set(each) for each in turns):
        return "messages: at least one message with role and content is required"
    return None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(each.get("text", "") for each in content)


def _json(value: Any) -> Reply:
    return Reply(200, {"Content-Type": "application/json"}, msgspec.json.encode(value))
