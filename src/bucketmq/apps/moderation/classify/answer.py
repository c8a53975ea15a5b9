"""Reading what Claude answered: a verdict, with a doubt unless every part of the answer is as it must be. Pure.

The API promises answers of the right shape. It is not taken at its word: a proxy, an older model or a model that obeyed
the post it was to judge may send anything, and what is not exactly a judgement must never become an approval.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Annotated, Any

import msgspec

from bucketmq.apps.moderation.classify.prompt import PROMPT
from bucketmq.apps.moderation.record import CATEGORIES, Category, Verdict
from bucketmq.models.claude import Message

ANSWER_CHARS_MAX = 20_000
RATIONALE_CHARS_MAX = 500

Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class _Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    flagged: bool
    confidence: Probability


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mark: str
    rationale: str
    addresses_moderator: bool
    categories: dict[str, _Judgement]


def verdict_of(message: Message, *, mark: str) -> Verdict:
    """What the model said. Whatever is odd about it becomes the verdict's doubt."""
    if message.stop_reason != "end_turn":
        ended = {"refusal": "it refused to answer", "max_tokens": "its answer was cut at the limit of tokens"}
        reason = message.stop_reason or "no reason given"
        return _doubt(message, ended.get(reason, f"it stopped early ({reason[:40]})"))
    if message.text is None:
        return _doubt(message, "its answer is not one text")
    try:
        answer = _read(message.text)
    except _Odd as odd:
        return _doubt(message, str(odd))
    if answer.mark != mark:
        return _doubt(message, "its answer does not carry the mark of the question")
    categories = tuple(
        Category(name, answer.categories[name].flagged, answer.categories[name].confidence) for name in CATEGORIES
    )
    against_itself = [each.name for each in categories if each.flagged != (each.confidence >= 0.5)]
    doubt = None
    if against_itself:
        doubt = f"{message.model} contradicts itself about {', '.join(against_itself)}"
    elif answer.addresses_moderator:
        doubt = f"{message.model} says that the post speaks to its judge"
    return Verdict(categories, message.model, _sentence(answer.rationale), PROMPT, doubt)


class _Odd(Exception):
    """Why an answer is not a judgement, in words that follow "its answer"."""


def _read(text: str) -> _Answer:
    if len(text) > ANSWER_CHARS_MAX:
        raise _Odd(f"its answer is longer than {ANSWER_CHARS_MAX} characters")
    try:
        plain = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
        answer = msgspec.convert(plain, _Answer)
    except (ValueError, RecursionError):
        # The words of the error may quote the answer, and the answer the post: they are not repeated.
        raise _Odd("its answer is not a judgement of the shape that was asked for") from None
    if set(answer.categories) != set(CATEGORIES):
        raise _Odd("its answer does not name each category exactly once")
    return answer


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


def _sentence(text: str) -> str:
    """One line, no characters that steer a terminal or a page, not too long."""
    kept = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text[: 4 * RATIONALE_CHARS_MAX])
    return " ".join(kept.split())[:RATIONALE_CHARS_MAX]


def _doubt(message: Message, why: str) -> Verdict:
    return Verdict((), message.model, prompt=PROMPT, doubt=f"{message.model[:80]} gave no judgement: {why}")
