"""From a name on the command line to a pipeline or a chore, with the options of its own put in.

A name is that of one which comes along, or `module:attribute`: a Pipeline, a function that makes one, or a chore (a
function whose first argument is `spark`). The options are the function's keyword arguments of simple kinds.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from bucketmq.cli.worker import import_here
from bucketmq.errors import Invalid
from bucketmq.pipelines.shipped import SHIPPED
from bucketmq.spark.pipeline import Pipeline


def load(name: str) -> Any:
    """What a name leads to."""
    shipped = SHIPPED.get(name)
    if shipped is None and ":" not in name:
        raise Invalid(
            f"there is no pipeline {name!r}; there are {', '.join(sorted(SHIPPED))}, or name module:attribute"
        )
    module, _, path = (name if shipped is None else shipped.where).partition(":")
    if not module or not path:
        raise Invalid(f"{name!r} is no module:attribute; write it like posts:count")
    try:
        return functools.reduce(getattr, path.split("."), import_here(module))
    except AttributeError:
        raise Invalid(f"module {module!r} has no {path!r}") from None


def made(found: Any, name: str, args: Sequence[str]) -> Pipeline | Callable[..., Any]:
    """The pipeline or chore, with its own options put in."""
    if isinstance(found, Pipeline):
        if args:
            raise Invalid(f"pipeline {name} has no option {args[0]}; see bucketmq pipeline run --help")
        return found
    if not callable(found):
        raise Invalid(f"{name} is no pipeline but {type(found).__name__}")
    given = _read_options(found, name, args)
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
        raise Invalid(f"{name} makes no pipeline but {type(made).__name__}")
    return made


def is_chore(found: Any) -> bool:
    """Whether it does its work by itself, given a session, and is no pipeline."""
    return callable(found) and next(iter(inspect.signature(found).parameters), "") == "spark"


def _is_needed(parameter: inspect.Parameter) -> bool:
    """Whether a function cannot be called without it."""
    many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not many


KINDS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float, "bool": bool}
"""Kinds of options that can be given as text, by the words of their annotation."""


def _own_options(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The options that a function has for the command line: keyword arguments of simple kinds."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY and _kind(each) is not None}


def _kind(parameter: inspect.Parameter) -> str | None:
    annotation = parameter.annotation
    words = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    word = re.sub(r"\s*\|\s*None$", "", words)
    return word if word in KINDS else None


def _read_options(function: Callable[..., Any], name: str, args: Sequence[str]) -> dict[str, Any]:
    known = _own_options(function)
    given: dict[str, Any] = {}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        flag, equals, text = word.partition("=")
        key = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or key not in known:
            there = ", ".join(_flag(each) for each in known) or "none"
            raise Invalid(f"{name} has no option {word!r}; it has: {there}")
        kind = _kind(known[key])
        assert kind is not None
        if kind == "bool" and not equals:
            given[key] = True
            continue
        if not equals:
            if not rest:
                raise Invalid(f"option {flag} of {name} needs a value")
            text = rest.pop(0)
        given[key] = _value(flag, kind, text)
    missing = [key for key, each in known.items() if each.default is each.empty and key not in given]
    if missing:
        raise Invalid(f"{name} needs the option {_flag(missing[0])}")
    return given


def _value(flag: str, kind: str, text: str) -> Any:
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise Invalid(f"option {flag} is true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return KINDS[kind](text)
    except ValueError:
        raise Invalid(
            f"option {flag} must be {'a whole number' if kind == 'int' else 'a number'}, not {text!r}"
        ) from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def options_of(name: str) -> list[dict[str, Any]]:
    found = load(name)
    if isinstance(found, Pipeline):
        return []
    return [
        {"option": _flag(key), "kind": _kind(each), "needed": each.default is each.empty}
        for key, each in _own_options(found).items()
    ]


def option_words(name: str) -> str:
    return " ".join(f"{each['option']}{' (needed)' if each['needed'] else ''}" for each in options_of(name))
