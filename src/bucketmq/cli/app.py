"""All verbs: their order in the help, their examples, and what every error becomes."""

from __future__ import annotations

import copy
import functools
import os
import sys
from typing import Annotated, Any

import typer

from bucketmq import __version__
from bucketmq.cli import (
    apps,
    apps_run,
    audit,
    dashboard,
    dead,
    demo,
    doctor,
    listen,
    look,
    notifications,
    objects,
    pausing,
    pipeline,
    queues,
    receive,
    rules,
    rules_look,
    rules_run,
    send,
    serve,
    sim,
    spark,
    subscriptions,
    sweep,
    tables,
    watch,
    worker,
)
from bucketmq.cli.exits import MEANINGS, Code, UsageError, code_of, tell
from bucketmq.cli.group import Group, WithApps
from bucketmq.cli.options import PROBE_VARIABLE, URL_VARIABLE, Json, State
from bucketmq.cli.output import emit, emit_text
from bucketmq.errors import BucketMQError

EPILOG = "\n\n".join(
    (
        "[bold]Begin here[/bold]",
        f"  [cyan]export {URL_VARIABLE}=file:///tmp/inbox[/cyan]\n"
        "  [cyan]bucketmq send jobs '{\"n\": 1}'[/cyan]\n"
        "  [cyan]bucketmq receive jobs --ack[/cyan]",
        "[bold]Exit codes[/bold]",
        "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items()),
        "[bold]Environment[/bold]",
        f"  {URL_VARIABLE}    the bucket, instead of --url\n"
        f"  {PROBE_VARIABLE}  'off': trust the store, do not test its conditional writes first\n"
        "  NO_COLOR        no colours",
    )
)

app = typer.Typer(
    name="bucketmq",
    cls=WithApps,
    help="A message queue and an event bus in a bucket you already have: no broker, no database, no coordinator.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        emit_text(__version__)
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help=f"The bucket, for any verb (env: {URL_VARIABLE}).")
    ] = None,
    as_json: Json = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = State(url, as_json=as_json)


def version(as_json: Json = False) -> None:
    """Print the version."""
    if as_json:
        emit({"version": __version__, "python": sys.version.split()[0]})
    else:
        emit_text(__version__)


def _group(name: str, panel: str, text: str) -> Group:
    """A group of verbs: `bucketmq NAME VERB`."""
    made = Group(name, text)
    app.add_typer(made.typer, name=name, rich_help_panel=panel)
    return made


ROOT = Group("", "", app)

verb = ROOT.panel("Messages")
verb(
    send.send,
    "bucketmq send jobs '{\"n\": 1}'",
    "bucketmq send jobs 'plain text' --text --key user-7 --header trace=abc",
    "bucketmq send jobs '{\"n\": 2}' --delay 30",
    "bucketmq send jobs '{\"order\": 7}' --dedup-key order-7",
    "seq 1000 | bucketmq send jobs --lines",
)
verb(
    receive.receive,
    "bucketmq receive jobs",
    "bucketmq receive jobs -n 10 --wait 5 --ack",
    "bucketmq receive jobs -n 10 --json | bucketmq ack -",
    "bucketmq receive jobs --subscription audit --start earliest --json",
)
verb(
    receive.ack,
    "bucketmq receive jobs --json | bucketmq ack -",
    "bucketmq ack $(bucketmq receive jobs | awk '$1 == \"receipt\" {print $2}')",
)
verb(
    receive.retry,
    "bucketmq receive jobs --json | bucketmq retry - --delay 60 --reason 'no network'",
    "bucketmq receive jobs --json | bucketmq retry - --bury --reason 'no such user'",
    "bucketmq receive jobs --json | bucketmq retry - --release",
)
verb(look.peek, "bucketmq peek jobs", "bucketmq peek jobs -n 100 --json")
verb(
    look.tail,
    "bucketmq tail jobs",
    "bucketmq tail jobs --from earliest --json",
    "timeout 2 bucketmq tail jobs --follow",
)

verb = ROOT.panel("Queues")
verb(queues.init, "bucketmq init jobs", "bucketmq init orders --ordered --shards 4 --lease 30 --attempts 10")
verb(
    queues.stats,
    "bucketmq stats",
    "bucketmq stats jobs --provider r2",
    "bucketmq stats jobs --json",
    "timeout 2 bucketmq stats --watch --every 0.5",
)
verb(queues.shards, "bucketmq shards jobs 4")
verb(queues.purge, "bucketmq purge jobs --dry-run", "bucketmq purge jobs --yes")
verb(dead.dead, "bucketmq dead jobs", "bucketmq dead jobs --full", "bucketmq dead jobs --json")
verb(
    dead.redrive,
    "bucketmq redrive jobs --dry-run",
    "bucketmq redrive jobs --where 'no such user' --limit 100 --yes",
    "bucketmq redrive jobs --yes",
)

verb = _group("queue", "Queues", "Pause a queue, or one of its subscriptions, and resume it.").panel("Verbs")
verb(
    pausing.pause,
    "bucketmq queue pause jobs --why 'the database is being moved'",
    "bucketmq queue pause jobs --subscription main --json",
)
verb(pausing.resume, "bucketmq queue resume jobs")

verb = _group("subscriptions", "Queues", "Independent readers of a queue: list and remove.").panel("Verbs")
verb(subscriptions.ls, "bucketmq subscriptions ls jobs", "bucketmq subscriptions ls jobs --json")
verb(subscriptions.rm, "bucketmq subscriptions rm jobs audit --yes")

RULES = _group("rules", "Events", "Which changes of the bucket's objects go where: webhooks and queues.")
verb = RULES.panel("Make and change")
verb(
    rules.add,
    "bucketmq rules add inbox --filter 'WHERE `key` REGEXP \"^pending/\"' --to queue:inbox",
    "bucketmq rules add hook --filter 'size < 1000000' --to https://example.com/hook --sign --on 400=bury",
    "bucketmq rules add old --to queue:old --start beginning --existing pending/",
    "bucketmq rules add sink --to https://example.com/sink --bearer env:SINK_TOKEN --format cloudevents --batch 100",
)
verb(rules.rm, "bucketmq rules rm pending")
verb(rules.pause, "bucketmq rules pause pending --why 'they are moving house'")
verb(rules.resume, "bucketmq rules resume pending")
verb(rules.rotate, "bucketmq rules rotate signed", "bucketmq rules rotate signed --drop-old")

verb = RULES.panel("Look")
verb(rules_look.ls, "bucketmq rules ls", "bucketmq rules ls --json")
verb(rules_look.show, "bucketmq rules show pending", "bucketmq rules show signed --json")
verb(
    rules_look.test,
    "bucketmq rules test pending --key pending/7.json",
    'bucketmq rules test --filter \'key LIKE "%.json" AND kind != "deleted"\' --key pending/7.json --kind changed',
)
verb(
    rules_look.explain,
    "bucketmq rules explain pending",
    "bucketmq rules explain --filter 'WHERE `key` REGEXP \"^pending/[0-9]+\" AND size > 100'",
)
verb(
    rules_look.dry_run,
    "bucketmq rules dry-run pending",
    "bucketmq rules dry-run --filter 'size < 1000000' --prefix pending/ --limit 10",
)

verb = RULES.panel("Deliver")
verb(rules_run.run, "bucketmq rules run --once", "bucketmq rules run pending --once")
verb(
    rules_run.replay,
    "bucketmq rules replay pending --prefix pending/ --dry-run",
    "bucketmq rules replay pending --since 2h --rate 100",
)
verb(rules_run.dead, "bucketmq rules dead pending", "bucketmq rules dead pending --full")
verb(rules_run.redrive, "bucketmq rules redrive pending --dry-run", "bucketmq rules redrive pending --yes")

verb = _group("notifications", "Events", "One webhook for the bucket, in Tigris' way.").panel("Verbs")
verb(
    notifications.set_,
    "bucketmq notifications set --url https://example.com/hook --token env:TOKEN "
    "--filter 'WHERE `key` REGEXP \"^pending/\"'",
    "bucketmq notifications set --disable",
)
verb(notifications.show, "bucketmq notifications show")
verb(notifications.reset, "bucketmq notifications reset")

verb = ROOT.panel("Events")
verb(watch.watch, "bucketmq watch agents:bucket --once", "bucketmq watch agents route --once --json")
verb(
    listen.listen,
    "timeout 2 bucketmq listen --forward-to http://localhost:8000/hook",
    "timeout 2 bucketmq listen --forward-to http://localhost:8000/hook --filter 'key LIKE \"pending/%\"' --format s3",
)
verb(
    serve.serve,
    "timeout 2 bucketmq serve --no-auth --port 0",
    "timeout 2 bucketmq serve --token example-token-0001 --host 127.0.0.1 --port 0 --sweep-every 600",
)
verb(objects.trigger, "bucketmq trigger pending/7.json", "bucketmq trigger old.txt --kind deleted --json")
verb(
    sweep.sweep,
    "bucketmq sweep",
    "bucketmq sweep --prefix pending/ --first baseline --json",
    "timeout 2 bucketmq sweep --every 1",
)
verb(audit.audit, "bucketmq audit --rule pending", "bucketmq audit --rule pending --repair --json")

verb = ROOT.panel("Objects")
verb(
    objects.put,
    "echo '{\"amount\": 7}' | bucketmq put pending/8.json",
    "bucketmq put notes/tasks.py tasks.py --content-type text/x-python --meta owner=ada --new",
)
verb(objects.get, "bucketmq get pending/7.json", "bucketmq get pending/7.json --json")
verb(objects.mv, "bucketmq mv pending/7.json approved/7.json")
verb(objects.rm, "bucketmq rm pending/7.json")

verb = _group("tables", "Objects", "Rows that change, in Parquet files: list, show and remove tables.").panel("Verbs")
verb(tables.ls, "bucketmq tables ls", "bucketmq tables ls --json")
verb(tables.show, "bucketmq tables show users", "bucketmq tables show users --group ada --json")
verb(tables.rm, "bucketmq tables rm users --yes")

verb = ROOT.panel("Work")
verb(
    worker.worker,
    "bucketmq worker tasks:handle --queue jobs --stop-when-empty",
    "bucketmq worker tasks:decorated --concurrency 8 --stop-when-empty",
)

verb = _group("pipeline", "Work", "Stages joined between queues, objects and tables, run on Spark.").panel("Verbs")
verb(pipeline.ls, "bucketmq pipeline ls", "bucketmq pipeline ls --json")
verb(
    pipeline.show,
    "bucketmq pipeline show posts:classify",
    "bucketmq pipeline show archive --queue jobs --json",
    context_settings=pipeline.PASS_ON,
)
verb(
    pipeline.run,
    "bucketmq pipeline run posts:classify --once",
    "bucketmq pipeline run posts:classify --once --json --conf spark.driver.memory=1g -o maxRowsPerTrigger=10",
    "bucketmq pipeline run archive --queue jobs",
    context_settings=pipeline.PASS_ON,
)
verb(pipeline.package, "bucketmq pipeline package bucketmq.zip")
verb(pipeline.tidy, "bucketmq pipeline tidy --dry-run", "bucketmq pipeline tidy classify --json")

verb = _group("spark", "Work", "What queues know of Spark queries: readers, transactions, leftovers.").panel("Verbs")
verb(
    spark.restore_checkpoint,
    "bucketmq spark restore-checkpoint checkpoints/nightly --queue jobs --reader nightly",
    "bucketmq spark restore-checkpoint checkpoints/copying --queue copies --txn copying --json",
)
verb(spark.forget, "bucketmq spark forget jobs nightly --yes", "bucketmq spark forget copies copying --txn --yes")
verb(spark.orphans, "bucketmq spark orphans jobs")

APPS = _group("apps", "Work", "Applications: pipelines, agents and pages that belong together, ready to run.")
verb = APPS.panel("Look")
verb(apps.ls, "bucketmq apps ls", "bucketmq apps ls --json")

verb = APPS.panel("Run")
verb(
    apps_run.run,
    "timeout 4 bucketmq apps run moderation --only router",
    "bucketmq apps run moderation --only moderation --without-spark --once",
    context_settings=pipeline.PASS_ON,
)
verb(apps.demo, "bucketmq apps demo moderation --count 60 --json", context_settings=pipeline.PASS_ON)
verb(
    apps.rerun,
    "bucketmq apps rerun moderation --stage judge --key post-17 --dry-run",
    "bucketmq apps rerun moderation --stage judge --since 2h --rate 100 --json",
)

verb = APPS.panel("Look")
verb(apps.show, "bucketmq apps show moderation", "bucketmq apps show moderation --json")

verb = ROOT.panel("Work")
verb(
    doctor.doctor,
    "bucketmq doctor",
    "bucketmq doctor file:///tmp/inbox --json",
    "bucketmq doctor --deep",
    "bucketmq doctor --deep jobs --mend --yes",
)
verb(
    dashboard.dashboard,
    "timeout 2 bucketmq dashboard --port 0",
    "timeout 2 bucketmq dashboard --port 0 --json --token rosa=example-token-of-rosa:operate",
)
verb(
    dashboard.token,
    "bucketmq token rosa --role operate --role review",
    "bucketmq token nightly --role operate --queue orders --queue 'mail-*' --json",
)
verb(demo.demo, "bucketmq demo", "bucketmq demo --keep")
verb(sim.sim, "bucketmq sim --seeds 100", "bucketmq sim --bus --seed 7 --trace")
verb(version, "bucketmq version")


def run(args: list[str]) -> int:
    """Run one command line and return its exit code. Errors have been shown by then."""
    as_json = "--json" in args
    try:
        code = _command().main(args, prog_name="bucketmq", standalone_mode=False)
        return code if isinstance(code, int) else Code.OK
    except BucketMQError as error:
        tell(error.kind, str(error), as_json=as_json)
        return code_of(error)
    except UsageError as error:
        return _tell_usage(error, as_json=as_json)
    except (KeyboardInterrupt, typer.Abort):
        return Code.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone. The interpreter flushes when it ends: let it flush into nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Code.ERROR


def _command() -> Any:
    """All verbs. Those of applications are added to this copy alone, so that the next one asks the registry again."""
    made = copy.copy(_own())
    made.commands = dict(made.commands)
    return made


@functools.cache
def _own() -> Any:
    """The verbs of this package. Reading their options takes longer than most of them."""
    return typer.main.get_command(app)


def _tell_usage(error: Exception, *, as_json: bool) -> int:
    """A command line that cannot be understood. A group without a verb shows its help, and is not an error."""
    message = getattr(error, "format_message", lambda: str(error))()
    if type(error).__name__ == "NoArgsIsHelpError":
        return Code.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "bucketmq"
    tell("usage", f"{message} Try: {path} --help", as_json=as_json)
    return Code.USAGE
