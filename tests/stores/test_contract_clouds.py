"""The object store adapter keeps the contract in the dialects of Google and Azure; clouds.py says what that shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bucketmq.bucket.port import Store
from bucketmq.bucket.urls import open_store
from bucketmq.testing.contract import StoreContract, created, read

from . import clouds


@pytest.fixture(scope="module")
def google() -> Iterator[str]:
    with clouds.cloud(clouds.Google) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    with clouds.cloud(clouds.Azure) as endpoint:
        yield endpoint


class TestGoogle(StoreContract):
    @pytest.fixture
    def url(self, google: str) -> str:
        return f"gs://bucket?endpoint={google}&anonymous=true"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)[0]

    def test_listings_are_in_order_and_versions_are_generations(self, store: Store) -> None:
        assert store.lists_in_order
        version = created(store, "generation", b"body")
        assert read(store, "generation").version == version
        assert int(version) > 0


class TestAzure(StoreContract):
    @pytest.fixture
    def url(self, azure: str) -> str:
        return f"az://bucket?endpoint={azure}&account=account&account_key=a2V5"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)[0]

    def test_listings_may_be_in_any_order(self, store: Store) -> None:
        assert not store.lists_in_order
