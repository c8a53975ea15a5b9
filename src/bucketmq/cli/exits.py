"""Exit codes, and how an error is shown: one line on standard error, or one JSON object there with `--json`."""

from __future__ import annotations

import enum
import json
import re
import sys
from typing import NoReturn

import typer

from bucketmq.cli.output import ask, printable, say
from bucketmq.crew import Scene
from bucketmq.errors import BucketMQError, Contended, Invalid, LeaseLost, Unavailable

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer does not export it, and has a click of its own


class Code(enum.IntEnum):
    """What a script can tell from `$?`."""

    OK = 0
    ERROR = 1
    USAGE = 2
    EMPTY = 3
    CONTENDED = 4
    UNAVAILABLE = 5
    INCOMPLETE = 6
    INTERRUPTED = 130


MEANINGS = {
    Code.OK: "it worked",
    Code.ERROR: "it failed; standard error says why",
    Code.USAGE: "the command is wrong as written",
    Code.EMPTY: "nothing to receive, or nothing matched",
    Code.CONTENDED: "the lease is lost, the key is taken, or too many others write at once",
    Code.UNAVAILABLE: "the store did not answer; try again later",
    Code.INCOMPLETE: "an audit found changes that were missed",
    Code.INTERRUPTED: "interrupted with Ctrl-C",
}


_FILTER_ERROR = re.compile(r"filter, [^\n]*\n  [^\n]*\n +\^\n[^\n]*")


def code_of(error: BucketMQError) -> Code:
    match error:
        case Invalid():
            return Code.USAGE
        case LeaseLost() | Contended():
            return Code.CONTENDED
        case Unavailable():
            return Code.UNAVAILABLE
        case _:
            return Code.ERROR


def tell(kind: str, message: str, *, as_json: bool) -> None:
    """Print an error. Always one line, whatever the message holds, unless it points at a place in a text."""
    text = message if _points(message) else " ".join(message.split())
    line = json.dumps({"error": {"kind": kind, "message": text}}) if as_json else f"error ({kind}): {text}"
    sys.stderr.write(printable(line, lines=True) + "\n")


def agree(question: str, *, yes: bool) -> None:
    """Go on if that is agreed to, or end here."""
    if not ask(question, yes=yes):
        say("nothing was changed")
        raise typer.Exit(Code.ERROR)


def nothing(text: str) -> NoReturn:
    """End here, and say why: nothing is there, or nothing matched."""
    say(text)
    raise typer.Exit(Code.EMPTY)


def end(scene: Scene) -> None:
    """End a demo whose scene is over. Where it failed, say where its bucket and its logs are, and exit with 1."""
    if not scene.good:
        say(f"the bucket and the logs are in {scene.folder}")
        raise typer.Exit(Code.ERROR)


def _points(message: str) -> bool:
    """Whether it is an error in a filter, with a caret under the place: its lines must stay as they are."""
    return _FILTER_ERROR.fullmatch(message) is not None
