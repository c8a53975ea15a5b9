"""Does a report say only what its results say? Every number in it is compared with one that was just computed.

A number in a report is a link: to its evidence, with its own name (`[0.42](#e3 "n12")`, or in HTML
`<a href="#e3" data-n="n12">0.42</a>`). The checker computes all numbers from the results (`report.make`) and refuses a
text with

- digits, or words for numbers (`numerals`), that are not such a link,
- a link whose number is another one than the results give, or whose evidence is,
- a link beside which something stands that makes another number of it: a sign, a digit, a per cent sign,
- evidence with other results than those the number came from,
- names in code that neither the plan nor the results have,
- figures that are not, byte for byte, those that the results give.

It cannot see whether a sentence around a right number is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser

import msgspec

from bucketmq.apps.research.numerals import numbers_in


class Number(msgspec.Struct, frozen=True):
    """A number of a report: what it is, how it is written, and where it came from."""

    text: str
    how: str
    evidence: str


class Evidence(msgspec.Struct, frozen=True):
    """What numbers came from: results, or the plan."""

    about: str
    results: tuple[str, ...] = ()
    plan: bool = False


class Expected(msgspec.Struct, frozen=True):
    """What a report may say."""

    numbers: dict[str, Number]
    evidence: dict[str, Evidence]
    names: frozenset[str]
    """What may stand in code."""
    quotes: frozenset[str]
    """Texts of the plan that may stand as they are."""
    figures: dict[str, bytes]
    styles: frozenset[str] = frozenset()


_NUMBER = re.compile(r'\[([^\]\[]*)\]\(#([a-z0-9]+) "(n[0-9]+)"\)')
_BEFORE = re.compile(r"(?:^|[\s(\"'])\Z")
_AFTER = re.compile(r"[)\"'.,;:!?]*(?:\s|\Z)")
"""What may stand right before and right behind a number. Anything else makes another number of it."""
_NEGATED = re.compile(r"\b(?:minus|negative|plus)\s+\Z", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(?:%|\u2030|per ?cent|percentage)", re.IGNORECASE)
_RESULT = re.compile(r"\[`([0-9a-f]+)`\]\(results/([0-9a-f]+)\.json\)")
_ANCHOR = re.compile(r'<a id="(e[0-9]+|plan)"></a>')
_FIGURE = re.compile(r"!\[([^\]]*)\]\(figures/([^)]*)\)")
_LINK = re.compile(r"\]\((plan\.json|report\.md|report\.html|synthesis\.json)\)")
_CODE = re.compile(r"`([^`]*)`")
_ENTITY = re.compile(r"&(amp|lt|gt|quot|#x27);")

PERCENT = ", in percent"
"""How numbers that are a share of a hundred say so."""
VIEWPORT = "width=device-width, initial-scale=1"
PROBLEMS_MAX = 20


def check_markdown(text: str, expected: Expected) -> list[str]:
    """What is wrong with a report in Markdown; nothing if nothing is."""
    found: list[str] = []
    lists: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"line {number}: {each}" for each in _check_line(line, expected, lists)]
    return (found + list(_check_evidence(lists, expected)))[:PROBLEMS_MAX]


def _check_line(line: str, expected: Expected, lists: dict[str, list[str]]) -> Iterator[str]:
    if line.startswith("> ") and line[2:] in expected.quotes:
        return
    anchor = _ANCHOR.search(line)
    results = []
    for name, target in _RESULT.findall(line):
        if name != target:
            yield f"a link named {name} leads to {target}"
        results.append(target)
    if anchor:
        lists[anchor[1]] = results
    for each in _NUMBER.finditer(line):
        text, evidence, name = each.groups()
        yield from _check_number(text, evidence, name, expected)
        yield from _check_before(name, line[: each.start()])
        yield from _check_after(name, line[each.end() :], expected)
    for _, name in _FIGURE.findall(line):
        if name not in expected.figures:
            yield f"there is no figure {name!r}"
    rest = _LINK.sub("]", _FIGURE.sub(r"\1", _ANCHOR.sub("", _NUMBER.sub("", _RESULT.sub(r"`\1`", line)))))
    for name in _CODE.findall(rest):
        yield from _check_name(name, expected)
    yield from _check_text(_ENTITY.sub("", _CODE.sub("", rest)))


def _check_number(text: str, evidence: str, name: str, expected: Expected) -> Iterator[str]:
    wanted = expected.numbers.get(name)
    if wanted is None:
        yield f"{text!r} is said to be {name}, and there is no such number"
    elif text != wanted.text:
        yield f"{name} ({wanted.how}) is {wanted.text}, not {text}"
    elif evidence != wanted.evidence:
        yield f"{name} ({wanted.how}) comes from {wanted.evidence}, not from {evidence}"


def _check_before(name: str, before: str) -> Iterator[str]:
    if not _BEFORE.search(before) or _NEGATED.search(before):
        yield f"{before[-20:]!r} before {name} makes another number of it"


def _check_after(name: str, after: str, expected: Expected) -> Iterator[str]:
    if not _AFTER.match(after):
        yield f"{after[:20]!r} behind {name} makes another number of it"
    wanted = expected.numbers.get(name)
    if _PERCENT.match(after) and (wanted is None or not wanted.how.endswith(PERCENT)):
        yield f"{name} is not in percent"


def _check_name(name: str, expected: Expected) -> Iterator[str]:
    if name not in expected.names:
        yield f"{name!r} is not a name of this study"


def _check_text(text: str) -> Iterator[str]:
    for each in numbers_in(text):
        yield f"{each!r} is a number without evidence, in {text.strip()[:80]!r}"


def _check_evidence(lists: Mapping[str, list[str]], expected: Expected) -> Iterator[str]:
    for name, results in lists.items():
        wanted = expected.evidence.get(name)
        if wanted is None:
            yield f"there is no evidence {name}"
        elif tuple(results) != wanted.results:
            yield f"evidence {name} ({wanted.about}) lists other results than it has"


def check_html(text: str, expected: Expected) -> list[str]:
    """The same for a report in HTML. What could run, or load something from elsewhere, is refused, too."""
    parser = _Page(expected)
    parser.feed(text)
    parser.close()
    return (parser.found + list(_check_evidence(parser.lists, expected)))[:PROBLEMS_MAX]


class _Page(HTMLParser):
    TAGS = frozenset(re.findall(r"\w+", """
        html head meta title style body main h1 h2 p table thead tbody tr th td ul li a code blockquote figure img div
    """))  # fmt: skip
    ATTRIBUTES = frozenset(
        ("href", "data-n", "id", "class", "src", "alt", "lang", "charset", "name", "content", "tabindex", "scope")
    )
    EMPTY = frozenset(("meta", "img"))

    def __init__(self, expected: Expected) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.lists: dict[str, list[str]] = {}
        self._expected = expected
        self._stack: list[tuple[str, dict[str, str]]] = []
        self._text = ""
        self._before = ""
        """The text before, in the same cell or paragraph."""
        self._number = ""
        """The number that it ends with."""
        self._evidence: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._flush()
        if tag not in ("a", "code"):
            self._before = self._number = ""
        given = {name: value or "" for name, value in attrs}
        if tag not in self.TAGS:
            self.found.append(f"<{tag}> has no place in a report")
        for name, value in given.items():
            if name not in self.ATTRIBUTES:
                self.found.append(f"{name}={value[:40]!r} has no place in a report")
            if name in ("src", "href") and not self._leads_inside(tag, value):
                self.found.append(f"{value[:80]!r} leads out of the report")
            if name == "alt":
                self.found += _check_text(value)
            if name == "content" and value != VIEWPORT:
                self.found.append(f"{value[:80]!r} has no place in a report")
        if tag == "li" and given.get("id", "") in self._expected.evidence:
            self._evidence = self.lists.setdefault(given["id"], [])
        elif tag == "li" and re.match(r"e[0-9]+\Z", given.get("id", "")):
            self.found.append(f"there is no evidence {given['id']}")
        if tag not in self.EMPTY:
            self._stack.append((tag, given))

    def _leads_inside(self, tag: str, value: str) -> bool:
        if tag == "img":
            return value.startswith("figures/") and value.removeprefix("figures/") in self._expected.figures
        if value.startswith("#"):
            return True
        known = ("plan.json", "report.md", "synthesis.json")
        return value in known or bool(re.match(r"results/[0-9a-f]+\.json\Z", value))

    def handle_endtag(self, tag: str) -> None:
        self._flush()
        if tag == "li":
            self._evidence = None
        while self._stack and self._stack.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_comment(self, data: str) -> None:
        self.found.append("a comment has no place in a report")

    def close(self) -> None:
        super().close()
        self._flush()

    def _flush(self) -> None:
        text, self._text = self._text, ""
        if not text:
            return
        before, self._before = self._before, text
        number, self._number = self._number, ""
        if number:
            self.found += _check_after(number, text, self._expected)
        if not text.strip():
            return
        tag, given = self._stack[-1] if self._stack else ("", {})
        inside = {name for name, _ in self._stack}
        if tag == "style":
            if text not in self._expected.styles:
                self.found.append("styles that are not the report's own")
        elif "blockquote" in inside and text in self._expected.quotes:
            pass
        elif tag == "a" and "data-n" in given:
            self._number = given["data-n"]
            self.found += _check_before(self._number, before)
            self.found += _check_number(text, given.get("href", "#")[1:], self._number, self._expected)
        elif tag in ("code", "title"):
            self.found += _check_name(text, self._expected)
            self._note_result(text)
        else:
            self.found += _check_text(text)

    def _note_result(self, text: str) -> None:
        """A link to a result: its name and where it leads are the same."""
        links = [given["href"] for tag, given in self._stack if tag == "a" and "href" in given]
        target = re.match(r"results/([0-9a-f]+)\.json\Z", links[-1]) if links else None
        if target is None:
            return
        if target[1] != text:
            self.found.append(f"a link named {text} leads to {target[1]}")
        if self._evidence is not None:
            self._evidence.append(target[1])


def check_figures(figures: Mapping[str, bytes], expected: Expected) -> list[str]:
    """Figures are compared whole: what is drawn cannot be read."""
    return [
        f"the figure {name} is not what the results give"
        for name, body in expected.figures.items()
        if figures.get(name) != body
    ]
