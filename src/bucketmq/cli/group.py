"""Groups of verbs, `bucketmq GROUP VERB`: with examples in their help, and those that applications bring.

Verbs of applications are not imported until one of them is wanted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from bucketmq.apps import registry
from bucketmq.errors import BucketMQError, Invalid

PANEL = "Applications"

EXAMPLES: dict[str, tuple[str, ...]] = {}
"""Verb -> shell lines, as its help shows them. A test runs each."""


class Group:
    """Some verbs, each with lines that its help shows as examples."""

    def __init__(self, name: str, about: str, made: typer.Typer | None = None) -> None:
        self.name = name
        self.typer = made or typer.Typer(name=name, help=about, no_args_is_help=True, rich_markup_mode="rich")

    def add(
        self, panel: str, verb: Callable[..., None], *lines: str, context_settings: dict[str, Any] | None = None
    ) -> None:
        """Add a function as a verb of its name."""
        name = verb.__name__.rstrip("_").replace("_", "-")
        EXAMPLES[f"{self.name} {name}".lstrip()] = lines
        epilog = "[bold]Examples[/bold]\n\n" + "\n\n".join(f"  [cyan]{escape(line)}[/cyan]" for line in lines)
        self.typer.command(name, rich_help_panel=panel, epilog=epilog, context_settings=context_settings)(verb)

    def panel(self, name: str) -> Callable[..., None]:
        """What adds verbs below this heading of the help."""
        return functools.partial(self.add, name)

    def add_running(self, *, run: Sequence[str], rerun: Sequence[str]) -> None:
        """Add `run` and `rerun` of `bucketmq apps`, for the application that this group is named after."""
        from bucketmq.cli import apps, apps_run
        from bucketmq.cli.pipeline import PASS_ON

        self.add("Work", _of(self.name, apps_run.run), *run, context_settings=PASS_ON)
        self.add("Work", _of(self.name, apps.rerun), *rerun)


def _of(name: str, verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that takes the name of an application, for this one."""

    @functools.wraps(verb)
    def bound(*args: Any, **options: Any) -> None:
        verb(*args, name=name, **options)

    signature = inspect.signature(verb, eval_str=True)  # as typer reads it
    others = [each for each in signature.parameters.values() if each.name != "name"]
    bound.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return bound


class WithApps(TyperGroup):
    """All verbs, and a group for each application that has some. A verb of our own wins over an application's name."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in registry.names() if name not in own and self._has_verbs(ctx, name))]

    def _has_verbs(self, ctx: Any, name: str) -> bool:
        """Whether an application has verbs that can be imported: one that is broken must not take the help along."""
        try:
            return self.get_command(ctx, name) is not None
        except BucketMQError:
            return False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name in registry.names():
            found = self.commands[cmd_name] = _of_app(cmd_name)
        return found


def _of_app(name: str) -> Any:
    """The verbs of an application; None if it has none. `Invalid` says why they cannot be used."""
    app = registry.get(name)
    if app.commands is None:
        return None
    try:
        made: Any = typer.main.get_group(app.commands())
    except BucketMQError:
        raise
    except (Exception, SystemExit) as error:  # whatever the module of another package raises
        raise Invalid(f"the verbs of application {name!r} cannot be used: {type(error).__name__}: {error}") from error
    made.name = name
    made.rich_help_panel = PANEL
    return made
