"""The lines of one object against a model as it is: how often each template occurred in each minute, and what is new.

Pure, and fast because little of it is Python: Arrow masks the column and tells which lines are alike, and a template is
looked for once for each distinct masked line. Lines that no template covers are learnt apart, from this object alone;
merging what was learnt into the service's model is a step of its own (`models`). So an object gives the same whether
its model is new, old or missing, but for how special its templates are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketmq.apps.logs.drain import Index, Words, id_of, learn, words_of
from bucketmq.apps.logs.masks import masked, without_secrets
from bucketmq.apps.logs.parse import LEVELS, Line
from bucketmq.apps.logs.parse.structured import hidden

UNKNOWN_MAX = 2_000
"""So many kinds of unknown lines of one object are learnt; the rest are one kind."""
REST = ("<*>", "(more", "kinds", "of", "lines", "than", "are", "told", "apart)")
EXAMPLE_CHARS_MAX = 400
EXAMPLES_MAX = 3
SESSIONS_MAX = 2_000
SESSION_EVENTS_MAX = 500
MINUTE = 60

_SECRET_KEY = re.compile(r"\[(?:e-mail|token|secret|password)\]")

_LEVEL_PLACES = {level: place for place, level in enumerate(LEVELS)}


class TemplateUse(msgspec.Struct, frozen=True):
    """A template in an object."""

    id: str
    template: str
    level: str
    """The most severe that it came with."""
    count: int
    first_at: float
    examples: list[str]
    new: bool
    """Whether no template of the model covered it."""


class Tally(msgspec.Struct, frozen=True):
    """What an object came to."""

    lines: int = 0
    skewed: int = 0
    """Lines whose time is after the object's, by more than clocks differ: counted at the object's time."""
    seen: list[TemplateUse] = []
    counts: list[tuple[int, str, str, int]] = []
    """Minute (seconds since 1970), template, level, number; in order."""
    sessions: list[tuple[str, list[str]]] = []
    """For each key the templates in their order."""


def tally(lines: Sequence[Line], index: Index, *, at: float, skew_seconds: float, key_pattern: str = "") -> Tally:
    """Count lines of an object that was written at this time."""
    if not lines:
        return Tally()
    texts = pa.array([line.text for line in lines], pa.string())
    codes = masked(texts).dictionary_encode()
    templates, places = _templates(codes.dictionary, index)
    kinds = places[codes.indices.to_numpy(zero_copy_only=False)]
    times = np.array([at if line.at is None else line.at for line in lines], np.float64)
    skewed = times > at + skew_seconds
    times[skewed] = at
    minutes = (times // MINUTE * MINUTE).astype(np.int64)
    levels = np.array([_LEVEL_PLACES[line.level] for line in lines], np.int64)
    ids = [id_of(words) for words, _ in templates]
    return Tally(
        lines=len(lines),
        skewed=int(skewed.sum()),
        seen=_seen(templates, kinds, times=times, levels=levels, texts=texts),
        counts=_counts(ids, kinds, minutes, levels),
        sessions=_sessions(lines, texts, ids, kinds, key_pattern),
    )


def _templates(distinct: pa.Array, index: Index) -> tuple[list[tuple[Words, bool]], np.ndarray]:
    """Templates, each with whether it is new, and for each distinct line the place of its template."""
    lines = [words_of(text) for text in without_secrets(distinct).to_pylist()]
    found = {line: index.match(line) for line in dict.fromkeys(lines)}
    unknown = [line for line, template in found.items() if template is None]
    learnt = learn(sorted(unknown)[:UNKNOWN_MAX])
    if len(unknown) > UNKNOWN_MAX:
        own = Index(set(learnt.values()))
        learnt |= {line: own.match(line) or REST for line in unknown if line not in learnt}
    chosen = {line: learnt[line] if template is None else template for line, template in found.items()}
    new = {learnt[line] for line in unknown}
    order = {words: place for place, words in enumerate(dict.fromkeys(chosen.values()))}
    places = np.array([order[chosen[line]] for line in lines], np.int64)
    return [(words, words in new) for words in order], places


def _seen(
    templates: list[tuple[Words, bool]],
    kinds: np.ndarray,
    *,
    times: np.ndarray,
    levels: np.ndarray,
    texts: pa.Array,
) -> list[TemplateUse]:
    order = np.argsort(kinds, kind="stable")
    starts = np.searchsorted(kinds[order], np.arange(len(templates) + 1))
    found = []
    chosen = [order[starts[place] : starts[place] + EXAMPLES_MAX] for place in range(len(templates))]
    flat = np.concatenate(chosen)
    shown = iter(examples_of(texts.take(pa.array(flat, pa.int64()))))
    for place, (words, new) in enumerate(templates):
        its = order[starts[place] : starts[place + 1]]
        found.append(
            TemplateUse(
                id_of(words),
                " ".join(words),
                LEVELS[int(levels[its].max())],
                len(its),
                float(times[its].min()),
                list(dict.fromkeys(next(shown) for _ in chosen[place])),
                new,
            )
        )
    return sorted(found, key=lambda each: each.id)


def examples_of(texts: pa.Array) -> list[str]:
    """Lines as they may be shown to anybody: without secrets, and short. Secrets first, so that none is cut in half."""
    found: list[str] = pc.utf8_slice_codeunits(without_secrets(texts), 0, EXAMPLE_CHARS_MAX).to_pylist()
    return found


def _counts(
    ids: list[str], kinds: np.ndarray, minutes: np.ndarray, levels: np.ndarray
) -> list[tuple[int, str, str, int]]:
    table = pa.table({"minute": minutes, "kind": kinds, "level": levels})
    grouped = table.group_by(["minute", "kind", "level"]).aggregate([([], "count_all")])
    rows = zip(*(grouped.column(name).to_pylist() for name in ("minute", "kind", "level", "count_all")), strict=True)
    return sorted((minute, ids[kind], LEVELS[level], count) for minute, kind, level, count in rows)


def _sessions(
    lines: Sequence[Line], texts: pa.Array, ids: list[str], kinds: np.ndarray, key_pattern: str
) -> list[tuple[str, list[str]]]:
    keys: list[str | None]
    if key_pattern:
        keys = [None if found is None else found["key"] for found in _extracted(texts, key_pattern)]
    else:
        keys = [line.key for line in lines]
    found: dict[str, list[str]] = {}
    for key, kind in zip(keys, kinds.tolist(), strict=True):
        if key and (key in found or len(found) < SESSIONS_MAX):
            events = found.setdefault(key, [])
            if len(events) < SESSION_EVENTS_MAX:
                events.append(ids[kind])
    return sorted(zip(_shown_keys(list(found)), found.values(), strict=True))


def _shown_keys(keys: list[str]) -> list[str]:
    """Keys as they may be written into alerts. Long numbers and the like are what keys are made of, and stay."""
    told = without_secrets(pa.array(keys, pa.string())).to_pylist()
    return [hidden(key, "key") if _SECRET_KEY.search(its) else key for key, its in zip(keys, told, strict=True)]


def _extracted(texts: pa.Array, pattern: str) -> list[dict[str, str] | None]:
    found: list[dict[str, str] | None] = pc.extract_regex(texts, pattern=pattern).to_pylist()
    return found
