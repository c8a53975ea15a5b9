"""Writes the pages below docs/reference/ from the code: signatures, docstrings, defaults, options, help texts.

Run it plainly to write them, or with `--check` to write nothing and fail if one of them is not current.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import bucketmq
from bucketmq import errors, values
from bucketmq.bucket import port
from bucketmq.bucket.settings import OPTIONS
from bucketmq.bucket.urls import open_store
from bucketmq.queue.settings import Backoff, Settings

HERE = Path(__file__).parent / "reference"
NOTE = "<!-- Made by docs/generate_reference.py from the code. Change the code, not this page. -->\n"

CLIENT = (
    "connect",
    "Bucket",
    "Queue",
    "Subscription",
    "Delivery",
    "Batch",
    "PeekedMessage",
    "DeadLetters",
    "DeadLetter",
    "Change",
)
VALUES = ("Sent", "Redriven", "Requests", "QueueStats")
OUTCOMES = ("Done", "Retry", "Bury", "Release")


def pages() -> dict[str, str]:
    made = {
        "README.md": _index(),
        "client.md": _client(),
        "aio.md": _aio(),
        "values.md": _values(),
        "settings.md": _settings(),
        "errors.md": _errors(),
        "stores.md": _stores(),
    }
    command_line = _command_line()
    if command_line:
        made["cli.md"] = command_line
    return {name: NOTE + "\n" + text.strip() + "\n" for name, text in made.items()}


def _index() -> str:
    return """# Reference

- [client](client.md): `bucketmq.connect` and everything it leads to, blocking
- [aio](aio.md): the same, awaited
- [values](values.md): what calls return, and what a handler may return
- [settings](settings.md): the settings of a queue
- [errors](errors.md): what can be raised, and what to do
- [stores](stores.md): URLs, options, and the contract of a store
- [command line](cli.md): `bucketmq`

What lies in the bucket is on [a page of its own](../format/README.md)."""


def _client() -> str:
    things = {name: getattr(bucketmq, name) for name in CLIENT} | {"Rules": bucketmq.client.Rules}
    return "# Client\n\n" + "\n\n".join(_described(name, thing) for name, thing in things.items())


def _aio() -> str:
    names = ("connect", "Bucket", "Queue", "Subscription", "Delivery", "DeadLetters")
    parts = [
        "# aio",
        _doc(bucketmq.aio),
        "Only signatures are listed here. What each does is on [the client's page](client.md).",
    ]
    for name in names:
        thing = getattr(bucketmq.aio, name)
        if inspect.isclass(thing):
            lines = [_signature(member, each) for member, each in _members(thing)]
            parts.append(f"## {name}\n\n```text\n" + "\n".join(lines) + "\n```")
        else:
            parts.append(f"## {name}\n\n```text\n{_signature(name, thing)}\n```")
    return "\n\n".join(parts)


def _values() -> str:
    parts = ["# Values", _doc(values), "## What a handler may return", "Nothing (`None`) means `Done()`."]
    parts += [_struct(name, getattr(bucketmq, name), level="###") for name in OUTCOMES]
    parts += [_struct(name, getattr(bucketmq, name)) for name in VALUES]
    stats = importlib.import_module("bucketmq.procedures.upkeep.stats")
    parts += [_struct(name, getattr(stats, name)) for name in ("SubscriptionStats", "ShardStats", "Damage")]
    return "\n\n".join(parts)


def _settings() -> str:
    parts = [
        "# Settings of a queue",
        "Given by keyword, `bucket.queue(name, attempts_max=3)`, written to the bucket, and in force for everybody. "
        "What is not given stays as it is.",
        _table(Settings, without=("format", "fences")),
        "`ordered` can be chosen only when the queue is made, and `shards` only be raised.",
        "## Backoff",
        _doc(Backoff),
        _table(Backoff),
    ]
    return "\n\n".join(parts)


def _errors() -> str:
    parts = ["# Errors", _doc(errors)]
    for name, error in vars(errors).items():
        if inspect.isclass(error) and issubclass(error, errors.BucketMQError):
            others = [base.__name__ for base in error.__bases__ if base is not errors.BucketMQError]
            also = f" It is also a `{others[0]}`." if others and error is not errors.BucketMQError else ""
            parts.append(f"## {name}\n\nkind: `{error.kind}`\n\n{_doc(error)}{also}")
    return "\n\n".join(parts)


def _stores() -> str:
    rows = [
        f"| `{scheme}://` | {', '.join(f'`{name}`' for name in names) or 'none'} |" for scheme, names in OPTIONS.items()
    ]
    parts = [
        "# Stores",
        "## URLs and options",
        _doc(open_store),
        "| scheme | options |\n|---|---|\n" + "\n".join(rows),
        "## The contract",
        _doc(port),
    ]
    return "\n\n".join(parts)


def _command_line() -> str:
    try:
        typer = importlib.import_module("typer")
        command = typer.main.get_command(importlib.import_module("bucketmq.cli.app").app)
        command.list_commands(None)  # now it has the verbs of applications, too
        exits = importlib.import_module("bucketmq.cli.exits")
        lines = importlib.import_module("bucketmq.cli.group").EXAMPLES
    except (ImportError, AttributeError):
        return ""
    parts = ["# Command line", command.help, "## Exit codes"]
    parts.append(
        "| code | means |\n|---|---|\n"
        + "\n".join(f"| {int(code)} | {text} |" for code, text in exits.MEANINGS.items())
    )
    for name, verb in _verbs(command):
        parts += [f"## {name}", _paragraphs(verb.help or "")]
        rows = [row for parameter in verb.params if (row := _parameter(parameter))]
        if rows:
            parts.append("| | |\n|---|---|\n" + "\n".join(rows))
        if lines.get(name):
            parts.append("```text\n" + "\n".join(lines[name]) + "\n```")
    return "\n\n".join(parts)


def _verbs(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The verbs as they are typed, those of groups after their group."""
    for name, verb in command.commands.items():
        if verb.hidden:
            continue
        yield path + name, verb
        yield from _verbs(verb, f"{path}{name} ") if hasattr(verb, "commands") else ()


def _parameter(parameter: Any) -> str:
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return ""
    names = (
        ", ".join(parameter.opts) if parameter.param_type_name == "option" else (parameter.metavar or parameter.name)
    )
    text = " ".join((getattr(parameter, "help", "") or "").split())
    return f"| `{names}` | {_escape(text)} |"


def _described(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"## {name}\n\n```text\n{_signature(name, thing)}\n```\n\n{_doc(thing)}"
    parts = [f"## {name}", _doc(thing)]
    for member, each in _members(thing):
        parts.append(f"### {name}.{member}\n\n```text\n{_signature(member, each)}\n```\n\n{_doc(each)}".rstrip())
    return "\n\n".join(parts)


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties in source order, then inherited ones where the parent has no page of its own."""
    seen: set[str] = set()
    for owner in thing.__mro__:
        if not owner.__module__.startswith("bucketmq.") or (owner is not thing and owner.__name__ in CLIENT):
            continue
        for name, each in vars(owner).items():
            if name in seen or name.startswith("_") or not (callable(each) or isinstance(each, property)):
                continue
            seen.add(name)
            yield name, each


def _signature(name: str, thing: Any) -> str:
    if isinstance(thing, property):
        returned = inspect.signature(thing.fget).return_annotation if thing.fget else ""
        return f"{name}: {_annotation(returned)}"
    signature = inspect.signature(thing)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    arguments, star = [], False
    for each in kept:
        if each.kind is each.KEYWORD_ONLY and not star:
            arguments.append("*")
        star = star or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        mark = "**" if each.kind is each.VAR_KEYWORD else "*" if each.kind is each.VAR_POSITIONAL else ""
        text = mark + each.name
        if each.annotation is not each.empty:
            text += f": {_annotation(each.annotation)}"
        if each.default is not each.empty:
            # A function's own text has its address in it, which is another one every time.
            text += f" = {each.default.__name__ if inspect.isfunction(each.default) else repr(each.default)}"
        arguments.append(text)
    start = "async " if inspect.iscoroutinefunction(thing) else ""
    line = f"{start}{name}({', '.join(arguments)})"
    if signature.return_annotation is not signature.empty:
        line += f" -> {_annotation(signature.return_annotation)}"
    if len(line) <= 110:
        return line
    head, tail = line.index("("), line.rindex(")")
    return line[: head + 1] + "\n    " + ",\n    ".join(arguments) + ",\n" + line[tail:]


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _struct(name: str, thing: type, level: str = "##") -> str:
    return f"{level} {name}\n\n{_doc(thing)}\n\n{_table(thing)}".rstrip()


def _table(thing: type, without: tuple[str, ...] = ()) -> str:
    notes, rows = _field_notes(thing), []
    for field in msgspec.structs.fields(thing):
        if field.name in without:
            continue
        unsaid = field.default is msgspec.NODEFAULT or field.default is msgspec.UNSET
        default = "" if unsaid else f"`{json.dumps(msgspec.to_builtins(field.default))}`"
        kind = inspect.get_annotations(thing).get(field.name, field.type)
        rows.append(
            f"| `{field.name}` | `{_escape(_annotation(kind))}` | {default} | {_escape(notes.get(field.name, ''))} |"
        )
    return "| field | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) if rows else ""


def _field_notes(thing: type) -> dict[str, str]:
    """The texts that stand below fields in the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(body, ast.ClassDef)
    notes = {}
    for field, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            notes[field.target.id] = " ".join(str(following.value.value).split())
    return notes


def _doc(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    # Blocks in docstrings are pictures or examples of the module; they are run where the pages run them.
    return re.sub(r"^```(python)?$", lambda found: "```text" if _opens(text, found) else "```", text, flags=re.M)


def _opens(text: str, found: re.Match[str]) -> bool:
    return len(re.findall(r"^```", text[: found.start()], re.M)) % 2 == 0


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def main(check: bool) -> int:
    stale = []
    HERE.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = HERE / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/reference/{name} {'is not current' if check else 'written'}")
    if check and stale:
        print("run: python docs/generate_reference.py")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
