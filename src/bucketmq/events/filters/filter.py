"""A filter: its text, its tree, and the decision it makes of an event."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters.evaluate import Step, compiled
from bucketmq.events.filters.fields import UNFETCHED, Attributes, Stage, stage_of
from bucketmq.events.filters.grammar import Node, leaves
from bucketmq.events.filters.normal import normal
from bucketmq.events.filters.parser import parse_text


class Decision(enum.Enum):
    """What becomes of an event: it matches, it does not, or something has to be fetched first to tell."""

    NO_MATCH = "no match"
    MATCH = "match"
    NEEDS_ATTRIBUTES = "needs attributes"
    NEEDS_BODY = "needs body"


_DECISIONS = (Decision.NO_MATCH, Decision.MATCH, Decision.NEEDS_ATTRIBUTES, Decision.NEEDS_BODY)
"""By the answer of a step."""


class Needs(msgspec.Struct, frozen=True):
    """What deciding can cost, at most. Most events are decided for less."""

    attributes: bool
    """A field that the event may not tell and the store knows: content type, metadata, size."""
    body: bool
    """The object's JSON."""

    @property
    def event_only(self) -> bool:
        return not self.attributes and not self.body


# Not a Struct: the compiled step is not part of the value, so it is left out of comparisons and reprs.
@dataclass(frozen=True, slots=True)
class Filter:
    """Made by `parse`. Any number of threads may ask the same filter."""

    text: str
    root: Node
    needs: Needs
    step: Step = field(repr=False, compare=False)

    def decide(self, event: ObjectEvent, attributes: Attributes = UNFETCHED, body: Any = UNFETCHED) -> Decision:
        """Whether the event matches, or what is needed to tell: the cheapest thing that still matters.

        `attributes` is what the store said of the object (`Known()` when it is gone). `body` is the object's JSON as
        decoded, or `NO_JSON`. What the event itself tells goes before `attributes`, and is not asked for.
        """
        return _DECISIONS[self.step(event, attributes, body)]


def parse(text: str) -> Filter:
    """The filter that a text stands for; an empty one matches every event.

    Raises `Invalid` with the text, a caret under the column, what was expected, and a hint.
    """
    if not isinstance(text, str):
        raise Invalid(f"a filter is a text, not {text!r:.80}; an empty one matches every event")
    root = parse_text(text)
    stages = {stage_of(leaf.field) for leaf in leaves(root)}
    needs = Needs(attributes=Stage.ATTRIBUTES in stages, body=Stage.BODY in stages)
    return Filter(text, root, needs, compiled(normal(root)))
