"""What a chunk speaks of: the entities in it, and what it says that one does to another. Evidence for the graph. Pure.

Patterns find what has a form (addresses, versions, identifiers), capitals find names. Whether a name is worth a node
depends on other chunks and is decided by `graph`: here is only what this chunk says, so that a chunk that goes takes
exactly its own evidence along.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

ENTITIES_MAX = 60
"""Of one chunk: a table of contents is not evidence of anything."""
RELATIONS_MAX = 60
NAME_CHARACTERS_MAX = 120
BETWEEN_WORDS_MAX = 4


class Entity(msgspec.Struct, frozen=True):
    """A name as it stands in a chunk."""

    name: str
    kind: str
    """email, url, version, identifier, name (of several words, or an acronym) or word (capitalised)."""


class Relation(msgspec.Struct, frozen=True):
    subject: str
    relation: str
    object: str


class Found(msgspec.Struct, frozen=True):
    name: str
    kind: str
    start: int
    stop: int


_PATTERNS = (
    ("email", re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\b")),
    ("url", re.compile(r"\bhttps?://[^\s<>\"')\]]{3,200}[^\s<>\"')\].,;:!?]")),
    ("version", re.compile(r"\b[A-Z][A-Za-z]+ v?\d+\.\d+(?:\.\d+)*\b|\bv\d+\.\d+(?:\.\d+)*\b")),
    ("identifier", re.compile(r"\b[A-Z]{2,10}-\d{1,8}\b|\b[A-Za-z]+_[A-Za-z0-9_]+\b|\b[a-z]+[A-Z][A-Za-z0-9]+\b")),
)
_WORD = r"[A-Z][\w’'&-]*\w|[A-Z]"
_NAME = re.compile(rf"(?:{_WORD})(?:\s(?:of\s|de\s|van\s|von\s|&\s)?(?:{_WORD}))*")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n\s*\n|\n(?=\s*(?:[#*|>•-]|\d+[.)]))|(?<=\|)\n")
_HEADING = re.compile(r"^#{1,6} ")
_BEGINNINGS = """
A About After All Also Although Among An And Another Any As At Because Before Between Both But By Can Could Do
Does Each Either Even Every Few Figure First For From Further Given Had Has Have He Her Here His How However I
If In Into Is It Its Last Less Let Many May More Most Much My Neither Next No None Nor Not Nothing Now Of On
Once One Only Or Other Our Out Over Please Second See She Should Since So Some Such Table Than That The Their
Then There Therefore These They This Those Though Through Thus To Today Under Until Up Using Was We Were What
When Where Whether Which While Who Whose Why Will With Within Without Would Yes You Your
"""
_LEADING = frozenset(_BEGINNINGS.split())
"""Words that begin sentences and are not names."""
_VERBS = re.compile(
    r"^(?:has |have |had |was |were |is |are |will |can |could |would |should |must |may |also |then |now |never )*"
    r"(?:[a-z]{2,}(?:ed|[^siu]s|ies)|made|makes|leads|led|bought|buys|built|builds|wrote|writes|sold|sells|owns|runs|ran|"
    r"gave|gives|took|takes|held|holds|met|meets|kept|keeps|sent|sends|put|puts|found|chose|won|lost|left|paid|began|"
    r"became|grew|know|knows|knew|use|uses|is|was|are|were)"
    r"(?: (?:by|from|with|to|of|for|in|on|at|into|a|an|the|as|part|over|under|against))*$"
)


def evidence_of(text: str) -> tuple[list[Entity], list[Relation]]:
    """The entities of a chunk, each once, and what is said of two of them in one sentence."""
    entities: dict[Entity, None] = {}
    relations: dict[Relation, None] = {}
    for sentence in _SENTENCE.split(text):
        found = list(_found(_HEADING.sub("", sentence)))
        entities.update((Entity(each.name, each.kind), None) for each in found)
        relations.update((each, None) for each in _said(_HEADING.sub("", sentence), found))
    return list(entities)[:ENTITIES_MAX], list(relations)[:RELATIONS_MAX]


def _found(sentence: str) -> Iterator[Found]:
    """The entities of a sentence, in order; none lies in another."""
    taken: list[Found] = []
    for kind, pattern in _PATTERNS:
        for each in pattern.finditer(sentence):
            if not any(each.start() < other.stop and other.start < each.end() for other in taken):
                taken.append(Found(each[0][:NAME_CHARACTERS_MAX], kind, each.start(), each.end()))
    for each in _NAME.finditer(sentence):
        if any(each.start() < other.stop and other.start < each.end() for other in taken):
            continue
        named = _named(each[0], each.start(), begins=not sentence[: each.start()].strip(" \"'([*-–•"))
        if named is not None:
            taken.append(named)
    yield from sorted(taken, key=lambda each: each.start)


def _named(text: str, start: int, *, begins: bool) -> Found | None:
    """A name in capitals; None if it is only a word that begins a sentence."""
    words = text.split()
    while words and words[0] in _LEADING:
        start += len(words.pop(0)) + 1
        begins = False if words else begins
    name = re.sub(r"['’]s$", "", " ".join(words))
    if len(name) < 2 or len(name) > NAME_CHARACTERS_MAX:
        return None
    several = len(words) > 1 or (name.isupper() and len(name) > 1) or any(letter.isdigit() for letter in name)
    if not several and begins:
        return None  # every sentence begins with a capital
    return Found(name, "name" if several else "word", start, start + len(name))


def _said(sentence: str, found: Sequence[Found]) -> Iterator[Relation]:
    """What stands between two neighbours, if it is what a verb says."""
    for first, second in itertools.pairwise(found):
        between = sentence[first.stop : second.start].strip().removeprefix("'s").removeprefix("’s").strip()
        if 1 <= len(between.split()) <= BETWEEN_WORDS_MAX and _VERBS.match(between):
            yield Relation(first.name, between, second.name)
