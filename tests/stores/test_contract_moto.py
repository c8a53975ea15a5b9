"""The object store adapter keeps the contract on moto, which answers as AWS does."""

from __future__ import annotations

import pytest

from bucketmq.bucket.port import Store
from bucketmq.bucket.urls import open_store
from bucketmq.testing.contract import StoreContract


class TestMoto(StoreContract):
    @pytest.fixture
    def url(self, moto_url: str) -> str:
        return moto_url

    @pytest.fixture
    def store(self, moto_url: str) -> Store:
        return open_store(moto_url)[0]

    @pytest.fixture
    def races(self) -> None:
        # It checks, then writes, and answers 500 to a reader of what is being overwritten.
        pytest.skip("moto keeps no lock, so a race there proves nothing; SeaweedFS runs them")
