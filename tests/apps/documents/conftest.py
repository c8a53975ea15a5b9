"""What the tests of documents share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("Stemmer")
pytest.importorskip("pypdfium2")

from cli.conftest import bucket, cli, environment, folder, url

from apps.documents.shelf import Shelf


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    made = Shelf()
    yield made
    made.close()


__all__ = ["bucket", "cli", "environment", "folder", "url"]
