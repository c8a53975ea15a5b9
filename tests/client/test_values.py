"""What verbs return goes out as JSON: by `json.dumps`, and from a FastAPI route, with and without a declared type."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any, get_type_hints

import msgspec
import pytest

import bucketmq
from bucketmq.api.bucket import BucketApi
from bucketmq.api.dead_letters import DeadApi
from bucketmq.api.queue import QueueApi
from bucketmq.api.rules import RulesApi
from bucketmq.values import Value

fastapi = pytest.importorskip("fastapi")
pydantic = pytest.importorskip("pydantic")
testclient = pytest.importorskip("fastapi.testclient")

NOT_FOR_JSON = {"OpenBucket", "OpenQueue", "OpenSubscription", "Received", "Secrets"}
"""What procedures hand to procedures, and what must not be printed."""


def returned_structs() -> dict[str, type[msgspec.Struct]]:
    """The structs that verbs return, alone or in a list, by what their annotations say."""
    found: dict[str, type[msgspec.Struct]] = {}
    for owner in (BucketApi, QueueApi, DeadApi, RulesApi):
        for name, verb in inspect.getmembers(owner, inspect.isfunction):
            if name.startswith("_") or "return" not in verb.__annotations__:
                continue
            names = vars(sys.modules[verb.__module__])
            for kind in _inside(get_type_hints(verb, {**names})["return"]):
                if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                    found[kind.__name__] = kind
    return found


def _inside(kind: Any) -> Iterator[Any]:
    arguments = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) is Generator:  # a procedure: what it asks and is answered does not count
        arguments = arguments[2:]
    if not arguments:
        yield kind
    for each in arguments:
        yield from _inside(each)


def test_every_struct_that_a_verb_returns_is_a_value() -> None:
    found = returned_structs()
    assert {"QueueStats", "Sent", "Settings", "Stored", "Rule", "Audited", "Swept"} <= set(found)
    assert {name for name, kind in found.items() if not issubclass(kind, Value)} <= NOT_FOR_JSON


@pytest.fixture
def bucket() -> Iterator[bucketmq.Bucket]:
    with bucketmq.connect("memory://", probe=False) as opened:
        queue = opened.queue("jobs", shards=2)
        queue.send_many([{"n": 1}, b"\xff", "three"], key="a", headers={"trace": "1"})
        queue.receive(1)[0].bury("broken")
        queue.flush()
        opened.put("a.json", {"x": 1})
        opened.rules.add("r", to="https://hooks.example/T0/secret", filter="", bearer="token-of-mine")
        yield opened


VALUES: dict[str, Callable[[bucketmq.Bucket], Any]] = {
    "QueueStats": lambda bucket: bucket.queue("jobs").stats(),
    "Settings": lambda bucket: bucket.queue("jobs").settings(),
    "Sent": lambda bucket: bucket.queue("jobs").send(1),
    "Requests": lambda bucket: bucket.requests,
    "Stored": lambda bucket: bucket.put("b.json", {"x": 2}),
    "Read": lambda bucket: bucket.get("a.json"),
    "Found": lambda bucket: bucket.look("a.json"),
    "Rule": lambda bucket: bucket.rules.get("r"),
    "Swept": lambda bucket: bucket.sweep(),
    "Recovered": lambda bucket: bucket.recover(),
    "Audited": lambda bucket: bucket.audit("r"),
    "Tested": lambda bucket: bucket.rules.test("", "a.json"),
    "Matching": lambda bucket: bucket.rules.matching(""),
    "Replayed": lambda bucket: bucket.rules.replay("r", prefix=""),
    "Explanation": lambda bucket: bucket.rules.explain(""),
    "Redriven": lambda bucket: bucket.queue("jobs").dead_letters.redrive(dry_run=True),
    "Trimmed": lambda bucket: bucket.queue("jobs").trim(),
    "ObjectEvent": lambda bucket: bucket.trigger("a.json"),
    "PeekedMessage": lambda bucket: bucket.queue("jobs").peek()[0],
    "DeadLetter": lambda bucket: bucket.queue("jobs").dead_letters.peek()[0],
    "Delivery": lambda bucket: bucket.queue("jobs").receive(1)[0],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_printed_as_json_and_returned_from_a_route(bucket: bucketmq.Bucket, name: str) -> None:
    value = VALUES[name](bucket)
    assert type(value).__name__ == name
    text = json.dumps(value.to_dict())
    app = fastapi.FastAPI()
    app.add_api_route("/plain", lambda: value, response_model=None)
    app.add_api_route("/typed", lambda: value, response_model=type(value))
    app.add_api_route("/many", lambda: [value], response_model=list[type(value)])  # type: ignore[misc]
    with testclient.TestClient(app) as client:
        if not hasattr(value, "keys"):
            assert client.get("/plain").json() == json.loads(text)
        assert client.get("/typed").json() == json.loads(text)
        assert client.get("/many").json() == [json.loads(text)]
        assert client.get("/openapi.json").status_code == 200


def test_the_fields_of_a_value_are_on_the_page_of_the_api() -> None:
    app = fastapi.FastAPI()
    app.add_api_route("/stats", lambda: None, response_model=bucketmq.QueueStats)
    with testclient.TestClient(app) as client:
        page = client.get("/openapi.json").json()
    shown = page["paths"]["/stats"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(bucketmq.QueueStats.__struct_fields__) <= set(shown["properties"])
    assert shown["properties"]["subscriptions"]["items"]["properties"]["name"] == {"type": "string"}


def test_json_has_every_field_also_those_that_the_stored_form_leaves_out(bucket: bucketmq.Bucket) -> None:
    rule = bucket.rules.get("r")
    assert set(rule.to_dict()) == set(bucketmq.Rule.__struct_fields__)
    assert rule.to_dict()["to"]["kind"] == "webhook"
    assert rule.to_dict()["policy"]["concurrency"] == 4


def test_pydantic_reads_a_value_back_and_refuses_another() -> None:
    settings = pydantic.TypeAdapter(bucketmq.Settings)
    assert settings.validate_python({"shards": 3}) == bucketmq.Settings(shards=3)
    assert settings.validate_python(settings.dump_python(bucketmq.Settings(shards=3))) == bucketmq.Settings(shards=3)
    with pytest.raises(pydantic.ValidationError, match="shards"):
        settings.validate_python({"shards": "many"})


def test_bytes_are_base64_and_dead_letters_say_what_went_wrong(bucket: bucketmq.Bucket) -> None:
    queue = bucket.queue("jobs")
    assert [each.to_dict().get("body_base64") for each in queue.peek()] == ["/w==", None]
    (letter,) = queue.dead_letters.peek()
    row = letter.to_dict()
    assert (row["reason"], row["body"], row["key"], row["headers"]) == ("broken", {"n": 1}, "a", {"trace": "1"})
