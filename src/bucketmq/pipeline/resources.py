"""Resources: what stages use and what takes long to make (a model, a client), made once in a process.

Made when the first stage asks for it, shared by all stages that use the same callable, and closed when the process
ends, or when the last bucket that held it is closed (`hold`). Only the callable travels to other processes.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import inspect
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import msgspec

from bucketmq.errors import BucketMQError, Denied, Invalid, Unavailable, Unsupported

logger = logging.getLogger("bucketmq")

Make = Callable[[], Any]
Uses = Make | Mapping[str, Make] | None

_tokens: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class Resource(msgspec.Struct, frozen=True):
    """How a resource is made, under which name a function gets it, and what tells it from others."""

    name: str
    make: Make
    token: str = ""
    """For a callable that neither its name nor its value tells from others, such as a function inside a function."""

    @property
    def key(self) -> Hashable:
        return self.token or _name_of(self.make) or self.make


def resources_of(stage: str, uses: Uses, function: Callable[..., Any], *, rows: int = 1) -> tuple[Resource, ...]:
    """What `uses=` says: a callable, handed as the function's first argument behind `rows` others, or several by their
    names."""
    if uses is None:
        return ()
    names = _parameters(stage, function)
    if callable(uses):
        if len(names) <= rows:
            raise Invalid(
                f"stage {stage!r} uses {_called(uses)}, but its function takes the rows alone: add a parameter"
            )
        uses = {names[rows]: uses}
    if not isinstance(uses, Mapping):
        raise Invalid(f"stage {stage!r} uses {uses!r:.80}; name a class or function that makes it, or a dict of them")
    for name, make in uses.items():
        if not callable(make):
            raise Invalid(
                f"stage {stage!r} uses {name!r}, which must be a class or function that makes it, not {make!r}"
            )
        if name not in names[rows:]:
            raise Invalid(f"stage {stage!r} uses {name!r}, but its function has no parameter of that name")
    return tuple(Resource(name, make, _token(make)) for name, make in uses.items())


def _parameters(stage: str, function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        raise Invalid(f"stage {stage!r} uses something, but the parameters of its function cannot be read") from None


def _token(make: Make) -> str:
    if _name_of(make) is not None or _has_value(make):
        return ""
    try:
        return _tokens.setdefault(make, uuid.uuid4().hex)
    except TypeError:  # it can have no weak references
        return uuid.uuid4().hex


def _has_value(make: Make) -> bool:
    """Whether two of its kind are equal by what they are, so that it is the same in every process."""
    kind: Any = type(make)
    own: Any = object
    return kind.__eq__ is not own.__eq__ and kind.__hash__ not in (None, own.__hash__)


def _name_of(make: Make) -> str | None:
    """The module and name by which another process finds the same callable."""
    module, path = getattr(make, "__module__", None), getattr(make, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__":
        return None
    return f"{module}:{path}" if found_at(module, path) is make else None


def found_at(module: str, path: str) -> Any:
    """What a module has at `path`, or None."""
    try:
        return functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return None


def _called(make: Make) -> str:
    return getattr(make, "__qualname__", None) or repr(make)


class _Made:
    """A place for one resource: empty until somebody asks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_made = False
        self.handed: Any = None
        self.close: Callable[[], Any] | None = None
        self.holders = 0


class Resources:
    """The resources of one process."""

    def __init__(self) -> None:
        self._places: dict[Hashable, _Made] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def lend(self, stage: str, uses: Iterable[Resource]) -> dict[str, Any]:
        """What a function is handed, by name; made where nobody asked before.

        What cannot be made is an error of the place, whatever was raised: no row is at fault.
        """
        return {each.name: self._one(stage, each) for each in uses}

    def _one(self, stage: str, resource: Resource) -> Any:
        place = self._place(resource)
        with place.lock:
            if not place.is_made:
                try:
                    place.handed, place.close = _entered(resource.make())
                except Exception as error:
                    raise _not_made(stage, resource, error) from error
                place.is_made = True
            return place.handed

    def _place(self, resource: Resource) -> _Made:
        with self._lock:
            if self._process != os.getpid():  # what the parent made is the parent's to close
                self._places, self._process = {}, os.getpid()
            return self._places.setdefault(resource.key, _Made())

    def hold(self, uses: Iterable[Resource]) -> Callable[[], None]:
        """Keep these until the function that is returned is called. The last one who holds a resource closes it."""
        places = {each.key: self._place(each) for each in uses}
        for place in places.values():
            with place.lock:
                place.holders += 1

        def release() -> None:
            for key, place in places.items():
                with place.lock:
                    place.holders -= 1
                    if place.holders:
                        continue
                    with self._lock:
                        self._places.pop(key, None)
                    _close(place)

        return release

    def close(self) -> None:
        """Close everything, the youngest first."""
        with self._lock:
            places, self._places = list(self._places.values()), {}
            if self._process != os.getpid():
                return
        for place in reversed(places):
            _close(place)


def _entered(made: Any) -> tuple[Any, Callable[[], Any] | None]:
    """What is handed out, and how it is closed: a context manager is entered, anything else may have a `close`."""
    if hasattr(type(made), "__enter__") and hasattr(type(made), "__exit__"):
        return made.__enter__(), lambda: made.__exit__(None, None, None)
    close = getattr(made, "close", None)
    return made, close if callable(close) else None


def _close(place: _Made) -> None:
    close, place.close, place.is_made, place.handed = place.close, None, False, None
    if close is None:
        return
    try:
        close()
    except Exception:
        logger.exception("action=close_failed a resource of a stage could not be closed")


def _not_made(stage: str, resource: Resource, error: Exception) -> BucketMQError:
    kinds = (Unavailable, Denied, Unsupported)
    kind = next((each for each in kinds if isinstance(error, each)), Unsupported)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return kind(f"stage {stage!r} cannot load {resource.name!r} ({_called(resource.make)}): {said}; no row was touched")


@functools.cache
def of_process() -> Resources:
    """The resources of this process, closed when it ends. Processes that Spark made need `spark.worker` for that."""
    made = Resources()
    atexit.register(made.close)
    return made
