"""The routes behind the tab Studies: how far each is, what failed, and the files of reports. Thin.

Files are served as what they are and nothing else: no script can run in them, and nothing is loaded from elsewhere,
their authors in the bucket.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.apps.research import figures, report, study
from bucketmq.apps.research.plan import NAME
from bucketmq.apps.research.record import REPORT_HTML, study_key
from bucketmq.apps.research.synthesis import label_of
from bucketmq.dashboard.site import Kept, Site, json_answer
from bucketmq.errors import Corrupt, NotFound
from bucketmq.server.wire import Refusal

FAILURES_MAX = 20
STUDIES_MAX = 200

_FILE = re.compile(
    r"(report\.html|report\.md|plan\.json|synthesis\.json|figures/[\w-]+\.svg|results/[0-9a-f]{24}\.json)\Z"
)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; img-src 'self'; style-src {_hash(report.CSS)} {_hash(figures.STYLE)}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-same-origin"
)
KINDS = {
    "html": "text/html; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}


class Failed(msgspec.Struct, frozen=True):
    id: str
    point: str
    kind: str
    reason: str


class Shown(msgspec.Struct, frozen=True):
    """A study for the page."""

    status: study.Status
    figures: list[str]
    failed: int
    failures: list[Failed]
    """The first of them."""


class Studies:
    """What the page knows of studies: what was read once is kept."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._memory = study.Memory()
        self.all: Kept[list[study.Status]] = Kept(self._all)

    async def _all(self) -> list[study.Status]:
        bus, bucket = self._site.bucket.api, self._site.bucket
        found = []
        for name in (await bucket.run(study.studies(bus)))[:STUDIES_MAX]:
            try:
                found.append(await bucket.run(study.status(bus, name, self._memory)))
            except (NotFound, Corrupt):
                continue  # somebody starts it just now, or wrote something else there: asked for by name it says so
        return sorted(found, key=lambda each: (each.state == "finished", each.study))

    async def shown(self, name: str) -> Shown:
        bus, bucket, memory = self._site.bucket.api, self._site.bucket, self._memory
        status = await bucket.run(study.status(bus, name, memory))
        seen = await bucket.run(study.look(bus, name))
        plan = memory.plans[name]
        results = await bucket.run(study.read_results(bus, plan, memory.rounds[name], seen.results, memory))
        failed = [each for _, each in sorted(results.items()) if each.failure is not None]
        return Shown(
            status=status,
            figures=sorted(each for each in seen.names if each.startswith("figures/")),
            failed=len(failed),
            failures=[
                Failed(each.id, label_of(plan, each.parameters), each.failure.kind, each.failure.reason)
                for each in failed[:FAILURES_MAX]
                if each.failure is not None
            ],
        )


def research_routes(site: Site) -> APIRouter:
    router = APIRouter()
    studies = Studies(site)

    @router.get("/studies")
    async def every(request: Request) -> Response:
        """All studies, those that run first."""
        site.looker(request)
        return json_answer({"studies": await site.work(studies.all.read())})

    @router.get("/study")
    async def one(request: Request) -> Response:
        """One study: how far it is, its figures, and what failed."""
        site.looker(request)
        return json_answer(await site.work(studies.shown(_name(request.query_params.get("name", "")))))

    @router.get("/files/{name}/{path:path}")
    async def file(request: Request, name: str, path: str) -> Response:
        """A file of a report."""
        site.looker(request)
        if not _FILE.match(path):
            raise Refusal(404, "a study has no such file", "there are report.html, report.md, figures/ and results/")
        found = await site.work(_read(site, _name(name), path))
        headers = {"content-security-policy": POLICY, "content-disposition": "inline"}
        return Response(found, media_type=KINDS[path.rpartition(".")[2]], headers=headers)

    @router.post("/stop")
    async def stop(request: Request) -> Response:
        """Stop a study: its report is written of what is there."""
        wanted = await site.body(request, Wanted)
        await site.changer(request, "operate", "stop", f"study {wanted.study[:80]!r}")
        await site.work(site.bucket.run(study.stop(site.bucket.api, _name(wanted.study))))
        studies.all.forget()
        return json_answer({"study": wanted.study})

    return router


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    study: str


def _name(name: str) -> str:
    if not NAME.match(name):
        raise Refusal(404, f"there is no study {name[:80]!r}")
    return name


async def _read(site: Site, name: str, path: str) -> Any:
    try:
        return (await site.bucket.get(study_key(name, path))).body
    except NotFound:
        why = "its report is not written yet" if path == REPORT_HTML else "it is not there"
        raise Refusal(404, f"study {name!r} has no {path}: {why}") from None
