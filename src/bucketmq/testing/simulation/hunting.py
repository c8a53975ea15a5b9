"""How planted bugs are planted and looked for. A mutant is a patch of the production code for the time of a hunt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

Plant = Callable[[], AbstractContextManager[Any]]
"""Makes the context manager that plants a bug."""


class Mutant(msgspec.Struct, frozen=True):
    """One planted bug, and what runs a seed in the weather in which it shows soonest."""

    name: str
    plant: Plant
    run: Callable[[int], Any]


class Hunt(msgspec.Struct, frozen=True):
    """Whether a mutant was seen, by which seed, and as what."""

    mutant: str
    seed: int | None
    problem: str


def hunt(mutant: Mutant, seeds: int, first_seed: int = 0) -> Hunt:
    """Run seeds until one shows the bug."""
    with mutant.plant():
        for seed in range(first_seed, first_seed + seeds):
            try:
                problems = mutant.run(seed).problems
            except Exception as error:  # a bug may well break the run itself
                return Hunt(mutant.name, seed, f"the run broke: {error!r}")
            if problems:
                return Hunt(mutant.name, seed, problems[0])
    return Hunt(mutant.name, None, "not seen")


def swap(owner: Any, name: str, mutated: Any) -> Plant:
    """Replace what a module or a class has under this name."""
    return partial(patch.object, owner, name, mutated)


def everywhere(original: Any, mutated: Any) -> Plant:
    """Replace a function in every module of the package that has it, by whatever way it was imported."""

    def plant() -> AbstractContextManager[Any]:
        found = [
            swap(module, attribute, mutated)
            for name, module in list(sys.modules.items())
            if name.startswith("bucketmq.") and not name.startswith("bucketmq.testing")
            for attribute, value in list(vars(module).items())
            if value is original
        ]
        return both(*found)()

    return plant


def both(*plants: Plant) -> Plant:
    def plant() -> ExitStack:
        stack = ExitStack()
        for each in plants:
            stack.enter_context(each())
        return stack

    return plant
