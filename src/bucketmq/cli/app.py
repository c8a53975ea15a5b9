"""The verbs put together: their order in the help, their examples, and what every error becomes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from bucketmq import __version__
from bucketmq.cli import dead, demo, doctor, look, proof, queues, receive, send, worker
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
    help="A message queue in a bucket you already have: no broker, no database, no coordinator.",
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
        str | None, typer.Option("--url", metavar="URL", help=f"The bucket, for any verb. [env: {URL_VARIABLE}]")
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


def _add(panel: str, verb: Callable[..., None], *lines: str, context_settings: dict[str, Any] | None = None) -> None:
    name = verb.__name__
    app.command(name, rich_help_panel=panel, epilog=examples(name, *lines), context_settings=context_settings)(verb)


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
    "bucketmq receive jobs --subscription audit --json",
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
_add("Queues", queues.stats, "bucketmq stats", "bucketmq stats jobs --provider r2", "bucketmq stats jobs --json")
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
_add(
    "Work",
    worker.worker,
    "bucketmq worker tasks:handle --queue jobs --stop-when-empty",
    "bucketmq worker tasks:decorated --concurrency 8 --stop-when-empty",
)
_add("Work", doctor.doctor, "bucketmq doctor", "bucketmq doctor file:///tmp/inbox --json")
_add("Work", demo.demo, "bucketmq demo", "bucketmq demo --keep")
_add("Work", proof.bench, "bucketmq bench --help", context_settings=proof.PASS_ON)
_add("Work", proof.sim, "bucketmq sim --seeds 100", "bucketmq sim --seed 7 --trace")
_add("Work", version, "bucketmq version")


def run(args: list[str]) -> int:
    """Run one command line and return its exit code. Errors have been told by then."""
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
        # Whoever read our output has seen enough. The interpreter flushes at its end: let it do so into nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Code.ERROR


def _tell_usage(error: Exception, *, as_json: bool) -> int:
    """A command line that cannot be read; the group alone, which shows its help, is not an error."""
    message = getattr(error, "format_message", lambda: str(error))()
    if type(error).__name__ == "NoArgsIsHelpError":
        return Code.USAGE
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "bucketmq"
    tell("usage", f"{message} Try: {path} --help", as_json=as_json)
    return Code.USAGE
