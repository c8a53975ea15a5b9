"""From a name on the command line to a pipeline or a chore, with the options of its own put in.

A name is that of a chore, of a pipeline of an application, or `module:attribute`: a Pipeline, a function that makes
one, or a chore (a function whose first argument is `spark`). The options are the function's keyword arguments of simple
kinds; what an application's settings say of them is their default.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.apps import registry
from bucketmq.apps.app import App, LazyPipeline
from bucketmq.apps.settings import explain_settings
from bucketmq.chores.shipped import CHORES
from bucketmq.cli.exits import UsageError
from bucketmq.cli.worker import attribute
from bucketmq.errors import Invalid
from bucketmq.pipeline import Pipeline


class Known(msgspec.Struct, frozen=True):
    """A chore, or a pipeline of an application."""

    name: str
    about: str
    where: str
    """module:attribute of a chore, or the application."""
    thing: Any = None
    """What an application has: a pipeline, or the function that makes it."""
    app: App | None = None


def known() -> dict[str, Known]:
    """All that have a name. An application that cannot be imported has none."""
    found = {each.name: Known(each.name, each.about, each.where) for each in CHORES.values()}
    for listed in registry.every():
        for each in listed.app.pipelines if listed.app is not None else ():
            thing = each.make if isinstance(each, LazyPipeline) else each
            found.setdefault(each.name, Known(each.name, each.about, f"application {listed.name}", thing, listed.app))
    return found


def load(name: str) -> Any:
    """What a name leads to."""
    if ":" not in name:
        found = known()
        if name not in found:
            raise Invalid(
                f"there is no pipeline {name!r}; there are {', '.join(sorted(found))}, or name module:attribute"
            )
        if found[name].app is not None:
            return found[name].thing
        name = found[name].where
    module, _, path = name.partition(":")
    if not module or not path:
        raise Invalid(f"{name!r} is not a module:attribute; write it like posts:count")
    return attribute(module, path)


def app_of(name: str) -> App | None:
    """The application that a pipeline belongs to, if it is one's."""
    found = known().get(name) if ":" not in name else None
    return None if found is None else found.app


def made(found: Any, name: str, args: Sequence[str]) -> Pipeline | Callable[..., Any]:
    """The pipeline or chore, with its own options put in."""
    if isinstance(found, Pipeline):
        if args:
            raise Invalid(f"pipeline {name} has no option {args[0]}; see bucketmq pipeline run --help")
        return found
    if not callable(found):
        raise Invalid(f"{name} is not a pipeline but {type(found).__name__}")
    given = _given(found, name, args, _set(app_of(name)))
    if is_chore(found):
        return functools.partial(found, **given)
    unmet = [key for key, each in inspect.signature(found).parameters.items() if _is_needed(each) and key not in given]
    if unmet:
        raise Invalid(
            f"{name} takes {unmet[0]!r}, which cannot be given here: a function that makes a pipeline has keyword "
            f"arguments alone, of the kinds {', '.join(KINDS)}"
        )
    made = found(**given)
    if not isinstance(made, Pipeline):
        raise Invalid(f"{name} makes {type(made).__name__}, not a pipeline")
    return made


def is_chore(found: Any) -> bool:
    """Whether it does its work by itself, given a session, and is not a pipeline."""
    return callable(found) and next(iter(inspect.signature(found).parameters), "") == "spark"


def _is_needed(parameter: inspect.Parameter) -> bool:
    """Whether a function cannot be called without it."""
    many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not many


KINDS = {"str": str, "int": int, "float": float, "bool": bool}
"""Kinds of arguments that can be options, by the words of their annotation."""


def _kind(parameter: inspect.Parameter) -> str | None:
    annotation = parameter.annotation
    words = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    word = re.sub(r"\s*\|\s*None$", "", words)
    return word if word in KINDS else None


def _own_options(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options that a function has for the command line: keyword arguments of simple kinds."""
    parameters = inspect.signature(function).parameters.values()
    return {_flag(each.name): each for each in parameters if each.kind is each.KEYWORD_ONLY and _kind(each)}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _set(app: App | None) -> dict[str, Any]:
    """What the settings of an application say, where that is not their default."""
    if app is None:
        return {}
    return {each.name: each.value for each in explain_settings(app.settings, app=app.name) if each.came != "default"}


def _given(function: Callable[..., Any], name: str, args: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line says of a function's own options, read by a Typer command made of its signature."""

    def take(**given: Any) -> dict[str, Any]:
        return given

    options = _own_options(function)
    typed = [
        each.replace(annotation=_typed(each), default=defaults.get(each.name, each.default))
        for each in options.values()
    ]
    take.__annotations__ = {each.name: each.annotation for each in typed}
    take.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]  # what inspect looks for
    app = typer.Typer(add_completion=False)
    app.command(name, context_settings={"help_option_names": []})(take)
    try:
        read: dict[str, Any] = typer.main.get_command(app).main(list(args), standalone_mode=False)
    except UsageError as error:
        said = getattr(error, "format_message", error.__str__)().rstrip(".")
        raise Invalid(f"{name}: {said}; its options are: {', '.join(options) or 'none'}") from None
    return read


def _typed(parameter: inspect.Parameter) -> Any:
    kind = KINDS[str(_kind(parameter))]
    return Annotated[kind if parameter.default is not None else kind | None, typer.Option()]


def options_of(name: str) -> list[dict[str, Any]]:
    found = load(name)
    own = {} if isinstance(found, Pipeline) else _own_options(found)
    return [{"option": flag, "kind": _kind(each), "needed": each.default is each.empty} for flag, each in own.items()]


def option_words(name: str) -> str:
    return " ".join(f"{each['option']}{' (needed)' if each['needed'] else ''}" for each in options_of(name))
