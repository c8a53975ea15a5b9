"""The object store adapter keeps the contract on Azurite, Microsoft's own emulator of Azure: races included."""

from __future__ import annotations

import pytest

from bucketmq.bucket.port import Store
from bucketmq.bucket.urls import open_store
from bucketmq.testing.contract import StoreContract

pytestmark = pytest.mark.xdist_group("azurite")  # one server for all of them


class TestAzurite(StoreContract):
    @pytest.fixture
    def url(self, azurite_url: str) -> str:
        return azurite_url

    @pytest.fixture(scope="session")
    def store(self, azurite_url: str) -> Store:
        return open_store(azurite_url)[0]
