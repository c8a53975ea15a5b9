"""Options that are given by keyword, as types: a misspelt one is an error in the editor and in mypy.

What the values mean is said where they are kept (`queue.settings`, `events.rule`, `bucket.urls.open_store`); they are
checked again at run time, for callers without a type checker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TypedDict

from bucketmq.events.rule import Breaker, Format, Gone, Notice, Stale, Verdict
from bucketmq.queue.settings import Backoff


class QueueSettings(TypedDict, total=False):
    """The settings of a queue. What is not given stays as it is."""

    shards: int
    shards_max: int
    ordered: bool
    lease_seconds: float
    attempts_max: int
    backoff: Backoff | Mapping[str, float]
    dedup_seconds: float
    keep_seconds: float
    expire_seconds: float
    inline_bytes_max: int
    in_flight_max: int
    main: bool


class StoreOptions(TypedDict, total=False):
    """The options of a store. Which a URL may have depends on its scheme."""

    access_key_id: str
    account: str
    account_key: str
    anonymous: bool | str
    ca_file: str | PathLike[str]
    connect_timeout: float | str
    credentials: str | PathLike[str]
    emulator: bool | str
    endpoint: str
    profile: str
    region: str
    sas_token: str
    secret_access_key: str
    session_token: str
    tigris: bool | str
    timeout: float | str
    unquoted_etags: bool | str
    virtual_hosted: bool | str


class WorkOptions(TypedDict, total=False):
    """How a worker runs: the options of `queue.run` and of a decorated handler's `run`."""

    concurrency: int
    prefetch: int | None
    lease_seconds: float | None
    stop_when_empty: bool
    signals: bool


class PolicyOptions(TypedDict, total=False):
    """How a rule or a watcher delivers: the fields of `Policy`."""

    retry_seconds: Sequence[float]
    jitter: float
    breaker: Breaker | Mapping[str, float]
    rate_per_second: float
    concurrency: int
    lease_seconds: float
    ordered: bool
    stale: Stale
    gone: Gone
    hops_max: int
    body_bytes_max: int


class RuleOptions(PolicyOptions, total=False):
    """A policy's options, and those of a webhook."""

    format: Format | Notice
    batch: int
    timeout_seconds: float
    private: bool
    statuses: Mapping[str, Verdict]
