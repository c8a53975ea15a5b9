"""The whole of moderation on a real object store: submitted, judged, routed, told of, reviewed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

import bucketmq
from apps.moderation.agents import running, settings_with
from apps.moderation.test_pipeline import places_of
from bucketmq import aio
from bucketmq.apps.moderation import ingest, posts, router
from bucketmq.apps.moderation.demo.posts import samples
from bucketmq.apps.moderation.pipeline import pipeline
from bucketmq.apps.moderation.queues import SUBMISSIONS
from bucketmq.apps.moderation.record import APPROVED, FLAGGED, OUTCOMES, REVIEWED
from bucketmq.apps.moderation.register import Refused, Reviewed
from bucketmq.server.place import bus_of, run_now
from bucketmq.testing import servers
from bucketmq.testing.endpoints import endpoint

COUNT = 12
HOSTILE = "../approved/post-0001"


@pytest.fixture
def url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)


@pytest.mark.slow
def test_every_post_ends_in_one_place_and_every_flagged_one_is_told_of(url: str) -> None:
    given = {sample.id: sample.text for sample in samples(COUNT, seed=2)} | {HOSTILE: "Nice weather today."}
    with running(lambda: aio.connect(url), lambda bucket: ingest.make_app(bucket, settings_with())) as agent:
        for id, text in given.items():
            answer = agent.http.post("/submit", json={"id": id, "text": text})
            assert (answer.status_code, answer.json()) == (201, {"id": id, "status": "pending"})
        assert agent.http.post("/submit", json={"id": HOSTILE, "text": given[HOSTILE]}).status_code == 201  # again
        assert agent.http.post("/submit", json={"id": "p1"}).status_code == 400
    with bucketmq.connect(url) as bucket:
        queue = bucket.queue(SUBMISSIONS).subscription("moderation")
        queue.run(pipeline().watcher(bucket), stop_when_empty=True, signals=False, concurrency=4)
        with endpoint() as people:
            for _ in range(2):  # the second time there is nothing to do
                asyncio.run(_route(url, people.url))
            told = [msgspec.json.decode(each.body)["content"]["id"] for each in people.requests]
        places = {id: places_of(bucket, id) for id in given}
        assert {len(prefixes) for prefixes in places.values()} == {1}
        assert {prefixes[0] for prefixes in places.values()} <= set(OUTCOMES)
        flagged = [id for id, prefixes in places.items() if prefixes == [FLAGGED]]
        assert flagged and set(told) == set(flagged)

        review = posts.review(bus_of(bucket), flagged[0], revision=1, reviewer="rosa", action="approve", note="a joke")
        assert isinstance(run_now(bucket, review), Reviewed)
        assert places_of(bucket, flagged[0]) == [APPROVED]
        assert bucket.get_json(f"{REVIEWED}{flagged[0]}.json")["reviewer"] == "rosa"
        late = posts.review(bus_of(bucket), flagged[0], revision=1, reviewer="otto", action="uphold")
        assert isinstance(run_now(bucket, late), Refused)


async def _route(url: str, review_url: str) -> None:
    settings = settings_with(review_url=review_url, review_format="json")
    async with aio.connect(url) as bucket:
        await router.Router(bucket, settings).run_once()
