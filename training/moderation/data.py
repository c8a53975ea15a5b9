"""The public sets as texts with labels: which set says what about which category, and which texts belong together.

A set knows some categories only. What it does not know is `nan`, and training leaves it out: a tweet that is merely
offensive is not hate speech, but the set does not say whether it is harassment. Texts that are copies of each other, or
cases made from one template, share a group, and a group is never split between training and judging.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from bucketmq.apps.moderation.classify.normalise import plain
from bucketmq.apps.moderation.record import CATEGORIES

UNKNOWN = float("nan")
EVERYDAY = frozenset({("sms", "ham"), ("seeds", "clean"), ("davidson", "neither")})
"""Sets and kinds of what ordinary people write: the measure of how much good is sent to review."""
_SEEDS = Path(__file__).with_name("seeds.jsonl")
_HELD_OUT = Path(__file__).with_name("held_out.jsonl")


class Example(msgspec.Struct, frozen=True):
    """A text and what is known of it: 1 yes, 0 no, `nan` unknown, in the order of `CATEGORIES`."""

    text: str
    labels: tuple[float, ...]
    source: str
    kind: str = ""
    """The set's own name for what it is."""


class _Own(msgspec.Struct):
    text: str
    labels: list[str]
    unknown: list[str] = []


def labels(known: Iterable[str] = (), *, unknown: Iterable[str] = ()) -> tuple[float, ...]:
    """Labels with `known` set, `unknown` left open and all others denied."""
    known, unknown = set(known), set(unknown)
    return tuple(1.0 if name in known else UNKNOWN if name in unknown else 0.0 for name in CATEGORIES)


def read(folder: Path) -> list[Example]:
    """All examples of the five sets, in a fixed order."""
    return [*openai(folder), *hatecheck(folder), *surge(folder), *sms(folder), *davidson(folder)]


def seeds() -> list[Example]:
    """Our own sentences, for training."""
    return list(_own(_SEEDS, "seeds"))


def held_out() -> list[Example]:
    """Our own sentences that nothing was ever trained or tuned on."""
    return list(_own(_HELD_OUT, "own"))


def _own(path: Path, source: str) -> Iterator[Example]:
    for line in path.read_bytes().splitlines():
        own = msgspec.json.decode(line, type=_Own)
        yield Example(own.text, labels(own.labels, unknown=own.unknown), source, ",".join(own.labels) or "clean")


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


_OPENAI = {
    "hate_speech": ("H", "H2"),
    "nsfw": ("S", "S3"),
    "harassment": ("HR",),
    "violence": ("V", "V2"),
    "self_harm": ("SH",),
}


def openai(folder: Path) -> Iterator[Example]:
    """Prompts; a missing label is unknown, and a category is known to be absent only if all of its labels are."""
    with gzip.open(folder / "openai-moderation-train.jsonl.gz", "rb") as file:
        for line in file:
            row = msgspec.json.decode(line)
            known = []
            for name in CATEGORIES:
                marks = [row.get(each) for each in _OPENAI.get(name, ())]
                if name == "spam" or (None not in marks and 1 not in marks):
                    known.append(0.0)
                else:
                    known.append(1.0 if 1 in marks else UNKNOWN)
            yield Example(row["prompt"], tuple(known), "openai")


def hatecheck(folder: Path) -> Iterator[Example]:
    """Functional tests of hate: threats are violence too, abuse of single people is harassment."""
    for row in _rows(folder / "hatecheck-train.csv"):
        kind = row["functionality"]
        if row["label"] == "hateful":
            known = labels(["hate_speech"], unknown=["harassment", "violence"])
        elif kind == "target_indiv_nh":
            known = labels(["harassment"])
        else:
            known = labels(unknown=["harassment"] if kind.startswith(("target", "profanity", "slur")) else [])
        yield Example(row["text"], known, "hatecheck", kind)


def surge(folder: Path) -> Iterator[Example]:
    """Comments: a toxic one attacks a person; the set does not say whether for what they are."""
    for row in _rows(folder / "surge-toxicity-train.csv"):
        toxic = row["label"] == "Toxic"
        open_ones = ["hate_speech", "nsfw", "violence", "self_harm"]
        yield Example(
            row["text"], labels(["harassment"], unknown=open_ones) if toxic else labels(), "surge", row["label"]
        )


def sms(folder: Path) -> Iterator[Example]:
    """Text messages: spam may be of any sort, also for adults."""
    for row in _rows(folder / "sms-spam-train.csv"):
        spam = row["label"] == "spam"
        yield Example(row["text"], labels(["spam"], unknown=["nsfw"]) if spam else labels(), "sms", row["label"])


def davidson(folder: Path) -> Iterator[Example]:
    """Tweets: hateful, offensive only, or neither."""
    for row in _rows(folder / "davidson-tweets-train.csv"):
        kind = row["label"]
        if kind == "hate_speech":
            known = labels(["hate_speech"], unknown=["harassment", "violence", "nsfw"])
        elif kind == "offensive_language":
            known = labels(unknown=["harassment", "violence", "nsfw"])
        else:
            known = labels()
        yield Example(row["text"], known, "davidson", kind)


_TARGET_WORDS = (
    "women woman womans female females girl girls trans transgender people person persons gay gays homosexual "
    "homosexuals lesbian lesbians black blacks african africans disabled disability disabilities muslim "
    "muslims islam islamic immigrant immigrants migrant migrants foreigner foreigners man men guy guys a an "
    "the wimmin womxn"
)
_TARGETS = frozenset(_TARGET_WORDS.split())


def groups(examples: list[Example]) -> list[int]:
    """A group number for each example: equal for near-copies, and for cases of one template with another target."""
    parent = list(range(len(examples)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    holders: dict[tuple[str, ...], list[int]] = defaultdict(list)
    sizes = []
    for i, example in enumerate(examples):
        words = "".join(each if each.isalpha() else " " for each in plain(example.text).text).split()
        size = 3
        if example.source == "hatecheck":
            words, size = [word for word in words if word not in _TARGETS], 2
        words = words if len(words) >= size else [*words, *[""] * (size - len(words))]
        shingles = {(str(size), *words[k : k + size]) for k in range(len(words) - size + 1)}
        sizes.append(len(shingles))
        for shingle in shingles:
            holders[shingle].append(i)
    shared: dict[tuple[int, int], int] = defaultdict(int)
    for those in holders.values():
        if len(those) <= 60:
            for k, a in enumerate(those):
                for b in those[k + 1 :]:
                    shared[a, b] += 1
    for (a, b), count in shared.items():
        if count * 2 >= min(sizes[a], sizes[b]) and count * 4 >= max(sizes[a], sizes[b]):
            first, second = sorted((find(a), find(b)))
            parent[second] = first  # the smaller number stands for all, so groups are the same in every run
    return [find(i) for i in range(len(examples))]
