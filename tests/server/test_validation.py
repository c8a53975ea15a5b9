"""A request that does not fit a route: each app says what was wrong, and only receivers speak of sources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx2
from fastapi import FastAPI

from bucketmq.server.app import bare_app
from server.running import Running


@contextlib.asynccontextmanager
async def nothing(_app: FastAPI) -> AsyncIterator[None]:
    yield


def app_with_a_typed_route() -> FastAPI:
    app = bare_app("Another app", "Has no receivers.", nothing)

    @app.get("/posts/{state}")
    async def posts(state: Literal["open", "closed"], limit: int = 10) -> dict[str, Any]:
        return {"state": state, "limit": limit}

    return app


def get(app: FastAPI, path: str) -> httpx2.Response:
    async def one() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://here") as client:
            return await client.get(path)

    return asyncio.run(one())


def test_what_does_not_fit_a_route_is_a_422_that_names_the_field() -> None:
    app = app_with_a_typed_route()
    assert get(app, "/posts/open?limit=5").json() == {"state": "open", "limit": 5}
    for path, field in (("/posts/open?limit=many", "limit"), ("/posts/lost", "state")):
        answer = get(app, path)
        assert answer.status_code == 422, answer.text
        assert set(answer.json()) == {"error", "hint"}
        assert field in answer.json()["error"] and "source" not in answer.text


def test_a_source_that_does_not_exist_is_still_a_404_of_the_receivers(server: Running) -> None:
    answer = server.http.post("/events/nobody")
    assert answer.status_code == 404
    assert "no such source" in answer.json()["error"] and "tigris" in answer.json()["hint"]
