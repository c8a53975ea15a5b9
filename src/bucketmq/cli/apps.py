"""The verbs of applications: list, show, run, demo and rerun them. What an application is, is `bucketmq.apps.app`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bucketmq.apps import registry
from bucketmq.apps.app import App, made
from bucketmq.apps.settings import explain_settings
from bucketmq.cli.options import Json, wants_json
from bucketmq.cli.output import emit, emit_text, say, table

Name = Annotated[str, typer.Argument(metavar="NAME", help="An application; see: bucketmq apps ls.")]
SettingsFile = Annotated[
    str | None,
    typer.Option("--settings", metavar="FILE", help="TOML with a table [NAME] (env: BUCKETMQ_SETTINGS)."),
]


def ls(context: typer.Context, as_json: Json = False) -> None:
    """List the applications that there are: built-in ones, and those of other packages."""
    found = registry.every()
    if wants_json(context, as_json):
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


def show(context: typer.Context, name: Name, settings: SettingsFile = None, as_json: Json = False) -> None:
    """Show an application: its parts, queues, rules, and its settings with where they come from."""
    app = registry.get(name)
    row = _described(app, settings)
    if wants_json(context, as_json):
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
    return {
        "name": app.name,
        "about": app.about,
        "agents": [{"name": each.name, "about": each.about} for each in app.agents],
        "pipelines": [
            {"name": each.name, "about": each.about, "stages": [stage.name for stage in made(each).stages]}
            for each in app.pipelines
        ],
        "queues": [{"name": each.name, "about": each.about} for each in app.queues],
        "rules": [{"name": each.name, "about": each.about or each.filter} for each in app.rules],
        "settings": [
            {"name": s.name, "value": _plain(s.value), "came": s.came, "about": s.about, "variables": list(s.variables)}
            for s in shown
        ],
        "demo": app.demo is not None,
    }


def _plain(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value, enc_hook=str) if value not in ((), "") else None
