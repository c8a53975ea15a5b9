"""The tab Dead letters: which queues have some, searching them page by page, and redriving or deleting what matches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq import aio
from bucketmq.dashboard.queues import Page, message_row, place_of, place_text
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.dashboard.survey import Survey
from bucketmq.deliveries import DeadLetter
from bucketmq.errors import Invalid
from bucketmq.events.rule import spoken
from bucketmq.procedures.claiming.redrive import Redriven
from bucketmq.queue.settings import MAIN
from bucketmq.server.wire import Refusal

SEARCHED_MAX = 1_000
"""Dead letters that one request reads for a search; the page then asks for the next ones."""
IDS_MAX = 1_000
SETTLE_SECONDS = 10.0
"""A redrive or a delete that takes longer than this goes on in the background."""
ERROR_CHARS = 4_000
FAILURES_SHOWN = 10
QUEUES_SHOWN = 50


class Letters(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters somebody wants to see: `q` is in the body, the key, the id, the subscription or an error."""

    queue: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.q) > 200:
            raise Invalid("the search has more than 200 characters")


class Chosen(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters to act on: these ids, or all that match `q`; an empty one matches all."""

    queue: str
    ids: list[str] | None = None
    q: str | None = None

    def __post_init__(self) -> None:
        if (self.ids is None) == (self.q is None):
            raise ValueError("say either ids or q")
        if self.ids is not None and not 1 <= len(self.ids) <= IDS_MAX:
            raise ValueError(f"name 1 to {IDS_MAX} dead letters at a time, or all that match, by q")

    def spoken(self) -> str:
        if self.ids is not None:
            return f"{len(self.ids)} chosen: {', '.join(self.ids)}"
        return f"all that match {self.q!r}" if self.q else "all"


def routes(site: Site, survey: Survey) -> APIRouter:
    router = APIRouter(prefix="/api/dead")

    @router.get("")
    async def dead(request: Request) -> Response:
        """The queues that are known to have dead letters. Only those are looked at again."""
        caller = site.looker(request)
        names = [name for name in await site.work(survey.names()) if caller.sees(name)]
        known = await site.work(survey.some(names))
        having = [seen.name for seen in known if seen.stats is not None and seen.stats.dead]
        fresh = await site.work(survey.fresh(having[:QUEUES_SHOWN]))
        rows = [{"queue": each.name, "dead": each.stats.dead} for each in fresh if each.stats and each.stats.dead]
        more = max(0, len(having) - QUEUES_SHOWN)
        unreadable = [seen.name for seen in known if seen.stats is None]
        return json_answer(
            {
                "dead": rows,
                "more": more,
                "unseen": len(names) - len(known),
                "unreadable": unreadable[:QUEUES_SHOWN],
            }
        )

    @router.get("/letters")
    async def letters(request: Request) -> Response:
        """A page of a queue's dead letters, the oldest first; with a search, those of the next thousand that match."""
        wanted = query_of(request, Letters)
        site.looker(request, wanted.queue)
        return json_answer(await site.work(_page(site.bucket, wanted)))

    @router.post("/redrive")
    async def redrive(request: Request) -> Response:
        """Send dead letters again. With many that goes on after the answer."""
        chosen = await site.body(request, Chosen)
        await site.changer(
            request, "operate", "redrive", f"queue {chosen.queue}", how=chosen.spoken(), queue=chosen.queue
        )
        work = _redrive(site.bucket, chosen)
        done = await site.long_work(work, SETTLE_SECONDS, "redrive", f"queue={chosen.queue}")
        survey.forget(chosen.queue)
        return json_answer({"goes_on": True} if done is None else msgspec.to_builtins(done))

    @router.post("/delete")
    async def delete(request: Request) -> Response:
        """Forget dead letters. There is no way back."""
        chosen = await site.body(request, Chosen)
        await site.changer(
            request, "administer", "delete", f"dead letters of {chosen.queue}", how=chosen.spoken(), queue=chosen.queue
        )
        work = _delete(site.bucket, chosen)
        deleted = await site.long_work(work, SETTLE_SECONDS, "delete", f"queue={chosen.queue}")
        survey.forget(chosen.queue)
        return json_answer({"goes_on": True} if deleted is None else {"deleted": deleted})

    return router


async def _redrive(bucket: aio.Bucket, chosen: Chosen) -> Redriven:
    return await bucket.existing_queue(chosen.queue).dead_letters.redrive(ids=chosen.ids, where=_where(chosen.q))


async def _delete(bucket: aio.Bucket, chosen: Chosen) -> int:
    where = _where(chosen.q) or (None if chosen.ids is not None else lambda _: True)
    return await bucket.existing_queue(chosen.queue).dead_letters.delete(ids=chosen.ids, where=where)


async def _page(bucket: aio.Bucket, wanted: Letters) -> dict[str, Any]:
    letters = bucket.existing_queue(wanted.queue).dead_letters
    fits = _where(wanted.q)
    after = place_of(wanted.after)
    if fits is None:
        found = await letters.peek(wanted.limit, after=after)
        return _answer(wanted.queue, found, found, whole=len(found) < wanted.limit)
    found = await letters.peek(SEARCHED_MAX, after=after)
    shown: list[DeadLetter] = []
    for place, letter in enumerate(found):
        if fits(letter):
            shown.append(letter)
        if len(shown) == wanted.limit:
            return _answer(wanted.queue, shown, found[: place + 1], whole=place + 1 == len(found) < SEARCHED_MAX)
    return _answer(wanted.queue, shown, found, whole=len(found) < SEARCHED_MAX)


def _answer(queue: str, shown: list[DeadLetter], searched: list[DeadLetter], *, whole: bool) -> dict[str, Any]:
    return {
        "letters": [letter_row(queue, each) for each in shown],
        "searched": len(searched),
        "next": None if whole else place_text(searched[-1]),
    }


def _where(q: str | None) -> Callable[[DeadLetter], bool] | None:
    """Whether a text is anywhere in a dead letter, in upper or lower case."""
    if not q:
        return None
    if len(q) > 200:
        raise Refusal(400, "the search has more than 200 characters")
    needle = q.casefold()

    def fits(letter: DeadLetter) -> bool:
        errors = [each["error"] for each in letter.failures]
        body = letter.body
        text = body if isinstance(body, str) else "" if isinstance(body, bytes) else msgspec.json.encode(body).decode()
        return any(
            needle in (each or "").casefold() for each in (text, letter.key, letter.id, letter.subscription, *errors)
        )

    return fits


def letter_row(queue: str, letter: DeadLetter) -> dict[str, Any]:
    died = letter.message.died
    return {
        **message_row(letter),
        "died_at": died.at if died else None,
        "attempts": died.attempts if died else letter.attempts,
        "subscription": spoken(queue, letter.subscription or MAIN),
        "reason": letter.reason[:500],
        "failures": [{**each, "error": each["error"][-ERROR_CHARS:]} for each in letter.failures[-FAILURES_SHOWN:]],
    }
