"""The verbs of applications: list, show, run, demo and rerun them. What an application is, is `bucketmq.apps.app`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from bucketmq.apps import registry
from bucketmq.apps.app import App, LazyPipeline, made
from bucketmq.apps.settings import AppSettings, explain_settings, read_settings
from bucketmq.cli.exits import Code
from bucketmq.cli.options import BucketUrl, Json, open_bucket, state_of
from bucketmq.cli.output import emit, emit_text, plural, say, table
from bucketmq.cli.progress import Progress
from bucketmq.cli.queues import Provider
from bucketmq.cli.rules_run import moment
from bucketmq.errors import Invalid
from bucketmq.pipeline import FromEvents, Pipeline
from bucketmq.pipeline.again import Retold, Which, retell
from bucketmq.pricing import dollars, prices_of
from bucketmq.procedures.requests import Procedure

Name = Annotated[str, typer.Argument(metavar="NAME", help="An application; see: bucketmq apps ls.")]
SettingsFile = Annotated[
    str | None,
    typer.Option("--settings", metavar="FILE", help="TOML with a table [NAME] (env: BUCKETMQ_SETTINGS)."),
]


def ls(as_json: Json = False) -> None:
    """List the applications that there are: built-in ones, and those of other packages."""
    found = registry.every()
    if as_json:
        for each in found:
            about = each.app.about if each.app is not None else None
            parts = each.app.parts if each.app is not None else []
            row = {"name": each.name, "about": about, "parts": parts, "where": each.where}
            emit({**row, "package": each.brought_by or None, "problem": each.problem or None})
        return
    rows = [
        (each.name, each.app.about if each.app is not None else f"cannot be used: {each.problem}", each.brought_by)
        for each in found
    ]
    table(("name", "what it does", "package"), rows)


def show(name: Name, settings: SettingsFile = None, as_json: Json = False) -> None:
    """Show an application: its parts, queues, rules, and its settings with where they come from."""
    app = registry.get(name)
    row = _described(app, settings)
    if as_json:
        emit(row)
        return
    emit_text(f"{app.name}: {app.about}")
    for kind in ("agents", "pipelines", "queues", "rules"):
        for each in row[kind]:
            emit_text(f"  {kind.removesuffix('s'):<9} {each['name']:<18} {each['about']}".rstrip())
            for stage in each.get("stages", ()):
                emit_text(f"  {'stage':<9}   {stage}")
    for each in row["settings"]:
        ways = " ".join((f"--{each['name'].replace('_', '-')}", *each["variables"]))
        value = "" if each["value"] is None else f" = {each['value']} ({each['came']})"
        emit_text(f"  {'setting':<9} {ways}{value}")
        if each["about"]:
            emit_text(f"  {'':<9}   {each['about']}")
    if app.demo is not None:
        say(f"see it work: bucketmq apps demo {app.name}")


def _described(app: App, file: str | None) -> dict[str, Any]:
    shown = explain_settings(app.settings, app=app.name, file=file)
    try:
        settings = read_settings(app.settings, app=app.name, file=file)
    except Invalid:
        settings = None  # one is missing or cannot be, which is shown, too
    return {
        "name": app.name,
        "about": app.about,
        "agents": [{"name": each.name, "about": each.about} for each in app.agents],
        "pipelines": [
            {"name": each.name, "about": each.about, "stages": _stages(each, settings)} for each in app.pipelines
        ],
        "queues": [{"name": each.name, "about": each.about} for each in app.queues],
        "rules": [{"name": each.name, "about": each.about or each.filter} for each in app.rules],
        "settings": [
            {"name": s.name, "value": _plain(s.value), "came": s.came, "about": s.about, "variables": list(s.variables)}
            for s in shown
        ],
        "demo": app.demo is not None,
    }


def _stages(pipeline: Pipeline | LazyPipeline, settings: AppSettings | None) -> list[str]:
    """The names of its stages; none if it cannot be made without settings that are missing."""
    try:
        return [stage.name for stage in made(pipeline, settings).stages]
    except Invalid:
        return []


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=str) if value not in ((), "") else None


def demo(context: typer.Context, name: Name) -> None:
    """See an application work, with made-up data on this machine. Options of the demo follow: --keep, --count, ..."""
    app = registry.get(name)
    if app.demo is None:
        raise Invalid(f"application {name!r} has no demo; run it: bucketmq apps run {name}")
    single = typer.Typer(add_completion=False)
    single.command(name)(app.demo())
    command = typer.main.get_command(single)
    code = command.main(context.args, f"bucketmq apps demo {name}", standalone_mode=False, obj=state_of(context))
    if code:
        raise typer.Exit(code)


def rerun(
    name: Name,
    *,
    stage: Annotated[str, typer.Option(metavar="STAGE", help="The stage, or its pipeline: bucketmq apps show NAME.")],
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="An object, or a message's key; may be repeated.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="Each object or message with this key prefix; '' is all.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="What the log has since then; or 2h, 7d.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="And until then.")] = None,
    rate: Annotated[float, typer.Option(metavar="N", help="Events or messages a second, at most.")] = 1_000.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many, and what it costs at most.")] = False,
    provider: Provider = "s3",
    settings: SettingsFile = None,
    url: BucketUrl = None,
    as_json: Json = False,
) -> None:
    """Run a stage again over some of what its pipeline has read. No other pipeline is affected.

    The events or messages are sent to the pipeline again, which handles them where it runs. Results that would be the
    same are not written. Of objects it takes what is there now, with --since what happened then.
    """
    app = registry.get(name)
    prices = prices_of(provider)
    found = read_settings(app.settings, app=app.name, options={"url": url} if url else {}, file=settings)
    pipeline = app.with_stage(stage, found)
    which = Which(keys=tuple(key or ()), prefix=prefix, since=moment(since), until=moment(until))
    with open_bucket(found.url) as bucket, Progress(f"telling {pipeline.name} again") as progress:

        def work() -> Procedure[Retold]:
            opened = yield from bucket.api.open()
            told = retell(
                opened,
                pipeline,
                which,
                rate_per_second=rate,
                dry_run=dry_run,
                progress=lambda count: progress.show(f"{count:,} so far"),
            )
            return (yield from told)

        done = bucket.run(work())
    dollars_max = (done.writes_max * prices.write + done.reads_max * prices.read) / 1000
    if as_json:
        emit({"app": name, "stage": stage, "dry_run": dry_run, **msgspec.to_builtins(done), "dollars_max": dollars_max})
    else:
        what = "event" if isinstance(pipeline.source, FromEvents) else "message"
        verb = "would be sent" if dry_run else "was sent"
        say(f"{pipeline.name} {verb} {plural(done.told, what)} again, of {done.looked_at:,} looked at")
        cost = f"{plural(done.reads_max, 'read')} and {plural(done.writes_max, 'write')}"
        say(f"at most {cost}: {dollars(dollars_max)} at {prices.name}; what models cost is not in it")
    if not done.told:
        raise typer.Exit(Code.EMPTY)
