"""Models: a class of the user's (`msgspec.Struct`, a dataclass, a pydantic model) that plain values are made to fit.

What does not fit is `Unfit`, with the path of the field. Which columns a model has is `pipeline.models`. pydantic is
never imported here: a model of it brings it along.
"""

from __future__ import annotations

import dataclasses
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from bucketmq.errors import Invalid, Unfit

Model = TypeVar("Model")

PLAIN = (bytes, datetime, date, Decimal)
"""Values that are handed on as they are, beside those of JSON."""


def is_pydantic(model: type) -> bool:
    return hasattr(model, "model_validate") and hasattr(model, "model_fields")


def is_model(thing: object) -> bool:
    """Whether a thing is a class that plain values can be made to fit."""
    if not isinstance(thing, type):
        return False
    return issubclass(thing, msgspec.Struct) or dataclasses.is_dataclass(thing) or is_pydantic(thing)


def check_model(thing: object, what: str) -> None:
    if not is_model(thing):
        raise Invalid(f"{what} must be a msgspec.Struct, a dataclass or a pydantic model, not {thing!r}")


def fitted(value: Any, model: type[Model]) -> Model:
    """The value as one of the model; `Unfit` if it does not fit."""
    if is_pydantic(model):
        made: Model = _validated(value, model)
        return made
    try:
        return msgspec.convert(value, model, builtin_types=PLAIN)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `")
        path = where.rstrip("`") or "$"
        raise Unfit(_text(model, path, said), path) from None
    except (ValueError, TypeError) as error:  # of a `__post_init__` of the model's own
        raise Unfit(_text(model, "$", str(error))) from None


def _validated(value: Any, model: Any) -> Any:
    try:
        return model.model_validate(value)
    except ValueError as error:  # pydantic's ValidationError is one
        details = getattr(error, "errors", None)
        if not callable(details):
            raise Unfit(_text(model, "$", str(error))) from None
        first = details()[0]
        path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
        raise Unfit(_text(model, path, first["msg"]), path) from None


def _text(model: type, path: str, said: str) -> str:
    return f"does not fit {model.__name__} at {path}: {said[:500]}"


def plain(value: Any) -> Any:
    """A model as plain values; fields under the names that they are read by."""
    if is_pydantic(type(value)):
        return value.model_dump(by_alias=True)
    return msgspec.to_builtins(value, builtin_types=PLAIN)
