"""Key templates: `pending/{id}.json` and the values of a row, made a key that no value can leave.

A value in `{name}` is percent-encoded but for ASCII letters, digits and `-._~`, and so are dots that stand alone: two
different values never give the same text, and none brings a slash, a dot part or a control character along. `{+name}`
is for values that are keys: their slashes stay, and what is not a key is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from bucketmq.errors import Invalid
from bucketmq.procedures.objects.keys import check_object_key

_HOLE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


def check_template(template: str) -> str:
    """Raise `Invalid` unless keys can be made of the template."""
    names = names_of(template)
    if not names:
        raise Invalid(f"the template {template!r} names no column, so all rows would be one object; use {{id}}")
    rest = _HOLE.sub("x", template)
    if "{" in rest or "}" in rest:
        raise Invalid(f"the template {template!r} has braces without a column; write {{column}} or {{+column}}")
    if not _HOLE.match(template):
        check_object_key(rest)
    return template


def names_of(template: str) -> tuple[str, ...]:
    """The columns that a template needs."""
    return tuple(dict.fromkeys(name for _, name in _HOLE.findall(template)))


def filler(template: str) -> Callable[[Mapping[str, Any]], str]:
    """A function that makes the key of a row: `Invalid` if a value is missing, or no key comes of it."""

    def fill(row: Mapping[str, Any]) -> str:
        return check_object_key(_HOLE.sub(lambda hole: _value(row, hole[2], whole=bool(hole[1])), template))

    return fill


def _value(row: Mapping[str, Any], name: str, *, whole: bool) -> str:
    value = row[name]
    if isinstance(value, datetime):
        text = value.isoformat()
    elif isinstance(value, bool) or not isinstance(value, str | int):
        raise Invalid(f"column {name!r} is {type(value).__name__} here; a key is made of text, numbers and times")
    else:
        text = str(value)
    if not text:
        raise Invalid(f"column {name!r} is empty here; a key needs a value")
    return text if whole else encoded(text)


def encoded(text: str) -> str:
    """The value as part of a key. Different values stay different; none is a dot part or has a slash."""
    try:
        made = quote(text, safe="")
    except UnicodeEncodeError:
        raise Invalid(f"{text[:60]!r} has broken Unicode (a lone surrogate); no key comes of it") from None
    return made.replace(".", "%2E") if set(made) == {"."} else made
