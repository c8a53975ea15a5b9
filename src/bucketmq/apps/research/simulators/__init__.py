"""Which simulators there are: built-in ones, by a short name, and functions of others as `module:function`.

A simulator is a function of its parameters and a seed, `simulate(parameters, seed)`, that returns a number for each of
its metrics. It has no other input: no clock, no chance but the seed's. `VERSION` of its module, if there is one, is
part of the name of every trial, so that a changed simulator never mixes with old results. How one is run within
limits is `run`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from bucketmq.errors import Invalid, NotFound

BUILT_IN = {
    "mmc": "bucketmq.apps.research.simulators.queueing:simulate",
    "sir": "bucketmq.apps.research.simulators.epidemic:simulate",
    "bucketmq-worker": "bucketmq.testing.simulation.tuning:simulate",
}
"""Name -> module:function. A table, so that nothing is imported before it is run."""

Simulate = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


def where_of(name: str) -> str:
    """`module:function` of a simulator. `Invalid` if the name can be none."""
    where = BUILT_IN.get(name, name)
    module, colon, function = where.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        raise Invalid(
            f"there is no simulator {name!r}; there are {', '.join(BUILT_IN)}, or write your own as module:function"
        )
    return where


def load(name: str) -> tuple[Simulate, str]:
    """The function, and its version ("" if its module has none). `NotFound` says what is missing."""
    where = where_of(name)
    module, _, path = where.partition(":")
    try:
        imported = import_module(module)
        found: Any = imported
        for part in path.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise NotFound(
            f"the simulator {name!r} cannot be imported: no module {error.name!r}; install it, or add its folder to "
            "PYTHONPATH"
        ) from None
    except AttributeError as error:
        raise NotFound(f"the simulator {name!r} is not there: {error}") from None
    if not callable(found):
        raise Invalid(f"the simulator {name!r} is not a function, but {type(found).__name__}")
    return found, str(getattr(imported, "VERSION", ""))
