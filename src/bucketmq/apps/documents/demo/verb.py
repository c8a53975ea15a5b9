"""The verb `apps demo documents`: made-up documents of a made-up company are put into a folder, indexed by a process of
its own, searched, changed and deleted; the page shows the same."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from bucketmq.apps.documents.demo.made import docx, pdf
from bucketmq.apps.documents.library import Found, Library
from bucketmq.apps.documents.names import PIPELINE, PREFIX
from bucketmq.apps.page import page_of
from bucketmq.apps.supervisor import Supervisor
from bucketmq.cli.exits import end
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, say
from bucketmq.client import Bucket, connect
from bucketmq.crew import Scene, free_port
from bucketmq.errors import BucketMQError
from bucketmq.server.people import TOKENS_VARIABLE

WAIT_SECONDS = 90.0
LOOK_SECONDS = 0.3

QUESTIONS = (
    ("what happens to holidays I did not take", "docs/handbook.md"),
    ("the press has stopped, what do I check first", "docs/press-9.txt"),
    ("how many pieces until it gets cheaper", "docs/prices.html"),
    ("who pays for a hotel on a business trip", "docs/handbook.md"),
)
"""Each with the document that answers it, in other words than the document's."""


class Step:
    """One thing that the demo shows: what it looked for, and whether it came out."""

    def __init__(self, what: str, good: bool, seconds: float, found: str = "") -> None:
        self.what = what
        self.good = good
        self.seconds = seconds
        self.found = found


def demo(
    encoder: Annotated[str, typer.Option(help="The encoder: granite, minilm or none.")] = "granite",
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See documents indexed, searched, changed and deleted, on a local folder and with made-up documents.

    Needs no account, no server and no Java. Ends by itself in less than a minute; exits with 1 if something came out
    wrong.
    """
    with Scene("documents") as scene:
        scene.good = _run(scene.folder, scene.url, encoder, keep=keep, as_json=as_json)
    end(scene)


def _run(folder: Path, url: str, encoder: str, *, keep: bool, as_json: bool) -> bool:
    page = page_of((), TOKENS_VARIABLE, f"http://127.0.0.1:{free_port()}")
    address = page.link.partition("/#")[0]
    words = ["--json", "apps", "run", "documents", "--url", url, "--without-spark", f"--parent={os.getpid()}"]
    port = address.rpartition(":")[2]
    commands = {
        PIPELINE: [*words, "--only", PIPELINE, "--encoders", encoder],
        "page": [*words, "--only", "page", "--port-page", port],
    }
    with (
        Supervisor(
            commands, folder=folder, environment={"PYTHONUNBUFFERED": "1", **page.environment}, tell=lambda *_: None
        ) as parts,
        connect(url) as bucket,
    ):
        steps = _steps(bucket, parts, tell=(lambda _: None) if as_json else emit_text)
        good = all(step.good for step in steps)
        if as_json:
            told = [{"step": each.what, "good": each.good, "seconds": round(each.seconds, 2)} for each in steps]
            emit({"good": good, "steps": told, "page": page.link if keep else address})
        elif keep:
            emit_text(f"the page: {page.link}")
            emit_text("Everything goes on running. Ctrl-C ends it.")
        else:
            emit_text(f"The page was at {address}; --keep leaves it running.")
        if keep:
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                parts.stay(lambda: False)
    return good


def samples() -> dict[str, bytes]:
    """The documents: those that come with the package, and two that are made here."""
    found = {each.name: each.read_bytes() for each in files(__package__).joinpath("docs").iterdir() if each.is_file()}
    found["minutes.docx"] = docx(
        "Minutes of the board",
        [
            ("Budget", "Ada Example presented the budget. Acme Widgets plans a second hall in Exampleville."),
            ("Suppliers", "Widget Labs supplies seals for two more years. Cy Placeholder signed the contract WL_2026."),
        ],
    )
    found["delivery.pdf"] = pdf(
        ["Delivery routes\nBo Sample plans the routes every morning.", "The van to Sampletown leaves at ten."],
        title="Delivery routes",
    )
    return {PREFIX + name: body for name, body in sorted(found.items())}


def _steps(bucket: Bucket, parts: Supervisor, tell: Callable[[str], None]) -> list[Step]:
    library = Library(bucket.api)
    steps: list[Step] = []

    def until(what: str, look: Callable[[], str], *, seconds: float = WAIT_SECONDS) -> None:
        """Wait until something is found; `look` answers "" while it is not."""
        began = time.monotonic()
        found = look()
        while not found and time.monotonic() - began < seconds:
            time.sleep(LOOK_SECONDS)
            parts.look()
            found = look()
        steps.append(Step(what, bool(found), time.monotonic() - began, found))
        tell(f"{'ok  ' if found else 'FAIL'} {steps[-1].seconds:5.1f} s  {what}{f': {found}' if found else ''}")

    def search(query: str) -> Found:
        return bucket.run(library.search(query, limit=3))

    given = samples()
    until("all parts are ready", lambda: "the indexer and the page" if parts.ready else "")
    bucket.put_many(given)
    until(f"{len(given)} documents are indexed", lambda: _indexed(bucket, library, len(given)))
    for question, doc in QUESTIONS:
        find = functools.partial(lambda asked, its: _first(search(asked), its), question, doc)
        until(f"“{question}”", find, seconds=0)
    changed = given["docs/prices.html"].replace(b"A small widget costs 3 euros", b"A small widget costs 4 euros")
    bucket.put("docs/prices.html", changed)
    until("a changed price is found, the old one is not", lambda: _price(search("price of a small widget")))
    bucket.delete("docs/incident.md")
    until("a deleted document is found no more", lambda: _without(search("the night the orders stood still"), bucket))
    bucket.put("docs/broken.pdf", given["docs/delivery.pdf"][:300])
    until("a broken document is told, not hidden", lambda: _told(bucket, library))
    until("who Ada Example has to do with", lambda: _around(bucket, library))
    return steps


def _indexed(bucket: Bucket, library: Library, count: int) -> str:
    found = bucket.run(library.overview())
    return f"{found.chunks} chunks" if found.documents >= count else ""


def _first(found: Found, doc: str) -> str:
    return found.hits[0].place.id if found.hits and found.hits[0].place.doc == doc else ""


def _price(found: Found) -> str:
    texts = " ".join(hit.place.text for hit in found.hits)
    return "4 euros" if "costs 4 euros" in texts and "costs 3 euros" not in texts else ""


def _without(found: Found, bucket: Bucket) -> str:
    return "gone" if found.hits and all(hit.place.doc != "docs/incident.md" for hit in found.hits) else ""


def _told(bucket: Bucket, library: Library) -> str:
    failures = bucket.run(library.overview()).failures
    return failures[0].reason if failures else ""


def _around(bucket: Bucket, library: Library) -> str:
    try:
        around = bucket.run(library.graph("Ada Example"))
    except BucketMQError as error:
        say(str(error))
        return ""
    told = [each for each in around.edges if around.node.name in (each.subject, each.object)]
    return ", ".join(f"{each.subject} {each.relation} {each.object}" for each in told[:3])
