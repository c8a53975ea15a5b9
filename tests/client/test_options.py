"""Options are written down twice, as types for editors and where they are kept: here the two are held together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq import aio, client
from bucketmq.api.options import PolicyOptions, QueueSettings, RuleOptions, StoreOptions, WorkOptions
from bucketmq.bucket.settings import OPTIONS
from bucketmq.queue.settings import TUNABLE
from bucketmq.rulebook import WEBHOOK_OPTIONS


def test_the_type_of_a_queues_settings_names_those_that_can_be_tuned() -> None:
    assert set(QueueSettings.__annotations__) == TUNABLE


def test_the_type_of_a_stores_options_names_those_of_every_scheme() -> None:
    assert set(StoreOptions.__annotations__) == {name for names in OPTIONS.values() for name in names}


def test_the_types_of_a_rules_options_name_those_of_its_policy_and_of_webhooks() -> None:
    policy = set(bucketmq.Policy.__struct_fields__)
    assert set(PolicyOptions.__annotations__) == policy
    assert set(RuleOptions.__annotations__) == policy | WEBHOOK_OPTIONS


@pytest.mark.parametrize("facade", [client, aio], ids=["blocking", "asyncio"])
def test_the_type_of_a_workers_options_names_the_parameters_of_run(facade: Any) -> None:
    parameters = inspect.signature(facade.Queue.run).parameters
    assert set(WorkOptions.__annotations__) == set(parameters) - {"self", "handler"}


def misspelt(tmp_path: Path) -> dict[str, Callable[[], Any]]:
    bucket = bucketmq.connect("memory://", probe=False)
    return {
        "lease_second": lambda: bucket.queue("jobs", lease_second=1),  # type: ignore[call-arg]
        "timeuot": lambda: bucketmq.connect(f"file://{tmp_path}", timeuot=1),  # type: ignore[call-arg]
        "retry_second": lambda: bucket.rules.add("r", to="queue:q", retry_second=1),  # type: ignore[call-arg]
        "concurency": lambda: bucket.watch("", concurency=1)(print),  # type: ignore[call-arg]
    }


@pytest.mark.parametrize("name", ["lease_second", "timeuot", "retry_second", "concurency"])
def test_a_misspelt_option_is_invalid_at_run_time_and_the_message_names_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=name) as told:
        misspelt(tmp_path)[name]()
    assert "there are" in str(told.value) or "it has" in str(told.value)
