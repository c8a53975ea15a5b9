"""`docs/format.md` and the code say the same: examples decode, limits and defaults are those in force."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import msgspec
import pytest

from bucketmq.log import documents, segment
from bucketmq.procedures.routing import shard_of
from bucketmq.queue.head import Head
from bucketmq.queue.message import Message
from bucketmq.queue.settings import Settings

from .pages import ROOT, blocks

FORMAT = ROOT / "docs" / "format.md"
TEXT = FORMAT.read_text(encoding="utf-8")

KINDS: dict[str, Any] = {
    "settings": Settings,
    "head": Head,
    "trim": documents.Trim,
    "hint": documents.Hint,
    "dedup": documents.Dedup,
    "later": documents.Later,
    "failure": documents.FailureLine,
    "message": Message,
    "parts": segment.Parts,
}


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


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "log" / "golden").iterdir()), ids=lambda path: path.name)
def test_every_golden_file_is_named(path: Any) -> None:
    assert path.name in TEXT
