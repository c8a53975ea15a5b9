"""The verbs `bucketmq documents ...`: thin. What they answer is `library`'s and `answers`'."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from bucketmq.cli.exits import Code
from bucketmq.cli.group import Group
from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import emit, emit_text, plural, say, table
from bucketmq.procedures.requests import Procedure

if TYPE_CHECKING:
    from bucketmq.apps.documents.library import Library

Answer = TypeVar("Answer")
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="How many, at most.")]
LINE_CHARACTERS = 300


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in words.")],
    *,
    limit: Limit = 10,
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="Only documents with this key prefix.")] = "",
    lance: Annotated[
        str, typer.Option(metavar="FOLDER", help="Search this copy in Lance (`documents lance`) instead of the bucket.")
    ] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Find the passages that answer a query best, by words and by meaning. Exits with 3 if there are none."""
    if lance:
        from bucketmq.apps.documents.lance_copy import LanceCopy

        found = LanceCopy(lance).search(query, limit=limit, prefix=prefix)
    else:
        found = _answered(url, lambda library: library.search(query, limit=limit, prefix=prefix))
    if as_json:
        for hit in found.hits:
            emit(msgspec.to_builtins(hit))
    else:
        for hit in found.hits:
            emit_text(f"{hit.score:6.2f}  {hit.place.id}{_where(hit.place)}")
            emit_text(f"        {_excerpt(hit.place.text, hit.marks)}")
            if hit.also:
                emit_text(f"        the same in {', '.join(hit.also)}")
        how = "words and vectors" if found.ranking == "hybrid" else "words alone"
        say(f"{plural(len(found.hits), 'hit')} among {plural(found.chunks, 'chunk')}, by {how}")
    if not found.hits:
        raise typer.Exit(Code.EMPTY)


def why(
    chunk: Annotated[str, typer.Argument(metavar="CHUNK", help="A chunk, as search shows it: docs/a.pdf#3.")],
    *,
    query: Annotated[str, typer.Option("--query", "-q", metavar="QUERY", help="Also say how it ranks for this.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show a chunk: its place in the source, what stands around it, what it is evidence of."""
    found = _answered(url, lambda library: library.why(chunk, query=query))
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    place = found.place
    emit_text(f"{place.id}{_where(place)}")
    for line in place.text.splitlines():
        emit_text(f"  {line}")
    emit_text(f"characters {place.start:,} to {place.stop:,} of the text of {place.doc}, written {place.at}")
    if found.before or found.after:
        emit_text(f"between {found.before or 'the beginning'} and {found.after or 'the end'}")
    if found.entities:
        emit_text(f"speaks of {', '.join(each.name for each in found.entities)}")
    if query:
        hit = found.hit
        score = "" if hit is None else f", bm25 {hit.bm25:.2f}" + (f", cosine {hit.cosine:.2f}" if hit.cosine else "")
        emit_text(f"rank {found.rank}{score}" if found.rank else "not among the first hits for this query")


def graph(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to look around: a name that documents have.")],
    *,
    limit: Limit = 12,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show what documents say around a name, each line with the chunks that prove it."""
    found = _answered(url, lambda library: library.graph(name, limit=limit))
    if as_json:
        emit(msgspec.to_builtins(found))
        return
    node = found.node
    also = [each for each in node.aliases if each != node.name]
    emit_text(f"{node.name} ({node.kind}), in {plural(len(node.chunks), 'chunk')}{_also(also)}")
    own = [each for each in found.edges if node.name in (each.subject, each.object)]
    rows = [(each.subject, each.relation, each.object, len(each.chunks), _proof(each)) for each in own]
    table(("subject", "relation", "object", "#chunks", "for instance"), rows)


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to answer from the documents.")],
    *,
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="Only from documents with this key prefix.")] = "",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Answer a question from quoted passages alone, by Claude (ANTHROPIC_API_KEY); without a key, show the passages."""
    from bucketmq.apps.documents import answers

    model = _model()
    try:
        answered = _answered(url, lambda library: answers.ask(library, question, model, prefix=prefix))
    finally:
        if model is not None:
            model.close()
    if as_json:
        emit(msgspec.to_builtins(answered))
    elif answered.answer is not None:
        emit_text(answered.answer)
        for each in answered.quotes:
            emit_text(f"  “{each.quote}” {each.chunk}")
    else:
        say(answered.refused)
        for hit in answered.passages:
            emit_text(f"{hit.place.id}{_where(hit.place)}")
            emit_text(f"  {_excerpt(hit.place.text, hit.marks)}")
    if not answered.passages:
        raise typer.Exit(Code.EMPTY)


def status(*, url: Url = None, as_json: Json = False) -> None:
    """Show how much is indexed, which encoder serves, and which documents could not be read."""
    from bucketmq.apps.documents.encoders import ENCODERS
    from bucketmq.apps.documents.library import Library
    from bucketmq.apps.documents.serving import snapshot_of

    with open_bucket(url, probe=False) as bucket:
        found = bucket.run(Library(bucket.api).overview())
        tables = {name: bucket.run(snapshot_of(bucket.api, name)) for name in ENCODERS}
    if as_json:
        chunks = {name: at.rows for name, at in tables.items() if at is not None}
        emit({**msgspec.to_builtins(found), "tables": chunks})
        return
    served = (
        f"served by {found.encoder}" if found.encoder else "and no table of them; bucketmq apps run documents makes it"
    )
    emit_text(f"{plural(found.documents, 'document')}, {plural(found.chunks, 'chunk')}, {served}")
    for name, at in tables.items():
        if at is not None and name != found.encoder:
            emit_text(f"beside it: {name}, {plural(at.rows, 'chunk')}")
    if found.entities:
        emit_text(f"most is about {', '.join(each.name for each in found.entities[:8])}")
    if found.untyped:
        emit_text(
            f"{plural(found.untyped, 'chunk')} without typed relations; to ask Claude about them: "
            "bucketmq apps rerun documents --stage vectors --prefix docs/"
        )
    for each in found.failures:
        emit_text(f"not indexed: {each.key}: {each.reason}")


def switch(
    encoder: Annotated[str, typer.Argument(metavar="ENCODER", help="granite, minilm or none.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if documents are missing in its table.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Search the table of another encoder from now on. Build it first, beside the one that serves."""
    from bucketmq.apps.documents.serving import switch as switched

    with open_bucket(url) as bucket:
        done = bucket.run(switched(bucket.api, encoder, force=force))
    if as_json:
        emit(msgspec.to_builtins(done))
    else:
        emit_text(f"{done.encoder} serves now, with {plural(done.documents, 'document')}; before: {done.before}")


def lance(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the copy lies, or shall lie.")],
    *,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Bring a copy of all passages in Lance up to date, for more of them than memory should hold. Makes it first.

    Reads the files of the table that changed since. One process at a time updates a copy; any number search it.
    """
    from bucketmq.apps.documents.lance_copy import update

    with open_bucket(url, probe=False) as bucket:
        done = update(bucket, folder)
    if as_json:
        emit(msgspec.to_builtins(done))
    else:
        how = "made" if done.rebuilt else "updated"
        came, chunks = plural(done.documents, "document"), plural(done.chunks, "chunk")
        emit_text(f"{how}: {came} came or changed, {done.gone:,} went; {chunks} of {done.encoder}")


def _answered(url: str | None, ask: Callable[[Library], Procedure[Answer]]) -> Answer:
    """What the library of the bucket answers."""
    from bucketmq.apps.documents.library import Library

    with open_bucket(url, probe=False) as bucket:
        return bucket.run(ask(Library(bucket.api)))


def _model() -> Any:
    """Claude, if there is a key."""
    if not os.environ.get("ANTHROPIC_API_KEY"):
        return None
    from bucketmq.models.claude import ClaudeClient, settings_of

    return ClaudeClient(settings_of(os.environ))


def _where(place: Any) -> str:
    parts = [f"page {place.page}" if place.page else "", place.heading]
    told = ", ".join(each for each in parts if each)
    return f"  ({told})" if told else ""


def _excerpt(text: str, marks: tuple[tuple[int, int], ...]) -> str:
    """The part of a text with the first words that were looked for, on one line."""
    start = max(0, (marks[0][0] if marks else 0) - LINE_CHARACTERS // 4)
    cut = " ".join(text[start : start + LINE_CHARACTERS].split())
    return f"{'… ' if start else ''}{cut}{' …' if start + LINE_CHARACTERS < len(text) else ''}"


def _proof(edge: Any) -> str:
    """The first chunk that proves an edge; of one that Claude found, the words."""
    return f"{edge.quotes[0].chunk}: “{' '.join(edge.quotes[0].quote.split())}”" if edge.quotes else edge.chunks[0]


def _also(names: list[str]) -> str:
    return f", also written {', '.join(names)}" if names else ""


GROUP = Group("documents", "Documents below docs/: search them, see why, walk their graph, ask.")
GROUP.add("Ask", search, 'bucketmq documents search "how long are dead letters kept"')
GROUP.add("Ask", why, "bucketmq documents why docs/handbook.md#0 --query leases")
GROUP.add("Ask", graph, 'bucketmq documents graph "Acme Corp" --json')
GROUP.add("Ask", ask, 'bucketmq documents ask "who leads Acme Corp?"')
GROUP.add("Look", status, "bucketmq documents status", "bucketmq documents status --json")
GROUP.add("Work", switch, "bucketmq documents switch minilm")
GROUP.add("Work", lance, "bucketmq documents lance ./copy", 'bucketmq documents search "leases" --lance ./copy')
