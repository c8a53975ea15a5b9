"""The model of a service: its templates, in `templates/{service}.json`, replaced with a condition only.

Any number of learners merge what they learnt into it, and none loses what another learnt: whoever is refused reads
again and merges again. Merging the same twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bucketmq.apps.logs.drain import Index, Words, id_of, merge
from bucketmq.apps.logs.matching import REST, TemplateUse
from bucketmq.apps.logs.names import templates_key
from bucketmq.apps.logs.parse import LEVELS
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_document, update_document
from bucketmq.queue.settings import FORMAT

TEMPLATES_MAX = 2_000
"""A service with more kinds of lines writes something else than lines; further ones are counted, not kept."""


class Template(msgspec.Struct, frozen=True, omit_defaults=True):
    """A kind of line."""

    id: str
    template: str
    first_at: float
    """The time of the first line."""
    source: str = ""
    """The object that it came with."""
    level: str = ""
    example: str = ""

    @property
    def words(self) -> Words:
        return tuple(self.template.split()) or ("",)


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """All templates of a service."""

    service: str
    began_at: float = 0.0
    """The time of the first line of all."""
    templates: list[Template] = []
    refused: int = 0
    """The most templates of one object that were not kept because there were too many."""
    format: int = FORMAT

    def index(self) -> Index:
        return Index(each.words for each in self.templates)


def learnt(model: Model, seen: Sequence[TemplateUse], source: str) -> Model:
    """The model with what an object brought. The same again changes nothing."""
    new = [
        Template(each.id, each.template, each.first_at, source, each.level, each.examples[0] if each.examples else "")
        for each in seen
        if each.template != " ".join(REST)
    ]
    known = {each.words for each in model.templates}
    index = model.index()
    unknown = [each for each in new if each.words not in known and index.match(each.words) is None]
    began = min([at for at in (model.began_at, *(each.first_at for each in new)) if at], default=0.0)
    if not unknown:
        return msgspec.structs.replace(model, began_at=began)
    room = max(0, TEMPLATES_MAX - len(model.templates))
    kept, refused = unknown[:room], max(0, len(unknown) - room)
    became = merge((each.words for each in model.templates), (each.words for each in kept))
    merged: dict[Words, Template] = {}
    for each in (*model.templates, *kept):
        words = became[each.words]
        before = merged.get(words)
        merged[words] = _wider(words, each) if before is None else _both(before, _wider(words, each))
    return Model(
        model.service,
        began,
        sorted(merged.values(), key=lambda each: (each.first_at, each.id)),
        max(model.refused, refused),
        model.format,
    )


def _wider(words: Words, template: Template) -> Template:
    return msgspec.structs.replace(template, id=id_of(words), template=" ".join(words))


def _both(one: Template, other: Template) -> Template:
    first = min(one, other, key=lambda each: (each.first_at, each.source))
    return msgspec.structs.replace(first, level=max(one.level, other.level, key=LEVELS.index))


def read_model(bucket: OpenBucket, service: str) -> Procedure[Model]:
    """One GET."""
    found = yield from get_document(Model, full_key(bucket, templates_key(service)))
    return Model(service) if found is None else found[0]


def merge_into(bucket: OpenBucket, service: str, seen: Sequence[TemplateUse], source: str) -> Procedure[Model]:
    """Merge what an object brought into the model of its service. One GET, and one PUT if something is new; both again
    for each rival that was faster."""
    key = full_key(bucket, templates_key(service))
    return (yield from update_document(Model, key, Model(service), lambda model: learnt(model, seen, source)))
