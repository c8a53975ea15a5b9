"""Values that go out as JSON: what verbs return can be printed, logged, and returned from a web framework's route.

```python
json.dumps(queue.stats().to_dict())

@app.get("/stats")
def stats() -> QueueStats:          # FastAPI and pydantic know the type, its page too
    return queue.stats()
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """A value as JSON has it, every field with its default too, which stored forms may leave out. What is not set
    is not there."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tagged = {config.tag_field: config.tag} if config.tag_field is not None else {}
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return tagged | {name: plain(each) for name, each in fields if each is not msgspec.UNSET}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return msgspec.to_builtins(value)


SHOWN_CHARS_MAX = 200


def shown(value: Any) -> str:
    """A field in a `repr`: what is long or repeats itself is counted, not shown."""
    if isinstance(value, tuple) and len(value) > 1 and isinstance(value[0], msgspec.Struct):
        return f"<{len(value)} {type(value[0]).__name__}>"
    if isinstance(value, bytes | str) and len(value) > SHOWN_CHARS_MAX:
        return f"<{len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'}>"
    return repr(value)


class Value:
    """A base for what verbs return."""

    __slots__ = ()

    def __repr__(self) -> str:
        fields: tuple[str, ...] = getattr(self, "__struct_fields__", ())
        return f"{type(self).__name__}({', '.join(f'{name}={shown(getattr(self, name))}' for name in fields)})"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that `json.dumps` takes. Bytes become Base64 text."""
        found: dict[str, Any] = plain(self)
        return found

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Names and values, so that `dict(value)` works, and with it what makes JSON of unknown objects: FastAPI does,
        where a route does not declare what it returns. (Not for a value with a field `keys`: `dict` takes it for the
        method of a mapping.)"""
        return iter(self.to_dict().items())

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Lets pydantic, and so FastAPI, use the class as a type."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._from_plain, serialization=core_schema.plain_serializer_function_ser_schema(cls.to_dict)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        fields = _without_refs(msgspec.json.schema(cls)) if cls._is_its_fields() else {"type": "object"}
        return {"title": cls.__name__, **fields}

    @classmethod
    def _is_its_fields(cls) -> bool:
        """Whether `to_dict` gives the fields of a struct: a delivery is a struct and has another form."""
        return issubclass(cls, msgspec.Struct) and cls.to_dict is Value.to_dict

    @classmethod
    def _from_plain(cls, value: Any) -> Any:
        """A value as it is, or made of plain values."""
        if isinstance(value, cls) or not cls._is_its_fields():
            return value
        try:
            return msgspec.convert(value, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None


def _without_refs(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its definitions in the places where they are referred to: our values do not nest in themselves."""
    parts: dict[str, Any] = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return resolved(parts[node["$ref"].rpartition("/")[2]])
        return {name: resolved(each) for name, each in node.items()}

    found: dict[str, Any] = resolved(schema)
    return found
