"""The object store adapter keeps the contract in the dialects of Google and Azure; clouds.py says what that shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bucketmq.bucket.port import Store
from bucketmq.bucket.urls import open_store
from bucketmq.testing.contract import StoreContract, created, read
from stores import clouds

S3_KEYS = "&access_key_id=AKID&secret_access_key=secret&region=auto"


@pytest.fixture(scope="module")
def google() -> Iterator[str]:
    with clouds.cloud(clouds.Google) as server:
        yield server.endpoint


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    with clouds.cloud(clouds.Azure) as server:
        yield server.endpoint


@pytest.fixture(scope="module")
def tigris() -> Iterator[str]:
    with clouds.cloud(clouds.S3) as server:
        yield server.endpoint


@pytest.fixture(scope="module", params=[clouds.CarelessS3, clouds.PoliteS3])
def gateway(request: pytest.FixtureRequest) -> Iterator[str]:
    with clouds.cloud(request.param) as server:
        yield server.endpoint


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

    def test_listings_may_be_in_any_order_and_no_two_writes_have_one_version(self, store: Store) -> None:
        assert not store.lists_in_order
        assert store.exact_versions


class TestTigris(StoreContract):
    @pytest.fixture
    def url(self, tigris: str) -> str:
        return f"s3://bucket?endpoint={tigris}&tigris=true{S3_KEYS}"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)[0]

    def test_it_renames_and_equal_bytes_have_one_version(self, store: Store, base: str) -> None:
        assert store.renames
        assert not store.exact_versions
        assert created(store, f"{base}/a", b"same") == created(store, f"{base}/b", b"same")


class TestGatewayWithoutConditionalDeletes(StoreContract):
    """`remove` goes by tombstones there, and keeps the contract all the same."""

    @pytest.fixture
    def url(self, gateway: str) -> str:
        return f"s3://bucket?endpoint={gateway}{S3_KEYS}"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)[0]


class TestAzureWithoutAKeyToSignWith(StoreContract):
    """A SAS cannot sign another one: tombstones again, on a store whose versions are no hashes."""

    @pytest.fixture
    def url(self, azure: str) -> str:
        return f"az://bucket?endpoint={azure}&account=account&sas_token=sv%3D2023-11-03%26sig%3Dc2ln"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)[0]
