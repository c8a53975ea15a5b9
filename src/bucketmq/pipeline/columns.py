"""DDL: columns as Spark writes them (`id string, tags array<string>`), made an Arrow schema. No JVM and no PySpark.

The types are those that a stage may take and give. What Spark has beyond them (intervals, variants) has no plain Arrow
form and is `Invalid`. `NOT NULL` and comments are refused too: every column of a batch may be null.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from bucketmq.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|([<>(),:]))")

DEPTH_MAX = 50

MESSAGE_COLUMNS = {
    "id": "string",
    "key": "string",
    "headers": "map<string,string>",
    "body": "string",
    "body_bytes": "binary",
    "sent_at": "timestamp",
}
"""A message as a row."""

MESSAGE_OWN = {f"message_{name}": kind for name, kind in MESSAGE_COLUMNS.items() if not name.startswith("body")}
"""What a message has beside its body, where the fields of that are columns, too."""

PLACED_COLUMNS = {**MESSAGE_COLUMNS, "shard": "int", "offset": "bigint"}
"""A message as a row with the place where it lies: what Spark's source gives."""


@functools.lru_cache(maxsize=512)
def arrow_schema(ddl: str) -> pa.Schema:
    """The Arrow schema of these columns, as Spark itself makes it with times in UTC."""
    import pyarrow as pa

    parser = _Parser(ddl)
    fields = parser.fields(end="", colon=False, depth=0)
    names = [name for name, _ in fields]
    lower = [name.lower() for name in names]
    twice = next((name for name in names if lower.count(name.lower()) > 1), None)
    if twice is not None:
        raise Invalid(
            f"the columns {ddl!r} have {twice!r} twice (Spark reads names in any case); give each column "
            "a name of its own"
        )
    return pa.schema(fields)


def column_names(ddl: str) -> tuple[str, ...]:
    """The names of the columns, in their order."""
    return tuple(arrow_schema(ddl).names)


def type_text(kind: pa.DataType) -> str:
    """An Arrow type of such a schema as Spark writes it: the way back."""
    from pyarrow import types

    if types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{quoted(field.name)}:{type_text(field.type)}' for field in kind)}>"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next(name for name, simple in _simple_types().items() if simple == kind)


def ddl_of(columns: dict[str, str]) -> str:
    """These columns, by their names."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def ddl_of_schema(schema: pa.Schema) -> str:
    """The columns of such a schema as Spark writes them."""
    return ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in schema)


def quoted(name: str) -> str:
    """A column's name as it may stand in DDL."""
    return "`" + name.replace("`", "``") + "`"


@functools.cache
def _simple_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "string": pa.string(),
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "byte": pa.int8(),
        "smallint": pa.int16(),
        "short": pa.int16(),
        "int": pa.int32(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "long": pa.int64(),
        "float": pa.float32(),
        "real": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, bool]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise Invalid(f"cannot read the columns {text!r} from {text[at : at + 20].strip()!r} on")
            quoted, word, number, sign = found.groups()
            self._tokens.append(
                (quoted.replace("``", "`"), True) if quoted is not None else (word or number or sign, False)
            )
            at = found.end()
        self._at = 0

    def fields(self, *, end: str, colon: bool, depth: int) -> list[tuple[str, pa.DataType]]:
        """Names and types up to `end`."""
        found = []
        while True:
            name = self._next("the name of a column")
            if colon:
                self._skip(":")
            found.append((name, self._type(depth + 1)))
            word = self._peek()
            if word == end:
                self._at += 1
                return found
            if word != ",":
                raise self._wrong(f"a comma or the end behind column {name!r}", word)
            self._at += 1

    def _type(self, depth: int) -> pa.DataType:
        import pyarrow as pa

        if depth > DEPTH_MAX:
            raise Invalid(f"the columns {self._text[:80]!r} nest deeper than {DEPTH_MAX}")
        word = self._next("a type").lower()
        match word:
            case "array":
                self._expect("<")
                item = self._type(depth + 1)
                self._expect(">")
                return pa.list_(pa.field("element", item))
            case "map":
                self._expect("<")
                key = self._type(depth + 1)
                self._expect(",")
                value = self._type(depth + 1)
                self._expect(">")
                return pa.map_(key, value)
            case "struct":
                self._expect("<")
                return pa.struct(self.fields(end=">", colon=True, depth=depth))
            case "decimal" | "dec" | "numeric":
                return self._decimal()
        simple = _simple_types()
        if word not in simple:
            raise self._wrong(f"a type such as {', '.join(simple)}, array<...>, map<...>, struct<...>", word)
        return simple[word]

    def _decimal(self) -> pa.DataType:
        import pyarrow as pa

        digits, scale = 10, 0
        if self._peek() == "(":
            self._at += 1
            digits = self._number()
            if self._peek() == ",":
                self._at += 1
                scale = self._number()
            self._expect(")")
        if not 1 <= digits <= 38 or scale > digits:
            raise Invalid(
                f"decimal({digits},{scale}) in {self._text!r} is too large: up to 38 digits, scale within them"
            )
        return pa.decimal128(digits, scale)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdecimal():
            raise self._wrong("a number", word)
        return int(word)

    def _peek(self) -> str:
        if self._at >= len(self._tokens):
            return ""
        word, quoted = self._tokens[self._at]
        return f"`{word}`" if quoted else word

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._tokens):
            raise self._wrong(wanted, "")
        word, quoted = self._tokens[self._at]
        if not quoted and word in "<>(),:":
            raise self._wrong(wanted, word)
        self._at += 1
        return word

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._wrong(repr(sign), self._peek())
        self._at += 1

    def _skip(self, sign: str) -> None:
        if self._peek() == sign:
            self._at += 1

    def _wrong(self, wanted: str, found: str) -> Invalid:
        there = repr(found) if found else "the end"
        return Invalid(f"in the columns {self._text!r} there should be {wanted}, not {there}")
