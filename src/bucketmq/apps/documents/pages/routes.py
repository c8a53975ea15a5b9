"""The routes behind the tab Documents. Thin: each asks the library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.documents.library import LIMIT, NEIGHBOURS, Library
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.requests import Procedure
from bucketmq.server.wire import Refusal

LIMIT_MAX = 50


class Searched(msgspec.Struct):
    q: str = ""
    prefix: str = ""
    limit: int = LIMIT


class Named(msgspec.Struct):
    name: str
    limit: int = NEIGHBOURS


class Chunked(msgspec.Struct):
    chunk: str
    q: str = ""


def document_routes(site: Site) -> APIRouter:
    router = APIRouter()
    library = Library(site.bucket.api)
    lock = asyncio.Lock()

    async def answered(make: Callable[[], Procedure[Any]]) -> Response:
        """What the library answers. One caller at a time brings the index up to date; the others find it done."""

        async def work() -> Any:
            async with lock:
                await site.bucket.run(library.refresh())
            return await site.bucket.run(make())

        try:
            found = await site.work(work())
        except NotFound as error:
            raise Refusal(404, str(error)) from None
        except Invalid as error:
            raise Refusal(400, str(error)) from None
        return json_answer(msgspec.to_builtins(found))

    @router.get("/search")
    async def search(request: Request) -> Response:
        """The chunks that answer a query best."""
        site.looker(request)
        asked = query_of(request, Searched)
        limit = max(1, min(LIMIT_MAX, asked.limit))
        return await answered(lambda: library.search(asked.q, limit=limit, prefix=asked.prefix))

    @router.get("/why")
    async def why(request: Request) -> Response:
        """A chunk, its place and its evidence."""
        site.looker(request)
        asked = query_of(request, Chunked)
        return await answered(lambda: library.why(asked.chunk, query=asked.q))

    @router.get("/graph")
    async def graph(request: Request) -> Response:
        """A name and what is around it."""
        site.looker(request)
        asked = query_of(request, Named)
        return await answered(lambda: library.graph(asked.name, limit=max(1, min(LIMIT_MAX, asked.limit))))

    @router.get("/overview")
    async def overview(request: Request) -> Response:
        """How much there is, and what could not be indexed."""
        site.looker(request)
        return await answered(library.overview)

    return router
