"""The report of a study: report.md and report.html with the same content, and figures. Pure.

`compose` makes a document of blocks in which every number is a value that knows its evidence; two small renderers write
it down. There is no time, no name of a machine and no order of arrival in it, so the same results make the same bytes.
Whether a report is right is `checker`'s to say, and it is asked before one is published.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import msgspec

from bucketmq.apps.research import figures
from bucketmq.apps.research.checker import (
    PERCENT,
    VIEWPORT,
    Evidence,
    Expected,
    Number,
    check_figures,
    check_html,
    check_markdown,
)
from bucketmq.apps.research.plan import Plan
from bucketmq.apps.research.record import (
    FIGURES,
    REPORT_HTML,
    REPORT_MD,
    SYNTHESIS,
    Closed,
    Result,
    Round,
)
from bucketmq.apps.research.statistics import Estimate
from bucketmq.apps.research.synthesis import Findings, Point, plain_text, synthesise

FAILURES_SHOWN = 50

PLAN_EVIDENCE = "plan"

WHY = {
    "all in": "all trials of the plan have a result",
    "budget": "the budget is used up",
    "stop rule": "the stop rule holds",
    "stopped": "somebody stopped it",
    "deadline": "its deadline came",
}


class Num(msgspec.Struct, frozen=True):
    """A number, by its name in the book."""

    name: str


class Code(msgspec.Struct, frozen=True):
    text: str


class ResultLink(msgspec.Struct, frozen=True):
    id: str


class FileLink(msgspec.Struct, frozen=True):
    text: str
    file: str


Inline = str | Num | Code | ResultLink | FileLink
Line = Sequence[Inline]


class Heading(msgspec.Struct, frozen=True):
    level: int
    line: Line


class Paragraph(msgspec.Struct, frozen=True):
    line: Line


class Quote(msgspec.Struct, frozen=True):
    text: str


class Table(msgspec.Struct, frozen=True):
    head: Sequence[Line]
    rows: Sequence[Sequence[Line]]


class Picture(msgspec.Struct, frozen=True):
    name: str
    alt: str


class Proofs(msgspec.Struct, frozen=True):
    """The evidence, all of it."""


Block = Heading | Paragraph | Quote | Table | Picture | Proofs


class Book:
    """The numbers of a report and what they came from, named in the order in which they are written."""

    def __init__(self) -> None:
        self.numbers: dict[str, Number] = {}
        self.evidence: dict[str, Evidence] = {PLAN_EVIDENCE: Evidence("the plan", plan=True)}
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def proof(self, about: str, results: Iterable[str]) -> str:
        """The name of the evidence that these results are."""
        key = about, tuple(results)
        if key not in self._known:
            self._known[key] = f"e{len(self._known) + 1}"
            self.evidence[self._known[key]] = Evidence(*key)
        return self._known[key]

    def add(self, text: str, how: str, evidence: str = PLAN_EVIDENCE) -> Num:
        name = f"n{len(self.numbers) + 1}"
        self.numbers[name] = Number(text, how, evidence)
        return Num(name)

    def count(self, value: int, how: str, evidence: str = PLAN_EVIDENCE) -> Num:
        return self.add(f"{value:,}", how, evidence)

    def real(self, value: float, how: str, evidence: str = PLAN_EVIDENCE) -> Num:
        return self.add(number_text(value), how, evidence)


def number_text(value: float) -> str:
    """A number in four digits."""
    return f"{value:.4g}".replace("-", "\u2212") if value else "0"


class Made(msgspec.Struct, frozen=True):
    """A report: its files, the last of which says that the others are there; and what may be said."""

    files: dict[str, bytes]
    expected: Expected
    findings: Findings

    def problems(self) -> list[str]:
        """What the checker says about it."""
        return problems_of(self.files, self.expected)


def problems_of(files: Mapping[str, bytes], expected: Expected) -> list[str]:
    """What is wrong with the files of a report, by their names below the study."""
    found = [f"{REPORT_MD}: {each}" for each in check_markdown(_text(files, REPORT_MD), expected)]
    found += [f"{REPORT_HTML}: {each}" for each in check_html(_text(files, REPORT_HTML), expected)]
    drawn = {name.removeprefix(FIGURES): body for name, body in files.items() if name.startswith(FIGURES)}
    return found + check_figures(drawn, expected)


def summary_problems(body: bytes, made: Made) -> list[str]:
    """What is wrong with a `synthesis.json`. Which bytes the files had is not compared: prose may be corrected."""
    try:
        there, wanted = (msgspec.json.decode(each, type=dict[str, object]) for each in (body, made.files[SYNTHESIS]))
    except msgspec.DecodeError as error:
        return [f"{SYNTHESIS}: it cannot be read: {error}"]
    odd = [name for name in {**wanted, **there} if name != "files" and there.get(name) != wanted.get(name)]
    return [f"{SYNTHESIS}: {name!r} is not what the results give" for name in odd]


def _text(files: Mapping[str, bytes], name: str) -> str:
    return files[name].decode(errors="replace")


def make(plan: Plan, rounds: Sequence[Round], closed: Closed, results: Mapping[str, Result], remarks: str = "") -> Made:
    """The report. Prose of a model (`remarks`) stands in it only if every number in it is one of the report's."""
    findings = synthesise(plan, rounds, closed, results)
    drawn = figures.draw(findings)
    book = Book()
    blocks = compose(findings, drawn, book)
    said = with_numbers(remarks, book)
    if said:
        blocks[-2:-2] = [Heading(2, ["Remarks"]), *(Paragraph(line) for line in said)]
    expected = Expected(
        numbers=book.numbers,
        evidence=book.evidence,
        names=names_of(findings),
        quotes=frozenset([plain_text(plan.about)] if plan.about else []),
        figures=drawn,
        styles=frozenset([CSS]),
    )
    files = {f"{FIGURES}{name}": body for name, body in drawn.items()}
    files[REPORT_MD] = markdown(blocks, book).encode()
    files[REPORT_HTML] = html(blocks, book, plan.study).encode()
    summary = {
        "study": plan.study,
        "why": closed.why,
        "best": findings.best,
        "numbers": book.numbers,
        "files": {name: hashlib.sha256(body).hexdigest() for name, body in files.items()},
    }
    files[SYNTHESIS] = msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n"
    return Made(files, expected, findings)


def names_of(findings: Findings) -> frozenset[str]:
    """What may stand in code: names that the plan and the results have."""
    plan = findings.plan
    names = {plan.study, f"{plan.study}: report", plan.simulator, plan.version, plan.search.by, *plan.fixed}
    names |= {plain_text(" ".join(plan.command))} if plan.command else set()
    names |= {each.name for each in plan.parameters} | {each.name for each in plan.metrics}
    names |= {each.label for each in findings.points} | set(findings.results)
    for each in findings.failures:
        names |= {each.id, each.kind, each.reason, each.point}
    return frozenset(names)


def compose(findings: Findings, drawn: Mapping[str, bytes], book: Book) -> list[Block]:
    """The document: what was asked, what was found, and where every number is from."""
    plan = findings.plan
    blocks: list[Block] = [Heading(1, ["Study ", Code(plan.study)])]
    if plan.about:
        blocks.append(Quote(plain_text(plan.about)))
    blocks += _summary(findings, book)
    blocks += _best(findings, book)
    blocks += [Picture(f"{FIGURES}{name}", _alt(name)) for name in drawn]
    blocks += _points(findings, book)
    blocks += _effects(findings, book)
    blocks += _front(findings, book)
    blocks += _failures(findings, book)
    return [*blocks, Heading(2, ["Evidence"]), Proofs()]


def _alt(name: str) -> str:
    stem = name.removesuffix(".svg")
    return "The Pareto front" if stem == "pareto-front" else "Means and intervals of a metric"


def said(text: str, *inlines: Inline) -> Paragraph:
    """A paragraph that has these in place of each `{}`."""
    pieces = zip(text.split("{}"), (*inlines, ""), strict=True)
    return Paragraph([each for both in pieces for each in both if each != ""])


def _summary(findings: Findings, book: Book) -> list[Block]:
    plan, closed = findings.plan, findings.closed
    everything = book.proof("every result that counts", findings.results)
    simulator = Code(plain_text(" ".join(plan.command)) if plan.command else plan.simulator)
    made = [
        said(
            "The simulator is {}, version {}; points were chosen by {}. Of {} trials that the plan allows, {} were "
            "planned at {} points with up to {} seeds each. {} have a result, of which {} failed.",
            simulator,
            Code(plan.version),
            Code(plan.search.by),
            book.count(plan.budget, "the budget of the plan"),
            book.count(findings.planned, "trials that were planned", everything),
            book.count(len(findings.points), "points", everything),
            book.count(len(plan.seeds), "seeds of the plan"),
            book.count(len(findings.results), "results that count", everything),
            book.count(len(findings.failures), "failed trials", everything),
        ),
        said(
            f"The study was closed because {WHY[closed.why]}. Results that came in later are kept, and this report "
            "does not change with them."
        ),
    ]
    if closed.missing:
        missing = book.count(len(closed.missing), "planned trials without a result", everything)
        made.append(said("{} of the planned trials had no result by then.", missing))
    method = "Student's t" if plan.interval == "t" else "percentiles of a bootstrap"
    made.append(
        said(
            f"Intervals hold the mean with a confidence of {{}} % ({method}). Every number leads to the results that "
            "it was computed from, and {} says what was asked.",
            book.real(100 * plan.confidence, f"the confidence of the plan{PERCENT}"),
            FileLink("the plan", "plan.json"),
        )
    )
    return list(made)


def _metric_line(book: Book, label: str, metric: str, found: Estimate, evidence: str) -> list[Inline]:
    line: list[Inline] = [book.real(found.mean, f"mean of {metric} at {label}", evidence)]
    if found.low is not None and found.high is not None:
        line += [
            " (",
            book.real(found.low, f"lower end for {metric} at {label}", evidence),
            " to ",
            book.real(found.high, f"upper end for {metric} at {label}", evidence),
            ")",
        ]
    return line


def _proof_of(book: Book, point: Point) -> str:
    return book.proof(f"the results at {point.label}", point.results)


def _best(findings: Findings, book: Book) -> list[Block]:
    if findings.best is None:
        return [said("No trial has brought a value, so there is no best point.")]
    metric = findings.plan.metrics[0]
    point = next(each for each in findings.points if each.label == findings.best)
    goal = "least" if metric.goal == "min" else "most"
    shown = _metric_line(book, point.label, metric.name, point.metrics[metric.name], _proof_of(book, point))
    return [
        Heading(2, ["Best point"]),
        Paragraph([f"The {goal} ", Code(metric.name), " was found at ", Code(point.label), ": ", *shown, "."]),
    ]


def _points(findings: Findings, book: Book) -> list[Block]:
    metrics = findings.plan.metrics
    rows: list[Sequence[Line]] = []
    for point in findings.points:
        proof = _proof_of(book, point)
        row: list[Line] = [
            [Code(point.label)],
            [book.count(len(point.results), f"results at {point.label}", proof)],
            [book.count(len(point.failed), f"failed trials at {point.label}", proof)],
        ]
        for metric in metrics:
            found = point.metrics.get(metric.name)
            row.append(["–"] if found is None else _metric_line(book, point.label, metric.name, found, proof))
        rows.append(row)
    head: list[Line] = [["Point"], ["Results"], ["Failed"], *([Code(each.name)] for each in metrics)]
    return [Heading(2, ["Points"]), Table(head, rows)]


def _effects(findings: Findings, book: Book) -> list[Block]:
    if findings.baseline is None or not any(each.effects for each in findings.points):
        return []
    rows: list[Sequence[Line]] = []
    for point in findings.points:
        for metric, effect in point.effects.items():
            proof = book.proof(f"the results at {point.label} and at the baseline", effect.results)
            how = f"difference of {metric} at {point.label} to the baseline"
            percent: Line = ["–"]
            if effect.percent is not None:
                percent = [book.real(effect.percent, f"{how}{PERCENT}", proof), " %"]
            rows.append(
                [
                    [Code(point.label)],
                    [Code(metric)],
                    _metric_line(book, point.label, how, effect.difference, proof),
                    percent,
                    ["yes" if effect.is_clear else "no"],
                ]
            )
    return [
        Heading(2, ["Effects against the baseline"]),
        said(
            "The baseline is {}. Differences are taken seed by seed. A difference is clear if both ends of its "
            "interval have its sign.",
            Code(findings.baseline),
        ),
        Table([["Point"], ["Metric"], ["Difference"], ["In percent"], ["Clear"]], rows),
    ]


def _front(findings: Findings, book: Book) -> list[Block]:
    front = [each for each in findings.points if each.on_front]
    if not front:
        return []
    metrics = findings.plan.metrics
    rows: list[Sequence[Line]] = []
    for point in front:
        proof, row = _proof_of(book, point), list[Line]([[Code(point.label)]])
        for metric in metrics:
            row.append([book.real(point.metrics[metric.name].mean, f"mean of {metric.name} at {point.label}", proof)])
        rows.append(row)
    return [
        Heading(2, ["Pareto front"]),
        said("No other point is at least as good in every metric, and better in some."),
        Table([["Point"], *([Code(each.name)] for each in metrics)], rows),
    ]


def _failures(findings: Findings, book: Book) -> list[Block]:
    if not findings.failures:
        return []
    kinds: list[Sequence[Line]] = []
    for kind, count in findings.failures_by_kind.items():
        proof = book.proof(f"trials that failed: {kind}", [each.id for each in findings.failures if each.kind == kind])
        kinds.append([[Code(kind)], [book.count(count, f"trials that failed: {kind}", proof)]])
    shown = findings.failures[:FAILURES_SHOWN]
    rows: list[Sequence[Line]] = [
        [[ResultLink(each.id)], [Code(each.point)], [Code(each.kind)], [Code(each.reason)]] for each in shown
    ]
    made: list[Block] = [Heading(2, ["Failures"]), Table([["Kind"], ["Trials"]], kinds)]
    if len(shown) < len(findings.failures):
        made.append(said("The first of them by name:"))
    return [*made, Table([["Result"], ["Point"], ["Kind"], ["Reason"]], rows)]


_PLACE = re.compile(r"\[\[(n[0-9]+)\]\]")


def with_numbers(remarks: str, book: Book) -> list[Line]:
    """Paragraphs of prose with the numbers that it names as `[[n12]]`. An unknown name stays, and is refused."""
    made: list[Line] = []
    for paragraph in (each.strip() for each in remarks.split("\n\n")):
        line: list[Inline] = []
        for at, part in enumerate(_PLACE.split(plain_marks(paragraph))):
            if part:
                line.append(Num(part) if at % 2 and part in book.numbers else part)
        if line:
            made.append(line)
    return made


def plain_marks(text: str) -> str:
    """Prose of others on one line, with `[[n12]]` left in it and nothing else that a page could take for its own."""
    pieces = re.split(r"(\[\[n[0-9]+\]\])", " ".join(text.split()))
    return "".join(piece if at % 2 else plain_text(piece) for at, piece in enumerate(pieces))


def markdown(blocks: Sequence[Block], book: Book) -> str:
    return "\n\n".join(_md_block(each, book) for each in blocks) + "\n"


def _md_block(block: Block, book: Book) -> str:
    match block:
        case Heading(level, line):
            return f"{'#' * level} {_md(line, book)}"
        case Paragraph(line):
            return _md(line, book)
        case Quote(text):
            return f"> {text}"
        case Table(head, rows):
            lines = [_md_row(head, book), "|" + "---|" * len(head), *(_md_row(row, book) for row in rows)]
            return "\n".join(lines)
        case Picture(name, alt):
            return f"![{alt}]({name})"
        case Proofs():
            return "\n".join(_md_proof(name, each) for name, each in book.evidence.items())


def _md_row(cells: Sequence[Line], book: Book) -> str:
    return "| " + " | ".join(_md(cell, book) for cell in cells) + " |"


def _md(line: Line, book: Book) -> str:
    return "".join(_md_inline(each, book) for each in line)


def _md_inline(inline: Inline, book: Book) -> str:
    match inline:
        case Num(name):
            found = book.numbers[name]
            return f'[{found.text}](#{found.evidence} "{name}")'
        case Code(text):
            return f"`{text}`"
        case ResultLink(id):
            return f"[`{id}`](results/{id}.json)"
        case FileLink(text, file):
            return f"[{text}]({file})"
        case str():
            return escape(inline, quote=False)


def _md_proof(name: str, evidence: Evidence) -> str:
    if evidence.plan:
        return f'- <a id="{name}"></a>[the plan](plan.json)'
    links = ", ".join(f"[`{id}`](results/{id}.json)" for id in evidence.results)
    return f'- <a id="{name}"></a>{_about_md(evidence.about)}: {links}'


def _split_about(about: str) -> tuple[str, str]:
    """The words of an evidence, and the point that they end with."""
    for words in ("the results at ", "trials that failed: "):
        if about.startswith(words):
            rest = about.removeprefix(words)
            point, _, more = rest.partition(" and at the baseline")
            return words + ("(and at the baseline) " if rest != point else ""), point + more
    return about, ""


def _about_md(about: str) -> str:
    words, name = _split_about(about)
    return f"{words}`{name}`" if name else words


def html(blocks: Sequence[Block], book: Book, study: str) -> str:
    body = "\n".join(_html_block(each, book) for each in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="{VIEWPORT}">\n'
        f"<title>{escape(study)}: report</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _html_block(block: Block, book: Book) -> str:
    match block:
        case Heading(level, line):
            return f"<h{level}>{_html(line, book)}</h{level}>"
        case Paragraph(line):
            return f"<p>{_html(line, book)}</p>"
        case Quote(text):
            return f"<blockquote>{escape(text)}</blockquote>"
        case Table(head, rows):
            top = "".join(f'<th scope="col">{_html(cell, book)}</th>' for cell in head)
            body = "\n".join(
                "<tr>" + "".join(f"<td>{_html(cell, book)}</td>" for cell in row) + "</tr>" for row in rows
            )
            inside = f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>"
            return f'<div class="scroll" tabindex="0"><table>\n{inside}\n</table></div>'
        case Picture(name, alt):
            return f'<figure><img src="{escape(name)}" alt="{escape(alt)}"></figure>'
        case Proofs():
            lines = "\n".join(_html_proof(name, each) for name, each in book.evidence.items())
            return f'<ul class="evidence">\n{lines}\n</ul>'


def _html(line: Line, book: Book) -> str:
    return "".join(_html_inline(each, book) for each in line)


def _html_inline(inline: Inline, book: Book) -> str:
    match inline:
        case Num(name):
            found = book.numbers[name]
            return f'<a href="#{found.evidence}" data-n="{name}">{escape(found.text)}</a>'
        case Code(text):
            return f"<code>{escape(text)}</code>"
        case ResultLink(id):
            return f'<a href="results/{id}.json"><code>{id}</code></a>'
        case FileLink(text, file):
            return f'<a href="{escape(file)}">{escape(text)}</a>'
        case str():
            return escape(inline)


def _html_proof(name: str, evidence: Evidence) -> str:
    if evidence.plan:
        return f'<li id="{name}"><a href="plan.json">the plan</a></li>'
    words, point = _split_about(evidence.about)
    about = escape(words) + (f"<code>{escape(point)}</code>" if point else "")
    links = ", ".join(_html_inline(ResultLink(id), Book()) for id in evidence.results)
    return f'<li id="{name}">{about}: {links}</li>'


CSS = (
    ":root{color-scheme:light dark;--b:#fff;--t:#1b2130;--m:#5c667c;--l:#dfe3ec;--a:#2f5bd7;--s:#f5f6f9}"
    "@media(prefers-color-scheme:dark){:root{--b:#12151c;--t:#e8ebf3;--m:#9aa5bb;--l:#313949;--a:#84a4ff;--s:#1a1f2a}}"
    "body{margin:0;background:var(--b);color:var(--t);font:16px/1.55 system-ui,sans-serif}"
    "main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}h1{font-size:1.6rem}"
    "h2{font-size:1.2rem;margin-top:2rem}"
    "a{color:var(--a)}a[data-n]{text-decoration-style:dotted;text-underline-offset:.2em}"
    "code{background:var(--s);border-radius:4px;padding:.05em .3em;font-size:.88em;overflow-wrap:anywhere}"
    "blockquote{margin:1rem 0;padding:.2rem 1rem;border-left:3px solid var(--l);color:var(--m)}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid var(--l);vertical-align:top}"
    "figure{margin:1.2rem 0}img{max-width:100%;height:auto}"
    ".evidence{padding-left:1.1rem;font-size:.85rem;color:var(--m)}.evidence li{margin:.5rem 0;overflow-wrap:anywhere}"
    "li:target{background:var(--s);outline:2px solid var(--a)}"
)
