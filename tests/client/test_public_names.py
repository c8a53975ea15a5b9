"""What is public is what `__all__` says, and both facades offer the same."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types

import pytest

import bucketmq
from bucketmq import aio, client


def public(module: types.ModuleType) -> set[str]:
    """The names without an underscore that are not submodules or things imported for the module's own use."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "bucketmq").startswith("bucketmq")
    }


def test_all_is_what_can_be_imported() -> None:
    assert sorted(bucketmq.__all__) == list(bucketmq.__all__)
    for name in bucketmq.__all__:
        assert getattr(bucketmq, name) is not None
    assert set(bucketmq.__all__) == public(bucketmq) | {"aio"}
    assert set(bucketmq.__all__) <= set(dir(bucketmq))


def test_a_name_that_is_not_there_is_an_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match="'bucketmq' has no attribute 'conect'"):
        bucketmq.conect  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_none_of_its_parts_until_they_are_used() -> None:
    code = (
        "import sys, bucketmq; before = {name for name in sys.modules if name.startswith('bucketmq.')}; "
        "parts = [bucketmq.errors, bucketmq.client, bucketmq.aio, bucketmq.queue.settings]; "
        "print(before, bucketmq.connect is bucketmq.client.connect, bucketmq.Invalid is bucketmq.errors.Invalid)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set() True True"


def test_a_star_import_gives_all_of_it() -> None:
    names: dict[str, object] = {}
    exec("from bucketmq import *", names)
    assert set(bucketmq.__all__) <= set(names)


@pytest.mark.parametrize("name", ["Bucket", "Subscription", "Queue", "DeadLetters", "Delivery", "Rules"])
def test_both_facades_have_the_same_methods_with_the_same_parameters(name: str) -> None:
    blocking, awaited = getattr(client, name), getattr(aio, name)

    def methods(kind: type) -> dict[str, object]:
        return {
            method: (list(inspect.signature(value).parameters.items()) if callable(value) else "property")
            for method, value in inspect.getmembers(kind)
            if not method.startswith("_")
        }

    assert {key: str(value) for key, value in methods(blocking).items()} == {
        key: str(value) for key, value in methods(awaited).items()
    }


@pytest.mark.parametrize("name", ["Bucket", "Subscription", "Queue", "DeadLetters", "Delivery", "Rules"])
def test_every_public_method_says_what_it_does(name: str) -> None:
    for facade in (client, aio):
        for method, value in vars(getattr(facade, name)).items():
            if not method.startswith("_") and inspect.isfunction(value):
                assert value.__doc__, f"{facade.__name__}.{name}.{method}"


def test_importing_is_quick_and_touches_nothing() -> None:
    code = (
        "import sys, threading, bucketmq; "
        "heavy = set(sys.modules) & {'obstore', 'boto3', 'typer', 'rich', 'hypothesis', 'pytest'}; "
        "print(heavy, threading.active_count())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set() 1"
