"""The object store adapter keeps the contract on SeaweedFS, a real S3 server."""

from __future__ import annotations

import pytest

from bucketmq.bucket.port import Store
from bucketmq.bucket.urls import open_store
from bucketmq.testing.contract import StoreContract


class TestSeaweedFS(StoreContract):
    @pytest.fixture
    def url(self, seaweedfs_url: str) -> str:
        return seaweedfs_url

    @pytest.fixture
    def store(self, seaweedfs_url: str) -> Store:
        return open_store(seaweedfs_url)[0]

    @pytest.mark.xfail(reason="SeaweedFS sorts directories by name, without the '/'; keys of one level are right")
    def test_keys_of_several_levels_are_in_byte_order(self, store: Store, base: str) -> None:
        super().test_keys_of_several_levels_are_in_byte_order(store, base)
