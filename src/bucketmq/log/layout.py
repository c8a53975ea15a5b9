"""Where things lie in a bucket: every key this project writes is made here, and nowhere else."""

from __future__ import annotations

import functools
import hashlib
from functools import cached_property

import msgspec

from bucketmq.errors import Corrupt

SUFFIX = ".ndjson"
ARCHIVED_SUFFIX = ".parquet"

BOOKKEEPING = frozenset({"queues", "rules", "inventory", "tables", "probe", "doctor", "bucketmq"})
"""The first parts of keys below a bucket's prefix that are this project's own. Users' objects have other names."""


def join(*parts: str) -> str:
    """Key parts joined, empty ones left out."""
    return "/".join(filter(None, parts))


@functools.lru_cache(maxsize=1024)
def _root(prefix: str, folder: str, name: str) -> str:
    """The folder of one queue or table: every key below it begins so."""
    return join(prefix, folder, name)


def is_bookkeeping(key: str) -> bool:
    """Whether a key below the bucket's prefix is this project's own. Such keys never make events."""
    return key.split("/", 1)[0] in BOOKKEEPING or key.startswith(".bucketmq/")


def is_secret(key: str) -> bool:
    """Whether what lies at a key must be kept from other users of a machine: see `EventKeys.secrets`."""
    return key.endswith(".secrets.json")


def _below(name: str) -> cached_property[str]:
    """A key, or the folder of some, below the root of a queue or table."""
    return cached_property(lambda keys: f"{keys.root}/{name}")


class EventKeys(msgspec.Struct, frozen=True):
    """The keys of rules, inventories and notes below a bucket's prefix."""

    prefix: str

    @property
    def rules(self) -> str:
        return join(self.prefix, "rules") + "/"

    def rule(self, name: str) -> str:
        return f"{self.rules}{name}.json"

    def secrets(self, name: str) -> str:
        return f"{self.rules}{name}.secrets.json"

    def gatherings(self, subscription: str) -> str:
        """What a fan-in has gathered, by the subscription of its rule."""
        return join(self.prefix, "inventory", "sets", subscription) + "/"

    def gathering(self, subscription: str, name: str) -> str:
        """What a fan-in has gathered of one set."""
        return f"{self.gatherings(subscription)}{name}.json"

    @property
    def notes(self) -> str:
        return join(self.prefix, "inventory", "notes") + "/"

    def note(self, name: str) -> str:
        return f"{self.notes}{name}.json"

    def note_name(self, key: str) -> str:
        """The other way round."""
        return key.removeprefix(self.notes).removesuffix(".json")

    def lineage(self, pipeline: str, source: str) -> str:
        """What a pipeline has made of one source object."""
        return f"{self.lineages(pipeline)}{hashlib.sha256(source.encode()).hexdigest()[:40]}.json"

    def lineages(self, pipeline: str = "") -> str:
        """Where those of a pipeline lie, or of all."""
        return join(self.prefix, "inventory", "lineage", *([pipeline] if pipeline else [])) + "/"

    @property
    def home(self) -> str:
        """What the bucket is called in registers of others."""
        return join(self.prefix, "inventory", "home.json")

    def seen(self, handler: str) -> str:
        """The `webhook-id`s that a mounted handler has dealt with."""
        return join(self.prefix, "inventory", "seen", handler) + "/"

    def states(self, pipeline: str, stage: str) -> str:
        """What a stage of a pipeline keeps for its keys."""
        return join(self.prefix, "inventory", "state", pipeline, stage) + "/"

    def state(self, pipeline: str, stage: str, name: str) -> str:
        return f"{self.states(pipeline, stage)}{name}.json"

    def manifest(self, sweep: str) -> str:
        return join(self.prefix, "inventory", "sweeps", sweep, "manifest.json")

    def chunks(self, sweep: str) -> str:
        return join(self.prefix, "inventory", "sweeps", sweep, "chunks") + "/"

    def chunk(self, sweep: str, name: str) -> str:
        return f"{self.chunks(sweep)}{name}{SUFFIX}"


class TableKeys(msgspec.Struct, frozen=True, dict=True):
    """The keys of one table below a bucket's prefix."""

    prefix: str
    table: str

    head = _below("head.json")
    data = _below("data/")
    unused = _below("unused.json")
    """The files that no head named when it was last looked (see `procedures.tables.unused`)."""

    @cached_property
    def root(self) -> str:
        return _root(self.prefix, "tables", self.table)

    def file(self, name: str) -> str:
        """The file of a shard, below the table's root: heads name it so."""
        return f"data/{name}.parquet"

    def at(self, file: str) -> str:
        """The whole key of a file that a head names."""
        return f"{self.root}/{file}"


class QueueKeys(msgspec.Struct, frozen=True, dict=True):
    """The keys of one queue below a bucket's prefix."""

    prefix: str
    queue: str

    settings = _below("queue.json")
    logs = _below("log/")
    heads = _below("heads/")
    laters = _below("later/")
    later_register = _below("later.json")
    failures = _below("failures/")
    bodies = _below("bodies/")
    parts = _below("parts/")
    publications = _below("spark/")
    readers = _below("readers/")
    orphans = _below("orphans.json")
    """When orphans were last looked for (see `procedures.bulk.orphans`)."""
    archive = _below("archive.json")
    """The register of what is archived (see `procedures.upkeep.archive`)."""
    archived = _below("archive/")
    losses = _below("losses.json")
    """The register of messages that are gone (see `procedures.segments.losses`)."""

    @cached_property
    def root(self) -> str:
        return _root(self.prefix, "queues", self.queue)

    def log(self, shard: int) -> str:
        """The folder of a shard's segments, with the slash at the end that listings want."""
        return f"{self.logs}{shard}/"

    def segment(self, shard: int, base: int) -> str:
        return f"{self.log(shard)}{base:020}{SUFFIX}"

    def head(self, subscription: str, shard: int) -> str:
        return f"{self.heads}{subscription}/{shard}.json"

    def trim(self, shard: int) -> str:
        return f"{self.root}/trim/{shard}.json"

    def hint(self, shard: int) -> str:
        return f"{self.root}/hint/{shard}.json"

    def dedup(self, slot: int, digits: str = "") -> str:
        """A register of deduplication keys; `digits` of their hash, where registers have split."""
        return f"{self.root}/dedup/{slot}{digits and '-'}{digits}.json"

    def later(self, due_seconds: int, name: str) -> str:
        return f"{self.laters}{due_seconds:012}/{name}{SUFFIX}"

    def failure(self, name: str) -> str:
        return f"{self.failures}{name}{SUFFIX}"

    def body(self, name: str) -> str:
        return f"{self.bodies}{name}"

    def part(self, transaction: str, name: str) -> str:
        """Lines that a bulk writer made for a segment of parts."""
        return f"{self.parts}{transaction}/{name}{SUFFIX}"

    def publication(self, transaction: str) -> str:
        """The register of what a transaction published (see `procedures.bulk.publish`)."""
        return f"{self.publications}{transaction}.json"

    def reader(self, name: str) -> str:
        """How far a reader that keeps its progress elsewhere has come (see `procedures.upkeep.readers`)."""
        return f"{self.readers}{name}.json"

    def damaged(self, name: str, key: str) -> str:
        """The copy of an object of this queue that was damaged and has been replaced."""
        return f"{self.root}/damaged/{name}/{key.removeprefix(self.root + '/')}"

    def archived_file(self, date: str, shard: int, start: int, end: int) -> str:
        """What was sent on a day, of the offsets `start` up to `end`, not included."""
        return f"{self.archived}date={date}/{shard}-{start:020}-{end:020}{ARCHIVED_SUFFIX}"


def base_of(segment_key: str) -> int:
    """The base offset a segment's key names."""
    name = segment_key.rsplit("/", 1)[-1]
    digits = _number(name.removesuffix(SUFFIX))
    if len(digits) != 20 or not name.endswith(SUFFIX):
        raise Corrupt(f"{segment_key} lies among the segments but is not one; move it away")
    return int(digits)


def due_of(later_key: str) -> int:
    """The second, on the store's clock, at which a delayed object is due."""
    parts = later_key.rsplit("/", 2)
    if len(parts) != 3 or len(_number(parts[1])) != 12 or not later_key.endswith(SUFFIX):
        raise Corrupt(f"{later_key} lies among the delayed messages but is not one; move it away")
    return int(parts[1])


def head_of(heads_key: str) -> tuple[str, int]:
    """The subscription and the shard that a head's key names."""
    parts = heads_key.removesuffix(".json").rsplit("/", 2)
    if len(parts) != 3 or not 1 <= len(_number(parts[2])) <= 4 or not heads_key.endswith(".json"):
        raise Corrupt(f"{heads_key} lies among the heads but is not one; move it away")
    return parts[1], int(parts[2])


def place_of_head(key: str) -> tuple[str, str] | None:
    """The queue and the subscription whose head a whole key names; None if it is another object's."""
    parts = key.split("/")
    is_head = len(parts) >= 5 and parts[-5] == "queues" and parts[-3] == "heads"
    return (parts[-4], parts[-2]) if is_head else None


def archived_of(key: str) -> tuple[str, int, int, int]:
    """The date, the shard and the offsets, from and up to, that the key of an archived file names."""
    parts = key.rsplit("/", 2)
    day, name = parts[-2:] if len(parts) == 3 else ("", "")
    numbers = [_number(each) for each in name.removesuffix(ARCHIVED_SUFFIX).split("-")]
    shard, *range_ = [len(each) for each in numbers]
    fits = day.startswith("date=") and name.endswith(ARCHIVED_SUFFIX) and range_ == [20, 20] and 1 <= shard <= 4
    if not fits:
        raise Corrupt(f"{key} lies among the archived files but is not one; move it away")
    date = day.removeprefix("date=")
    return date, int(numbers[0]), int(numbers[1]), int(numbers[2])


def reader_of(readers_key: str) -> str:
    """The name of a reader that its key has."""
    name = readers_key.rsplit("/", 1)[-1]
    if not name.endswith(".json"):
        raise Corrupt(f"{readers_key} lies among the readers but is not one; move it away")
    return name.removesuffix(".json")


def _number(text: str) -> str:
    """`text` if it is plain digits, else nothing."""
    return text if text.isascii() and text.isdecimal() else ""
