"""`docs/format.md` and the code say the same: examples decode, limits and defaults are those in force."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import msgspec
import pytest

from bucketmq.events.event import ObjectEvent
from bucketmq.events.inventory import Item, Manifest
from bucketmq.events.rule import Policy, Rule, Secrets, Webhook
from bucketmq.log import documents, segment
from bucketmq.log.layout import BOOKKEEPING
from bucketmq.procedures.archive import Archive
from bucketmq.procedures.events import Attempt
from bucketmq.procedures.gather import Gathering
from bucketmq.procedures.notes import Note
from bucketmq.procedures.orphans import Orphans
from bucketmq.procedures.publish import Publication
from bucketmq.procedures.queues import DELIVERIES, EVENTS, FIRST_SETTINGS
from bucketmq.procedures.readers import Reader
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.stamps import OWN_METADATA
from bucketmq.queue.head import Head
from bucketmq.queue.message import Message
from bucketmq.queue.settings import Settings

from .pages import ROOT, blocks

FORMAT = ROOT / "docs" / "format.md"
TEXT = FORMAT.read_text(encoding="utf-8")

KINDS: dict[str, Any] = {
    "publication": Publication,
    "archive": Archive,
    "reader": Reader,
    "orphans": Orphans,
    "settings": Settings,
    "head": Head,
    "trim": documents.Trim,
    "hint": documents.Hint,
    "dedup": documents.Dedup,
    "later": documents.Later,
    "failure": documents.FailureLine,
    "message": Message,
    "parts": segment.Parts,
    "event-line": Message,
    "attempt-line": Message,
    "rule": Rule,
    "secrets": Secrets,
    "set": Gathering,
    "note": Note,
    "manifest": Manifest,
    "item": Item,
}
BODIES: dict[str, Any] = {"event-line": ObjectEvent, "attempt-line": Attempt}
"""What the messages of these blocks hold."""


def test_every_example_is_what_it_says() -> None:
    seen = set()
    for block in blocks(FORMAT):
        if block.language not in ("json", "ndjson"):
            continue
        assert len(block.words) == 2, f"{block.where} does not say what it shows"
        kind = block.words[1]
        seen.add(kind)
        lines = [block.code] if block.language == "json" else block.code.splitlines()
        for line in lines:
            value = msgspec.json.decode(line.encode(), type=KINDS[kind])
            given = json.loads(line)
            assert json.loads(msgspec.json.encode(value)) == given, f"{block.where} is not how it is written"
            if kind in BODIES:
                body = msgspec.convert(value.body, BODIES[kind])
                assert json.loads(msgspec.json.encode(body)) == given["body"], f"{block.where} holds something else"
    assert seen == set(KINDS)


def test_every_limit_is_the_one_in_force() -> None:
    rows = re.findall(r"^\| .*? \| ([\d,.]+)(?: [a-zA-Z]+)? \| `([\w.]+)\.(\w+)` \|$", TEXT, re.M)
    assert len(rows) >= 20
    for value, module, name in rows:
        assert getattr(importlib.import_module(f"bucketmq.{module}"), name) == float(value.replace(",", "")), name


def test_the_settings_table_has_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [\w ]+ \| `([^`]*)` \| ", TEXT, re.M))
    defaults: dict[str, Any] = msgspec.to_builtins(Settings())

    assert {name: json.loads(value) for name, value in rows.items() if name in defaults} == json.loads(
        json.dumps(defaults)
    )


def test_the_routing_examples_hold() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", TEXT, re.M)
    assert len(rows) >= 4
    for key, *shards in rows:
        assert [shard_of(count, key, 0) for count in (2, 4, 8, 1024)] == [int(shard) for shard in shards]


@pytest.mark.parametrize(
    ("heading", "kind", "told_elsewhere"),
    [
        ("A webhook has:", Webhook, set()),
        ("A policy has:", Policy, set()),
        ("```ndjson item", Manifest, {"revision", "format"}),
    ],
)
def test_a_table_of_the_event_bus_has_every_field_with_its_default(
    heading: str, kind: Any, told_elsewhere: set[str]
) -> None:
    table = re.search(r"^\| field \| meaning \| default \|\n\|[-|]+\n((?:\|.*\n)+)", TEXT[TEXT.index(heading) :], re.M)
    assert table is not None
    rows = re.findall(r"^\| `(\w+)` \|.*\| (?:`([^`]*)` )?\|$", table[1], re.M)
    written = {name: json.loads(default) if default else None for name, default in rows}

    fields = [field for field in msgspec.structs.fields(kind) if field.name not in told_elsewhere]
    assert written == {field.name: None if field.required else _in_full(field) for field in fields}


def _in_full(field: msgspec.structs.FieldInfo) -> Any:
    """A field's default as JSON, with whatever would be left out of it."""
    default = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    if isinstance(default, msgspec.Struct):
        return {name: getattr(default, name) for name in default.__struct_fields__}
    return list(default) if isinstance(default, tuple) else default


@pytest.mark.parametrize(("name", "kind"), [("### 11.2 Events", ObjectEvent), ("### 11.4 Rules", Rule)])
def test_the_page_names_every_field(name: str, kind: Any) -> None:
    section = TEXT[TEXT.index(name) :].split("\n### ")[0]
    fields = set(kind.__struct_fields__) - {"format", "revision"}

    assert {field for field in fields if f"`{field}`" not in section} == set()


def test_the_page_names_our_keys_and_our_metadata() -> None:
    section = TEXT[TEXT.index("## 11. The event bus") :]

    assert [each for each in (*BOOKKEEPING, *OWN_METADATA) if f"`{each}`" not in section] == []


def test_the_queues_of_the_event_bus_are_made_as_the_page_says() -> None:
    plain: dict[str, Any] = msgspec.to_builtins(Settings())
    for queue in (EVENTS, DELIVERIES):
        sentence = re.search(rf"The queue `{queue}` is made with (.*?)\.", TEXT, re.S)
        assert sentence is not None
        said = {name: json.loads(value) for name, value in re.findall(r"`(\w+)` (\w+)", sentence[1])}
        made: dict[str, Any] = msgspec.to_builtins(FIRST_SETTINGS[queue])
        assert said == {name: value for name, value in made.items() if value != plain[name]}


GOLDEN = sorted(path for part in ("log", "events") for path in (ROOT / "tests" / part / "golden").iterdir())


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_every_golden_file_is_named(path: Any) -> None:
    assert path.name in TEXT
