"""The routes behind the tab Artifacts. Thin: each calls a part. Who promotes is whoever is logged in; what signs is the
key of this server, so without one the page only shows."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.artifacts import overview, promotion
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.keyfiles import load_key
from bucketmq.apps.artifacts.keys import Trust
from bucketmq.apps.artifacts.overview import Build, cell_row
from bucketmq.apps.artifacts.promotion import Promoted, Promoter
from bucketmq.apps.artifacts.refusals import Gated, Untrusted
from bucketmq.apps.artifacts.settings import read_pin
from bucketmq.apps.artifacts.verify import newest_trust
from bucketmq.dashboard.site import Kept, Site, json_answer
from bucketmq.errors import BucketMQError, Contended, Denied
from bucketmq.server.wire import Refusal

BUILDS_SHOWN = 20
PAST_SHOWN = 30

Result = TypeVar("Result")


class Promotion(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    version: str
    environment: str
    why: str = ""


class Rollback(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    environment: str
    to: str = ""
    why: str = ""


def artifact_routes(site: Site, trust_file: str, key_file: str) -> APIRouter:
    router = APIRouter()
    bucket, bus = site.bucket, site.bucket.api
    signing: tuple[SigningKey, ...] = (load_key(Path(key_file)),) if key_file else ()

    async def trusted() -> Trust:
        found, _ = await bucket.run(newest_trust(bus, read_pin(trust_file)))
        return found

    async def see() -> dict[str, Any]:
        trust = await trusted()
        cells = await bucket.run(overview.overview(bus, trust))
        builds = await bucket.run(overview.builds(bus))
        return _seen(trust, cells, builds, can_sign=bool(signing))

    kept = Kept(see)

    @router.get("/overview")
    async def everything(request: Request) -> Response:
        """Every artifact in every environment, and what could be promoted."""
        site.looker(request)
        return json_answer(await site.work(_told(kept.read())))

    @router.get("/gate")
    async def gate(request: Request) -> Response:
        """Whether a version may go to an environment, and what is missing."""
        caller = site.looker(request)
        asked = [request.query_params.get(each, "") for each in ("name", "version", "environment")]

        async def judge() -> Any:
            promoter = signing[0].id if signing else ""
            found = overview.gate_of(bus, await trusted(), *asked, promoter=promoter, by=caller.name)
            return await bucket.run(found)

        return json_answer(msgspec.to_builtins(await site.work(_told(judge()))))

    @router.get("/difference")
    async def difference(request: Request) -> Response:
        """How two versions differ."""
        site.looker(request)
        name, before, after = (request.query_params.get(each, "") for each in ("name", "before", "after"))
        found = await site.work(_told(bucket.run(overview.difference(bus, name, before, after))))
        return json_answer(msgspec.to_builtins(found[2]))

    @router.post("/promote")
    async def promote(request: Request) -> Response:
        """Make a version current in an environment."""
        wanted = await site.body(request, Promotion)
        what = f"{wanted.name[:100]} {wanted.version[:100]} to {wanted.environment[:100]}"
        caller = await site.changer(request, "operate", "promote", what, how=wanted.why[:500])

        async def work() -> Promoted:
            by = Promoter(_signing(), caller.name, wanted.why)
            todo = promotion.promote(bus, await trusted(), wanted.name, wanted.version, wanted.environment, promoter=by)
            return await bucket.run(todo)

        return _pointer(await site.work(_told(work())))

    @router.post("/rollback")
    async def rollback(request: Request) -> Response:
        """Go back to what was current before."""
        wanted = await site.body(request, Rollback)
        what = f"{wanted.name[:100]} in {wanted.environment[:100]}"
        caller = await site.changer(request, "operate", "rollback", what, how=wanted.why[:500])

        async def work() -> Promoted:
            by = Promoter(_signing(), caller.name, wanted.why)
            todo = promotion.rollback(bus, await trusted(), wanted.name, wanted.environment, promoter=by, to=wanted.to)
            return await bucket.run(todo)

        return _pointer(await site.work(_told(work())))

    def _signing() -> tuple[SigningKey, ...]:
        if not signing:
            raise Denied("this page has no key to sign with; start it with --key FILE, or use the command line")
        return signing

    def _pointer(done: Promoted) -> Response:
        kept.forget()
        return json_answer({**msgspec.to_builtins(done.pointer.current), "new": done.new})

    return router


async def _told(work: Coroutine[Any, Any, Result]) -> Result:
    """Refusals of this application as answers that a page can show."""
    try:
        return await work
    except (Gated, Untrusted, Contended, Denied) as error:
        raise Refusal(403 if type(error) is Denied else 409, _said(error)) from None


def _said(error: BucketMQError) -> str:
    return f"{error}"[:2_000]


def _seen(trust: Trust, cells: list[overview.Cell], builds: list[Build], *, can_sign: bool) -> dict[str, Any]:
    names = sorted({each.name for each in cells} | {each.name for each in builds})
    return {
        "trust": trust.number,
        "trust_until": trust.expires_at,
        "can_sign": can_sign,
        "environments": msgspec.to_builtins(trust.environments),
        "artifacts": [
            {
                "name": name,
                "cells": {each.environment: _cell(each) for each in cells if each.name == name},
                "builds": [_build(each) for each in builds if each.name == name][:BUILDS_SHOWN],
            }
            for name in names
        ],
    }


def _cell(cell: overview.Cell) -> dict[str, Any]:
    row = cell_row(cell)
    return {**row, "past": row["past"][:PAST_SHOWN]}


def _build(build: Build) -> dict[str, Any]:
    return {"version": build.version, "stored_at": build.stored_at}
