"""The pages below `docs/format` and the code say the same: examples decode, limits and defaults are those in force."""

from __future__ import annotations

import json
import pkgutil
import re
from typing import Any, get_args

import msgspec
import pytest

from bucketmq.apps.artifacts import environments as artifacts
from bucketmq.apps.artifacts import keys as trusting
from bucketmq.apps.artifacts import manifest as manifests
from bucketmq.apps.documents.serving import Serving
from bucketmq.apps.images.facts import AltFacts, PolicyFacts, TextFacts, ThumbnailFacts
from bucketmq.apps.logs.alerts import Alert
from bucketmq.apps.logs.models import Model, Template
from bucketmq.apps.moderation import queues as moderation
from bucketmq.apps.moderation.audit import Did, Line
from bucketmq.apps.moderation.places import ESCALATED
from bucketmq.apps.moderation.record import CATEGORIES, OUTCOMES, PENDING, REVIEWED, Record
from bucketmq.apps.moderation.register import POSTS, Chapter, Decision, Register, Review, Undone
from bucketmq.apps.research import plan as research
from bucketmq.apps.research import record as research_record
from bucketmq.events.event import ObjectEvent
from bucketmq.events.inventory import Item, Manifest
from bucketmq.events.rule import Policy, Rule, Secrets, Webhook
from bucketmq.log import documents, segment
from bucketmq.log.figures import Stretch
from bucketmq.log.layout import BOOKKEEPING, QueueKeys
from bucketmq.log.reports import Report
from bucketmq.pipeline.lineage import Home, Lineage
from bucketmq.pipeline.registers import State
from bucketmq.procedures.bulk.orphans import Orphans
from bucketmq.procedures.bulk.publish import Publication
from bucketmq.procedures.objects.metadata import OWN_METADATA
from bucketmq.procedures.objects.notes import BatchNote, Note
from bucketmq.procedures.queues import ACTIONS, DELIVERIES, EVENTS, FIRST_SETTINGS
from bucketmq.procedures.rules.fan_in import Gathering
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.procedures.segments.losses import Losses
from bucketmq.procedures.tables.files import Footer
from bucketmq.procedures.tables.unused import Unused
from bucketmq.procedures.upkeep.archive import Archive
from bucketmq.procedures.upkeep.readers import Reader
from bucketmq.queue.head import Head
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of
from bucketmq.queue.settings import Settings
from bucketmq.server.actions import Action
from bucketmq.server.seen import SeenId
from bucketmq.tables.head import Head as TableHead
from bucketmq.tables.head import Shape, Shard
from docs.pages import ROOT, blocks

FOLDER = ROOT / "docs" / "format"
PAGES = {name: FOLDER / f"{name}.md" for name in ("README", "queues", "protocols", "events", "tables", "applications")}
"""In the order of their sections, as far as a page has neighbouring ones."""
TEXTS = {name: page.read_text(encoding="utf-8") for name, page in PAGES.items()}
TEXT = "\n".join(TEXTS.values())

KINDS: dict[str, Any] = {
    "action": Action,
    "figures": Stretch,
    "report": Report,
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
    "batch-note": BatchNote,
    "manifest": Manifest,
    "item": Item,
    "seen": SeenId,
    "state": State,
    "lineage": Lineage,
    "home": Home,
    "losses": Losses,
    "table": TableHead,
    "footer": Footer,
    "unused": Unused,
    "post": Register,
    "record": Record,
    "review": dict[str, Any],
    "submission": dict[str, Any],
    "audit": Line,
    "artifact": manifests.ManifestDocument,
    "trust": trusting.Trust,
    "pointer": artifacts.Pointer,
    "approval": artifacts.Approval,
    "deploy-report": artifacts.Report,
    "study-plan": research.Plan,
    "study-round": research_record.Round,
    "trial": research.Job,
    "study-result": research_record.Result,
    "study-end": research_record.Closed,
    "image-thumbnails": ThumbnailFacts,
    "image-policy": PolicyFacts,
    "image-text": TextFacts,
    "image-alt": AltFacts,
    "log-model": Model,
    "alert": dict[str, Any],
    "serving": Serving,
}
BODIES: dict[str, Any] = {"event-line": ObjectEvent, "attempt-line": Attempt}
"""What the messages of these blocks hold."""


def test_every_example_is_what_it_says() -> None:
    seen = set()
    for block in (block for page in PAGES.values() for block in blocks(page)):
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
    rows = re.findall(r"^\| .*? \| ([\d,.]+)(?: [a-zA-Z]+)? \| `([\w.]+)` \|$", TEXT, re.M)
    assert len(rows) >= 20
    for value, name in rows:
        assert pkgutil.resolve_name(f"bucketmq.{name}") == float(value.replace(",", "")), name


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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("### 11.2 Events", ObjectEvent),
        ("### 11.4 Rules", Rule),
        ("### 11.12 Lineage", Lineage),
        ("### 13.1 The head", TableHead),
        ("### 13.1 The head", Shape),
        ("### 13.1 The head", Shard),
        ("### 12.2 The register of a post", Register),
        ("### 12.2 The register of a post", Decision),
        ("### 12.2 The register of a post", Review),
        ("### 12.2 The register of a post", Undone),
        ("### 12.2 The register of a post", Chapter),
        ("### 12.3 Records", Record),
        ("### 12.5 Queues of moderation", Line),
        ("### 16.2 Manifests", manifests.ManifestDocument),
        ("### 16.2 Manifests", manifests.Manifest),
        ("### 16.2 Manifests", manifests.File),
        ("### 16.3 Trust", trusting.Trust),
        ("### 16.3 Trust", trusting.TrustedKey),
        ("### 16.3 Trust", trusting.Environment),
        ("### 16.4 Pointers", artifacts.Pointer),
        ("### 16.4 Pointers", artifacts.State),
        ("### 16.5 Approvals and reports", artifacts.Approval),
        ("### 16.5 Approvals and reports", artifacts.Report),
        ("### 17.2 The plan", research.Plan),
        ("### 17.2 The plan", research.Search),
        ("### 17.3 Rounds and trials", research_record.Round),
        ("### 17.4 Results", research_record.Result),
        ("### 17.5 The end of a study", research_record.Closed),
        ("### 18.2 The model of a service", Model),
        ("### 18.2 The model of a service", Template),
        ("### 18.3 Alerts", Alert),
        ("### 13.1 The log of actions", Action),
        ("### 13.2 Figures over time", Stretch),
    ],
)
def test_the_page_names_every_field(name: str, kind: Any) -> None:
    section = TEXT[TEXT.index(name) :].split("\n### ")[0]
    fields = set(kind.__struct_fields__) - ({"format", "revision"} if kind in (ObjectEvent, Rule) else {"format"})

    assert {field for field in fields if f"`{field}`" not in section} == set()


def test_the_page_names_our_keys_and_our_metadata() -> None:
    assert [each for each in (*BOOKKEEPING, *OWN_METADATA) if f"`{each}`" not in TEXTS["events"]] == []


def test_the_queues_of_the_event_bus_are_made_as_the_page_says() -> None:
    plain: dict[str, Any] = msgspec.to_builtins(Settings())
    for queue in (EVENTS, DELIVERIES, ACTIONS):
        made: dict[str, Any] = msgspec.to_builtins(FIRST_SETTINGS[queue])
        assert _made_with(queue) == {name: value for name, value in made.items() if value != plain[name]}


def test_the_queues_of_moderation_are_made_as_the_page_says() -> None:
    for queue, settings in moderation.FIRST_SETTINGS.items():
        assert _made_with(queue) == settings


def test_the_queues_and_kinds_of_research_are_as_the_page_says() -> None:
    for queue, settings in research_record.FIRST_SETTINGS.items():
        assert _made_with(queue) == settings
    for kind in (*get_args(research_record.Kind), *get_args(research_record.Why)):
        assert f"`{kind}`" in TEXTS["applications"]


def test_the_page_names_everything_that_moderation_stores() -> None:
    stored = (POSTS, PENDING, *OUTCOMES, REVIEWED, ESCALATED, *CATEGORIES, *get_args(Did))
    names = (
        *stored,
        moderation.SUBMISSIONS,
        moderation.AUDIT,
        moderation.DECISIONS,
        moderation.CHORES,
        moderation.READER,
    )

    assert [name for name in names if name not in TEXTS["applications"]] == []


def test_every_object_of_a_queue_is_in_the_table_of_names() -> None:
    """Each property and method of `QueueKeys` makes a key; its first part below the queue's root has a row."""
    keys = QueueKeys("", "q")
    made = [
        keys.losses,
        keys.archive,
        keys.orphans,
        keys.settings,
        keys.later_register,
        keys.damaged("n", keys.settings),
    ]
    made += [
        keys.hint(0),
        keys.trim(0),
        keys.head("main", 0),
        keys.segment(0, 0),
        keys.publication("t"),
        keys.reader("r"),
    ]
    made += [keys.parts, keys.laters, keys.archived]
    named = {row.split("/")[0] for row in re.findall(r"^\| `([^`]+)`", TEXTS["README"], re.M)}

    assert [key for key in made if key.removeprefix(f"{keys.root}/").split("/")[0] not in named] == []


def _made_with(queue: str) -> dict[str, Any]:
    """The settings that a page says a queue is made with."""
    sentence = re.search(rf"The queue `{queue}` is made with (.*?)\.", TEXT, re.S)
    assert sentence is not None
    return {name: json.loads(value) for name, value in re.findall(r"`(\w+)` (\w+)", sentence[1])}


GOLDEN = sorted(
    path for part in ("log", "events", "pipeline", "tables") for path in (ROOT / "tests" / part / "golden").iterdir()
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_every_golden_file_is_named(path: Any) -> None:
    assert path.name in TEXT
