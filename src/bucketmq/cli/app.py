"""All verbs: their order in the help, their examples, and what every error becomes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from bucketmq import __version__
from bucketmq.cli import (
    audit,
    dead,
    demo,
    doctor,
    listen,
    look,
    moderation,
    moderation_demo,
    notifications,
    objects,
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
    watch,
    worker,
)
from bucketmq.cli.examples import examples
from bucketmq.cli.exits import MEANINGS, Code, code_of, tell
from bucketmq.cli.options import PROBE_VARIABLE, URL_VARIABLE, Json, State, wants_json
from bucketmq.cli.output import emit, emit_text
from bucketmq.errors import BucketMQError

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer does not export it, and has a click of its own

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


def version(context: typer.Context, as_json: Json = False) -> None:
    """Print the version."""
    if wants_json(context, as_json):
        emit({"version": __version__, "python": sys.version.split()[0]})
    else:
        emit_text(__version__)


def _group(name: str, panel: str, text: str) -> typer.Typer:
    """A group of verbs: `bucketmq NAME VERB`."""
    made = typer.Typer(help=text, no_args_is_help=True, rich_markup_mode="rich")
    app.add_typer(made, name=name, rich_help_panel=panel)
    return made


def _add(
    panel: str,
    verb: Callable[..., None],
    *lines: str,
    group: tuple[str, typer.Typer] = ("", app),
    context_settings: dict[str, Any] | None = None,
) -> None:
    name = verb.__name__.rstrip("_").replace("_", "-")
    path = f"{group[0]} {name}".lstrip()
    group[1].command(name, rich_help_panel=panel, epilog=examples(path, *lines), context_settings=context_settings)(
        verb
    )


_add(
    "Messages",
    send.send,
    "bucketmq send jobs '{\"n\": 1}'",
    "bucketmq send jobs 'plain text' --text --key user-7 --header trace=abc",
    "bucketmq send jobs '{\"n\": 2}' --delay 30",
    "bucketmq send jobs '{\"order\": 7}' --dedup-key order-7",
    "seq 1000 | bucketmq send jobs --lines",
)
_add(
    "Messages",
    receive.receive,
    "bucketmq receive jobs",
    "bucketmq receive jobs -n 10 --wait 5 --ack",
    "bucketmq receive jobs -n 10 --json | bucketmq ack -",
    "bucketmq receive jobs --subscription audit --start earliest --json",
)
_add(
    "Messages",
    receive.ack,
    "bucketmq receive jobs --json | bucketmq ack -",
    "bucketmq ack $(bucketmq receive jobs | awk '$1 == \"receipt\" {print $2}')",
)
_add(
    "Messages",
    receive.retry,
    "bucketmq receive jobs --json | bucketmq retry - --delay 60 --reason 'no network'",
    "bucketmq receive jobs --json | bucketmq retry - --bury --reason 'no such user'",
    "bucketmq receive jobs --json | bucketmq retry - --release",
)
_add("Messages", look.peek, "bucketmq peek jobs", "bucketmq peek jobs -n 100 --json")
_add(
    "Messages",
    look.tail,
    "bucketmq tail jobs",
    "bucketmq tail jobs --from earliest --json",
    "timeout 2 bucketmq tail jobs --follow",
)
_add(
    "Queues",
    queues.init,
    "bucketmq init jobs",
    "bucketmq init orders --ordered --shards 4 --lease 30 --attempts 10",
)
_add(
    "Queues",
    queues.stats,
    "bucketmq stats",
    "bucketmq stats jobs --provider r2",
    "bucketmq stats jobs --json",
    "timeout 2 bucketmq stats --watch --every 0.5",
)
_add("Queues", queues.shards, "bucketmq shards jobs 4")
_add("Queues", queues.purge, "bucketmq purge jobs --dry-run", "bucketmq purge jobs --yes")
_add("Queues", dead.dead, "bucketmq dead jobs", "bucketmq dead jobs --full", "bucketmq dead jobs --json")
_add(
    "Queues",
    dead.redrive,
    "bucketmq redrive jobs --dry-run",
    "bucketmq redrive jobs --where 'no such user' --limit 100 --yes",
    "bucketmq redrive jobs --yes",
)
SUBSCRIPTIONS = "subscriptions", _group("subscriptions", "Queues", "Independent readers of a queue: list and remove.")

_add(
    "Verbs",
    subscriptions.ls,
    "bucketmq subscriptions ls jobs",
    "bucketmq subscriptions ls jobs --json",
    group=SUBSCRIPTIONS,
)
_add("Verbs", subscriptions.rm, "bucketmq subscriptions rm jobs audit --yes", group=SUBSCRIPTIONS)
RULES = "rules", _group("rules", "Events", "Which changes of the bucket's objects go where: webhooks and queues.")
NOTIFICATIONS = "notifications", _group("notifications", "Events", "One webhook for the bucket, in Tigris' way.")

_add(
    "Make and change",
    rules.add,
    "bucketmq rules add inbox --filter 'WHERE `key` REGEXP \"^pending/\"' --to queue:inbox",
    "bucketmq rules add hook --filter 'size < 1000000' --to https://example.com/hook --sign --on 400=bury",
    "bucketmq rules add old --to queue:old --start beginning --existing pending/",
    "bucketmq rules add sink --to https://example.com/sink --bearer env:SINK_TOKEN --format cloudevents --batch 100",
    group=RULES,
)
_add("Make and change", rules.rm, "bucketmq rules rm pending", group=RULES)
_add("Make and change", rules.pause, "bucketmq rules pause pending --why 'they are moving house'", group=RULES)
_add("Make and change", rules.resume, "bucketmq rules resume pending", group=RULES)
_add(
    "Make and change",
    rules.rotate,
    "bucketmq rules rotate signed",
    "bucketmq rules rotate signed --drop-old",
    group=RULES,
)
_add("Look", rules_look.ls, "bucketmq rules ls", "bucketmq rules ls --json", group=RULES)
_add("Look", rules_look.show, "bucketmq rules show pending", "bucketmq rules show signed --json", group=RULES)
_add(
    "Look",
    rules_look.test,
    "bucketmq rules test pending --key pending/7.json",
    'bucketmq rules test --filter \'key LIKE "%.json" AND kind != "deleted"\' --key pending/7.json --kind changed',
    group=RULES,
)
_add(
    "Look",
    rules_look.explain,
    "bucketmq rules explain pending",
    "bucketmq rules explain --filter 'WHERE `key` REGEXP \"^pending/[0-9]+\" AND size > 100'",
    group=RULES,
)
_add(
    "Look",
    rules_look.dry_run,
    "bucketmq rules dry-run pending",
    "bucketmq rules dry-run --filter 'size < 1000000' --prefix pending/ --limit 10",
    group=RULES,
)
_add("Deliver", rules_run.run, "bucketmq rules run --once", "bucketmq rules run pending --once", group=RULES)
_add(
    "Deliver",
    rules_run.replay,
    "bucketmq rules replay pending --prefix pending/ --dry-run",
    "bucketmq rules replay pending --since 2h --rate 100",
    group=RULES,
)
_add("Deliver", rules_run.dead, "bucketmq rules dead pending", "bucketmq rules dead pending --full", group=RULES)
_add(
    "Deliver",
    rules_run.redrive,
    "bucketmq rules redrive pending --dry-run",
    "bucketmq rules redrive pending --yes",
    group=RULES,
)
_add(
    "Verbs",
    notifications.set_,
    "bucketmq notifications set --url https://example.com/hook --token env:TOKEN "
    "--filter 'WHERE `key` REGEXP \"^pending/\"'",
    "bucketmq notifications set --disable",
    group=NOTIFICATIONS,
)
_add("Verbs", notifications.show, "bucketmq notifications show", group=NOTIFICATIONS)
_add("Verbs", notifications.reset, "bucketmq notifications reset", group=NOTIFICATIONS)
_add("Events", watch.watch, "bucketmq watch agents:bucket --once", "bucketmq watch agents route --once --json")
_add(
    "Events",
    listen.listen,
    "timeout 2 bucketmq listen --forward-to http://localhost:8000/hook",
    "timeout 2 bucketmq listen --forward-to http://localhost:8000/hook --filter 'key LIKE \"pending/%\"' --format s3",
)
_add(
    "Events",
    serve.serve,
    "timeout 2 bucketmq serve --no-auth --port 0",
    "timeout 2 bucketmq serve --token example-token-0001 --host 127.0.0.1 --port 0 --sweep-every 600",
)
_add("Events", objects.trigger, "bucketmq trigger pending/7.json", "bucketmq trigger old.txt --kind deleted --json")
_add(
    "Events",
    sweep.sweep,
    "bucketmq sweep",
    "bucketmq sweep --prefix pending/ --first baseline --json",
    "timeout 2 bucketmq sweep --every 1",
)
_add("Events", audit.audit, "bucketmq audit --rule pending", "bucketmq audit --rule pending --repair --json")
_add(
    "Objects",
    objects.put,
    "echo '{\"amount\": 7}' | bucketmq put pending/8.json",
    "bucketmq put notes/tasks.py tasks.py --content-type text/x-python --meta owner=ada --new",
)
_add("Objects", objects.get, "bucketmq get pending/7.json", "bucketmq get pending/7.json --json")
_add("Objects", objects.mv, "bucketmq mv pending/7.json approved/7.json")
_add("Objects", objects.rm, "bucketmq rm pending/7.json")
_add(
    "Work",
    worker.worker,
    "bucketmq worker tasks:handle --queue jobs --stop-when-empty",
    "bucketmq worker tasks:decorated --concurrency 8 --stop-when-empty",
)
PIPELINE = "pipeline", _group("pipeline", "Work", "Stages joined between queues, objects and tables, run on Spark.")

_add("Verbs", pipeline.ls, "bucketmq pipeline ls", "bucketmq pipeline ls --json", group=PIPELINE)
_add(
    "Verbs",
    pipeline.show,
    "bucketmq pipeline show posts:classify",
    "bucketmq pipeline show archive --queue jobs --json",
    group=PIPELINE,
    context_settings=pipeline.PASS_ON,
)
_add(
    "Verbs",
    pipeline.run,
    "bucketmq pipeline run posts:classify --once",
    "bucketmq pipeline run posts:classify --once --json --conf spark.driver.memory=1g -o maxRowsPerTrigger=10",
    "bucketmq pipeline run archive --queue jobs",
    group=PIPELINE,
    context_settings=pipeline.PASS_ON,
)
_add("Verbs", pipeline.package, "bucketmq pipeline package bucketmq.zip", group=PIPELINE)
SPARK = "spark", _group("spark", "Work", "What queues know of Spark queries: readers, transactions, leftovers.")

_add(
    "Verbs",
    spark.restore_checkpoint,
    "bucketmq spark restore-checkpoint checkpoints/nightly --queue jobs --reader nightly",
    "bucketmq spark restore-checkpoint checkpoints/copying --queue copies --txn copying --json",
    group=SPARK,
)
_add(
    "Verbs",
    spark.forget,
    "bucketmq spark forget jobs nightly --yes",
    "bucketmq spark forget copies copying --txn --yes",
    group=SPARK,
)
_add("Verbs", spark.orphans, "bucketmq spark orphans jobs", group=SPARK)
MODERATION = "moderation", _group("moderation", "Work", "Content moderation: posts in, judged, routed, reviewed.")

_add(
    "Agents",
    moderation.ingest,
    "timeout 2 bucketmq moderation ingest --port 0",
    "timeout 2 bucketmq moderation ingest --port 0 --token example-token-0001 --json",
    group=MODERATION,
)
_add(
    "Agents",
    moderation.route,
    "bucketmq moderation route --once",
    "timeout 2 bucketmq moderation route --flag-above 0.9 --flag-above self_harm=0.7 --clear-up-to 0.2",
    "timeout 2 bucketmq moderation route --webhook --port 0 --secret example-token-0001",
    group=MODERATION,
)
_add(
    "Work",
    moderation_demo.demo,
    "bucketmq moderation demo",
    "bucketmq moderation demo --count 60 --json",
    group=MODERATION,
)
_add(
    "Agents",
    moderation.desk,
    "timeout 2 bucketmq moderation desk --port 0 --token rosa=example-token-of-rosa:reviewer",
    "timeout 2 bucketmq moderation desk --port 0 --json --https --token vera=example-token-of-vera:read-only",
    group=MODERATION,
)
_add("Look", moderation.status, "bucketmq moderation status", "bucketmq moderation status --json", group=MODERATION)
_add(
    "Work",
    doctor.doctor,
    "bucketmq doctor",
    "bucketmq doctor file:///tmp/inbox --json",
    "bucketmq doctor --deep",
    "bucketmq doctor --deep jobs --mend --yes",
)
_add("Work", demo.demo, "bucketmq demo", "bucketmq demo --keep")
_add("Work", sim.sim, "bucketmq sim --seeds 100", "bucketmq sim --bus --seed 7 --trace")
_add("Work", version, "bucketmq version")


def run(args: list[str]) -> int:
    """Run one command line and return its exit code. Errors have been shown by then."""
    as_json = "--json" in args
    try:
        code = typer.main.get_command(app).main(args, prog_name="bucketmq", standalone_mode=False)
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


def _tell_usage(error: Exception, *, as_json: bool) -> int:
    """A command line that cannot be understood. A group without a verb shows its help, and is not an error."""
    message = getattr(error, "format_message", lambda: str(error))()
    if type(error).__name__ == "NoArgsIsHelpError":
        return Code.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "bucketmq"
    tell("usage", f"{message} Try: {path} --help", as_json=as_json)
    return Code.USAGE
