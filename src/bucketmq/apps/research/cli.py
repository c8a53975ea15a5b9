"""The verbs of research: start, status, report, check, stop. Thin: what they do is `study`'s."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from bucketmq import aio
from bucketmq.apps.research import simulators, study
from bucketmq.apps.research.plan import COMMAND, Plan, read_plan, with_version
from bucketmq.apps.research.record import (
    FIGURES,
    REPORT_HTML,
    REPORT_MD,
    Result,
    study_key,
)
from bucketmq.cli.agent import run_agent
from bucketmq.cli.exits import Code
from bucketmq.cli.group import Group
from bucketmq.cli.options import Json, Url, open_bucket, the_url
from bucketmq.cli.output import emit, emit_bytes, emit_text, plural, say, table
from bucketmq.errors import Corrupt, Invalid, NotFound

PLAN_BYTES_MAX = 4 << 20
PROGRESS_EVERY = 0.1
"""A line is printed each time that such a share of the trials is in."""

Study = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name.")]


def start(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan: a file of JSON or TOML.")],
    *,
    run: Annotated[bool, typer.Option("--run", help="Run it here, too, until its report is there.")] = False,
    slots: Annotated[int, typer.Option(min=0, max=1024, help="With --run: trials at a time; 0: one a core.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read the plan, say what it asks for, and end.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Start a study. Its trials wait in a queue for workers: bucketmq apps run research.

    The same plan again is the same study; trials that are lost are sent once more. A changed plan needs another name.
    With --run the simulator of the plan is allowed: you have read it.
    """
    where = the_url(url)
    found = _read(plan)
    shown = {
        "study": found.study,
        "simulator": found.simulator,
        "version": found.version,
        "budget": found.budget,
        "seeds": len(found.seeds),
    }
    if dry_run:
        _show(shown, f"study {found.study}: up to {plural(found.budget, 'trial')} of {found.simulator}", as_json)
        return
    if run and found.runs_on == "spark":
        raise Invalid("the plan runs on Spark; start it without --run, and run: bucketmq apps run research")
    if run and found.command and "{" not in found.command[0] and shutil.which(found.command[0]) is None:
        raise Invalid(f"there is no command {found.command[0]!r} here that can be run; nothing was started")
    with open_bucket(url) as bucket:
        is_new = bucket.run(study.start(bucket.api, found))
        status_now = bucket.run(study.status(bucket.api, found.study))
    if run:
        _carry_out(where, found, slots, status_now.planned)
        with open_bucket(url, probe=False) as bucket:
            status_now = bucket.run(study.status(bucket.api, found.study))
    text = f"study {found.study}: {'started' if is_new else 'was there already'}; {_progress(status_now)}"
    _show({**shown, "new": is_new, **msgspec.to_builtins(status_now)}, text, as_json)


def _carry_out(url: str, plan: Plan, slots: int, planned: int) -> None:
    from bucketmq.apps.research.local import carry_out

    allowed = (plan.command[0] if plan.command else plan.simulator,)
    here = str(Path.cwd())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))

    async def work(bucket: aio.Bucket) -> None:
        await carry_out(bucket, plan.study, slots=slots, allowed=allowed, told=_teller(planned))

    run_agent(url, work)


def _teller(planned: int) -> Callable[[Result], None]:
    count = failed = 0
    every = max(1, int(planned * PROGRESS_EVERY))

    def told(result: Result) -> None:
        nonlocal count, failed
        count += 1
        failed += result.failure is not None
        if count % every == 0:
            say(f"{plural(count, 'result')}, {failed:,} failed")

    return told


def _read(path: Path) -> Plan:
    """The plan in a file, with the version of its simulator as it is installed here."""
    try:
        with path.open("rb") as file:
            body = file.read(PLAN_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(f"cannot read the plan {path}: {error.strerror}") from None
    if len(body) > PLAN_BYTES_MAX:
        raise Invalid(f"the plan {path} has more than {PLAN_BYTES_MAX:,} bytes")
    try:
        raw: Any = tomllib.loads(body.decode()) if path.suffix == ".toml" else msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON (a file of TOML is named .toml)"
        raise Invalid(f"the plan {path} is not {kind}: {error}") from None
    found = read_plan(raw)
    if found.simulator == COMMAND:
        return found
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    _, version = simulators.load(found.simulator)
    return with_version(found, version)


def _show(row: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        emit(row)
    else:
        emit_text(text)


def _progress(found: study.Status) -> str:
    state = found.state + (f" ({found.why})" if found.why else "")
    best = f"; best: {found.best}" if found.best else ""
    return f"{state}, {found.results:,} of {plural(found.planned, 'trial')} in{best}"


def status(
    name: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="One study; all without it.")] = None,
    *,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """How far studies are."""
    with open_bucket(url, probe=False) as bucket:
        bus = bucket.api
        names = [name] if name else bucket.run(study.studies(bus))
        rows = []
        for each in names:
            try:
                rows.append(bucket.run(study.status(bus, each)))
            except (NotFound, Corrupt) as error:  # somebody starts it just now, or wrote something else there
                if name:
                    raise
                if isinstance(error, Corrupt):
                    say(str(error))
    if as_json:
        for row in rows:
            emit(msgspec.to_builtins(row))
    elif rows:
        columns = ("study", "state", "#rounds", "#trials", "#results", "best")
        table(columns, ((r.study, r.state, r.rounds, r.planned, r.results, r.best or "") for r in rows))
    else:
        say("there are no studies; start one: bucketmq research start PLAN")


def report(
    name: Study,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write all of it here: Markdown, HTML, figures."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Print HTML instead of Markdown.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print the report of a finished study, or write it to a folder."""
    with open_bucket(url, probe=False) as bucket:
        found = bucket.run(study.status(bucket.api, name))
        if found.state != "finished":
            raise NotFound(f"study {name!r} has no report yet: it is {_progress(found)}; look again later")
        names = [REPORT_MD, REPORT_HTML]
        if output is not None:
            seen = bucket.run(study.look(bucket.api, name))
            names += sorted(each for each in seen.names if each.startswith(FIGURES))
        files = {each: bucket.get(study_key(name, each)).body for each in names}
    if output is not None:
        for each, body in files.items():
            (output / each).parent.mkdir(parents=True, exist_ok=True)
            (output / each).write_bytes(body)
        _show({"study": name, "files": sorted(files)}, f"{plural(len(files), 'file')} in {output}", as_json)
    elif as_json:
        emit({"study": name, "report": files[REPORT_HTML if html else REPORT_MD].decode()})
    else:
        emit_bytes(files[REPORT_HTML if html else REPORT_MD])


def check(name: Study, *, url: Url = None, as_json: Json = False) -> None:
    """Recompute every number of a report from the results, and refuse the report if one differs.

    Exits with 1 and says which, if there is a number that nothing supports.
    """
    with open_bucket(url, probe=False) as bucket:
        problems = bucket.run(study.check(bucket.api, name))
    if as_json:
        emit({"study": name, "good": not problems, "problems": problems})
    else:
        for problem in problems:
            emit_text(problem)
        emit_text(
            f"the report of {name} is REFUSED: {plural(len(problems), 'problem')}"
            if problems
            else f"every number in the report of {name} is what its results give"
        )
    if problems:
        raise typer.Exit(Code.ERROR)


def stop(name: Study, *, url: Url = None, as_json: Json = False) -> None:
    """Stop a study: no further trial is begun, and the report is written of what is there."""
    with open_bucket(url) as bucket:
        bucket.run(study.stop(bucket.api, name))
        memory = study.Memory()
        bucket.run(study.advance(bucket.api, name, memory))
        found = bucket.run(study.status(bucket.api, name))
    _show(msgspec.to_builtins(found), f"study {name}: {_progress(found)}", as_json)


GROUP = Group("research", "Studies: plans become trials, trials become results, results become a report.")
GROUP.add(
    "Studies",
    start,
    "bucketmq research start plan.json",
    "bucketmq research start plan.toml --run",
    "bucketmq research start plan.json --dry-run --json",
)
GROUP.add("Studies", status, "bucketmq research status", "bucketmq research status waits --json")
GROUP.add("Studies", report, "bucketmq research report waits", "bucketmq research report waits --output report")
GROUP.add("Studies", check, "bucketmq research check waits")
GROUP.add("Studies", stop, "bucketmq research stop waits")
