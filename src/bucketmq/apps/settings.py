"""Settings of applications: a struct, filled from options, the environment and a file. One mechanism for all of them.

What is given as an option wins over a variable of the environment, a variable over the file, the file over the default.
Each field says which variables it is read from and whether it is a secret:

```python
class IndexSettings(AppSettings, frozen=True, kw_only=True):
    port: Annotated[int, Meta(ge=0, le=65535, description="where to listen"), Variable("INDEX_PORT")] = 8090
    token: Annotated[str | None, Variable("INDEX_TOKEN"), SECRET] = None
```

The file is TOML, with a table for each application: `[index]`, then `port = 8091`.
"""

from __future__ import annotations

import os
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from bucketmq.bucket.urls import without_secrets
from bucketmq.errors import Invalid

BUCKETMQ_URL = "BUCKETMQ_URL"
BUCKETMQ_SETTINGS = "BUCKETMQ_SETTINGS"
"""The variable that names the file."""

VALUE_CHARS_SHOWN = 60


class Variable(msgspec.Struct, frozen=True):
    """In `Annotated`: a variable of the environment that a setting is read from. The first one that is set counts.

    A tuple is separated by spaces. `read` turns the text into what the setting needs, where that is something else.
    """

    name: str
    read: Callable[[str], Any] | None = None
    example: str = "..."


class Secret(msgspec.Struct, frozen=True):
    """In `Annotated`: never shown."""


SECRET = Secret()

THE_BUCKET = Variable(BUCKETMQ_URL, example="file:///tmp/inbox")


class AppSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all applications have: the bucket. `repr` shows no secret, and a URL without what may be one."""

    url: Annotated[str, Meta(description="the bucket"), THE_BUCKET]

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={each.value!r}" for each in shown_settings(self))
        return f"{type(self).__name__}({shown})"


Settings = TypeVar("Settings", bound=AppSettings)
Came = Literal["option", "environment", "file", "default"]


class Field(msgspec.Struct, frozen=True):
    """One setting, as its struct declares it."""

    name: str
    kind: Any
    about: str
    variables: tuple[Variable, ...]
    secret: bool
    needed: bool


class Shown(msgspec.Struct, frozen=True):
    """A setting for people: a secret is only counted."""

    name: str
    value: Any
    about: str
    variables: tuple[str, ...]
    came: Came = "default"


def fields_of(kind: type[AppSettings]) -> list[Field]:
    """The settings of a struct, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for each in msgspec.structs.fields(kind):
        marks = get_args(hints[each.name])[1:] if get_origin(hints[each.name]) is Annotated else ()
        about = next((mark.description for mark in marks if isinstance(mark, Meta) and mark.description), "")
        variables = tuple(mark for mark in marks if isinstance(mark, Variable))
        found.append(Field(each.name, hints[each.name], about, variables, SECRET in marks, each.required))
    return found


def parse_options(kind: type[AppSettings], words: Sequence[str]) -> dict[str, Any]:
    """Settings as they are written on a command line: `--port 8091` or `--port=8091`; `--loud` for one that is true or
    false. One that has several values may be repeated."""
    fields = {f"--{field.name.replace('_', '-')}": field for field in fields_of(kind)}
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        field = fields.get(flag)
        if field is None:
            raise Invalid(f"there is no option {flag}; settings are {', '.join(fields)}")
        if not equals:
            flips = _plain(field.kind) is bool
            if not flips and not left:
                raise Invalid(f"{flag} needs a value")
            value = "true" if flips else left.pop(0)
        if _has_many(field):
            found[field.name] = [*found.get(field.name, ()), value]
        else:
            found[field.name] = value
    return found


def words_of(options: Mapping[str, Any]) -> list[str]:
    """The same the other way: options as words of a command line."""
    return [
        f"--{name.replace('_', '-')}={value}"
        for name, given in options.items()
        for value in (given if isinstance(given, list) else [given])
    ]


def kept_secret(kind: type[AppSettings], options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Options for a child process: those that may stand in its command line, which others on the machine can read, and
    the secrets among them as variables of its environment."""
    shown, hidden = dict(options), {}
    for field in fields_of(kind):
        if field.name not in shown or not (field.secret or _has_secret(shown[field.name])):
            continue
        first = field.variables[:1]  # no other one could take its place there
        if first and first[0].read is None:
            value = shown.pop(field.name)
            hidden[first[0].name] = " ".join(value) if isinstance(value, list | tuple) else str(value)
    return shown, hidden


def _has_secret(value: Any) -> bool:
    """A URL may hold a password or a key."""
    return isinstance(value, str) and "://" in value and without_secrets(value) != value


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _has_many(field: Field) -> bool:
    return get_origin(_plain(field.kind)) in (tuple, list)


def variables_of(kind: type[AppSettings]) -> list[str]:
    """The variables of the environment that a struct is read from."""
    return [variable.name for field in fields_of(kind) for variable in field.variables]


def read_settings(
    kind: type[Settings],
    *,
    app: str = "",
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: str | Path | None = None,
) -> Settings:
    """The settings: options that are not None, then the environment, then the table `app` of the file, then defaults.

    `Invalid` says which setting cannot be, where it came from and how to give it.
    """
    given, found = options or {}, os.environ if environment is None else environment
    fields = fields_of(kind)
    odd = next((name for name in given if name not in {field.name for field in fields}), None)
    if odd is not None:
        raise Invalid(f"there is no setting {odd!r}; there are {', '.join(field.name for field in fields)}")
    filed = _table(app, file or found.get(BUCKETMQ_SETTINGS) or None, kind)
    values: dict[str, Any] = {}
    for field in fields:
        value, came = _given(field, given, found, filed)
        if came != "default":
            values[field.name] = _fitting(field, value, came)
        elif field.needed:
            raise Invalid(_missing(field))
    return kind(**values)


def bucket_of(kind: type[AppSettings], *, app: str = "", environment: Mapping[str, str] | None = None) -> str | None:
    """The bucket that the environment or the file names, if one does."""
    found = os.environ if environment is None else environment
    field = next(each for each in fields_of(kind) if each.name == "url")
    value, _ = _given(field, {}, found, _table(app, found.get(BUCKETMQ_SETTINGS) or None, kind))
    return None if value is None else str(value)


def explain_settings(
    kind: type[Settings], *, app: str = "", environment: Mapping[str, str] | None = None, file: str | Path | None = None
) -> list[Shown]:
    """Each setting with where it comes from. What is needed and missing has no value."""
    found = os.environ if environment is None else environment
    filed = _table(app, file or found.get(BUCKETMQ_SETTINGS) or None, kind)
    shown = []
    for field in fields_of(kind):
        value, came = _given(field, {}, found, filed)
        if came == "default" and not field.needed:
            value = _default(kind, field.name)
        shown.append(_shown(field, value, came))
    return shown


def shown_settings(settings: AppSettings) -> Iterator[Shown]:
    for field in fields_of(type(settings)):
        yield _shown(field, getattr(settings, field.name), "option")


def _shown(field: Field, value: Any, came: Came) -> Shown:
    if field.secret:
        count = len(value) if isinstance(value, tuple | list) else int(bool(value))
        value = f"({count} given)" if count else None
    elif isinstance(value, tuple | list):
        value = type(value)(_without_secrets(each) for each in value)
    else:
        value = _without_secrets(value)
    return Shown(field.name, value, field.about, tuple(each.name for each in field.variables), came)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str) and "://" in value:
        return without_secrets(value).partition("?")[0]
    return value


def _given(
    field: Field, options: Mapping[str, Any], environment: Mapping[str, str], filed: Mapping[str, Any]
) -> tuple[Any, Came]:
    """What is said about a setting, and where. Nothing at all and an empty text say nothing."""
    option = options.get(field.name)
    if option not in (None, (), []):
        return option, "option"
    for variable in field.variables:
        text = environment.get(variable.name, "").strip()
        if text:
            return variable.read(text) if variable.read is not None else _split(field, text), "environment"
    if field.name in filed:
        return filed[field.name], "file"
    return None, "default"


def _split(field: Field, text: str) -> Any:
    return text.split() if _has_many(field) else text


def _fitting(field: Field, value: Any, came: Came) -> Any:
    try:
        return msgspec.convert(value, field.kind, strict=came == "file")
    except msgspec.ValidationError as error:
        shown = "" if field.secret else f", not {str(value)[:VALUE_CHARS_SHOWN]!r}"
        raise Invalid(f"the setting {_names(field)} cannot be that{shown}: {error}") from None


def _names(field: Field) -> str:
    return " or ".join((f"--{field.name.replace('_', '-')}", *(each.name for each in field.variables)))


def _missing(field: Field) -> str:
    ways = " or ".join(f"export {each.name}={each.example}" for each in field.variables)
    about = f" ({field.about})" if field.about else ""
    return f"the setting {field.name}{about} is missing: give --{field.name.replace('_', '-')}" + (
        f", or {ways}" if ways else ""
    )


def _table(app: str, file: str | Path | None, kind: type[AppSettings]) -> Mapping[str, Any]:
    """The application's table of the file; empty without either."""
    if file is None:
        return {}
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read the settings in {file}: {error}") from None
    except (ValueError, RecursionError) as error:  # the latter of deep nesting; an endless number is a ValueError only
        raise Invalid(f"{file} is not TOML: {error}") from None
    table = found.get(app, {})
    if not isinstance(table, dict):
        raise Invalid(f"{app!r} in {file} is not a table; write [{app}], then a line for each setting")
    names = [field.name for field in fields_of(kind)]
    odd = next((name for name in table if name not in names), None)
    if odd is not None:
        raise Invalid(f"{file} has {app}.{odd}, which is not a setting; there are {', '.join(names)}")
    return typing.cast(Mapping[str, Any], table)


def _default(kind: type[AppSettings], name: str) -> Any:
    field = next(each for each in msgspec.structs.fields(kind) if each.name == name)
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default
