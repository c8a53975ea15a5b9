"""An indexer that dies between any two requests, or gets a bad answer: each document is old or new, never neither."""

from __future__ import annotations

from typing import Any

import pytest
from procedures.objects.world import World
from procedures.rules.test_watchers import run as watched
from procedures.rules.test_watchers import run_until_death

from apps.documents.shelf import texts_of
from bucketmq.apps.documents.names import table_of
from bucketmq.apps.documents.pipeline import index

NONE = ("none",)


def watching(bucket: Any) -> Any:
    pipeline = index(encoders=NONE)
    handler = pipeline.watcher(bucket)
    bucket.watch(pipeline.source.filter, name=pipeline.name, start="beginning", lease_seconds=5)(handler)
    return bucket


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its threads die with it
def test_an_indexer_killed_between_any_two_requests_leaves_each_document_whole() -> None:
    old = {"docs/a.txt": ["old text"], "docs/b.txt": ["bee"]}
    new = {"docs/a.txt": ["new text"]}
    between = ({**old, "docs/a.txt": ["new text"]}, {"docs/a.txt": ["old text"]})
    at, dead, seen = 0, True, []
    while dead:
        world = World("copying")
        living = watching(world.connect())
        living.put("docs/a.txt", "old text")
        living.put("docs/b.txt", "bee")
        watched(living)
        table = living.table(table_of("none"))
        living.put("docs/a.txt", "new text")
        living.delete("docs/b.txt")
        dying = watching(world.connect(at=-1, fault="dies after"))
        dying.hands.at = dying.hands.count + at  # what opens the bucket is not counted
        run_until_death(dying)
        seen.append(texts_of(table))
        assert seen[-1] in (old, new, *between)
        world.advance(30)
        watched(living)
        assert texts_of(table) == new
        dead = dying.hands.dead
        world.close()
        at += 1
    assert at > 10 and seen[0] == old and seen[-1] == new


@pytest.mark.slow
def test_documents_are_indexed_changed_and_deleted_on_a_real_object_store() -> None:
    import bucketmq
    from apps.documents.shelf import Shelf
    from bucketmq.testing import servers

    try:
        with servers.seaweedfs() as url:
            shelf = Shelf(bucketmq.connect(url))
            shelf.put(a_md="alpha text", b_md="beta text", c_pdf=b"%PDF-1.4 broken")
            assert [hit.place.doc for hit in shelf.search("alpha").hits] == ["docs/a.md"]
            shelf.put(a_md="gamma text")
            shelf.bucket.delete("docs/b.md")
            shelf.work()
            assert shelf.texts() == {"docs/a.md": ["gamma text"]}
            assert shelf.search("alpha beta").hits == () and len(shelf.reasons()) == 1
            shelf.close()
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)
