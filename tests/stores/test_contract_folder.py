"""The folder store keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketmq.bucket.folder import FolderStore
from bucketmq.testing.contract import StoreContract


class TestFolderStore(StoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/store"

    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        return FolderStore(tmp_path / "store")
