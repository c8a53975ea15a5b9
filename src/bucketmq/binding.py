"""Binds the verbs of `api/` to an engine, so that each has one signature and one docstring.

```python
class Queue:
    send = blocking(QueueApi.send)      # queue.send(body, key=...) -> Sent
    send = awaiting(QueueApi.send)      # await queue.send(body, key=...) -> Sent
```

A facade object has `_api`, which owns the verbs, `_run`, which carries a procedure through, and `_engine`, which is
handed to the objects it makes. Type checkers see the verb's own parameters; so do `help` and `inspect.signature`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from bucketmq.procedures.requests import Procedure

Given = ParamSpec("Given")
Result = TypeVar("Result")
Made = TypeVar("Made")


@overload
def blocking(
    verb: Callable[Concatenate[Any, Given], Procedure[Result]],
) -> Callable[Concatenate[Any, Given], Result]: ...
@overload
def blocking(
    verb: Callable[Concatenate[Any, Given], Procedure[Result]], into: Callable[[Any, Result], Made]
) -> Callable[Concatenate[Any, Given], Made]: ...
def blocking(verb: Callable[..., Any], into: Callable[..., Any] | None = None) -> Any:
    """A method that runs the verb's procedure and returns its result, or what `into(engine, result)` makes of it."""
    if into is None:

        def call(self: Any, /, *args: Any, **options: Any) -> Any:
            return self._run(verb(self._api, *args, **options))
    else:

        def call(self: Any, /, *args: Any, **options: Any) -> Any:
            return into(self._engine, self._run(verb(self._api, *args, **options)))

    return looking_like(verb, call, into)


@overload
def awaiting(
    verb: Callable[Concatenate[Any, Given], Procedure[Result]],
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]]: ...
@overload
def awaiting(
    verb: Callable[Concatenate[Any, Given], Procedure[Result]], into: Callable[[Any, Result], Made]
) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Made]]: ...
def awaiting(verb: Callable[..., Any], into: Callable[..., Any] | None = None) -> Any:
    """The same, awaited."""
    if into is None:

        async def call(self: Any, /, *args: Any, **options: Any) -> Any:
            return await self._run(verb(self._api, *args, **options))
    else:

        async def call(self: Any, /, *args: Any, **options: Any) -> Any:
            return into(self._engine, await self._run(verb(self._api, *args, **options)))

    return looking_like(verb, call, into)


@overload
def plain(verb: Callable[Concatenate[Any, Given], Result]) -> Callable[Concatenate[Any, Given], Result]: ...
@overload
def plain(
    verb: Callable[Concatenate[Any, Given], Result], into: Callable[[Any, Result], Made]
) -> Callable[Concatenate[Any, Given], Made]: ...
def plain(verb: Callable[..., Any], into: Callable[..., Any] | None = None) -> Any:
    """A method for a verb that makes no request: never awaited."""
    if into is None:

        def call(self: Any, /, *args: Any, **options: Any) -> Any:
            return verb(self._api, *args, **options)
    else:

        def call(self: Any, /, *args: Any, **options: Any) -> Any:
            return into(self._engine, verb(self._api, *args, **options))

    return looking_like(verb, call, into)


def looking_like(verb: Callable[..., Any], call: Callable[..., Any], into: Callable[..., Any] | None = None) -> Any:
    """`call` with the name, docstring and parameters of the verb, and the type that callers get as its result."""
    functools.update_wrapper(call, verb)
    signature = inspect.signature(verb)
    returns = _result_of(signature.return_annotation) if into is None else _made_by(into)
    call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
    call.__annotations__ = {**verb.__annotations__, "return": returns}
    return call


def _result_of(annotation: str) -> str:
    """`Sent` for `Procedure[Sent]`: annotations are text in all our modules."""
    return (
        annotation.removeprefix("Procedure[").removesuffix("]") if annotation.startswith("Procedure[") else annotation
    )


def _made_by(into: Callable[..., Any]) -> str:
    return into.__name__ if isinstance(into, type) else inspect.signature(into).return_annotation
