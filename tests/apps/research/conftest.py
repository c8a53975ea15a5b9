"""A bucket in memory, and workers that find the simulators of these tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from cli.conftest import cli, environment, folder, url

import bucketmq
from bucketmq.apps.research.pool import Slot
from bucketmq.client import Bucket

from .simulators_here import FOLDER


@pytest.fixture(autouse=True)
def simulators_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH", "")))))
    monkeypatch.setattr(sys, "path", [*sys.path, FOLDER])


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with bucketmq.connect("memory://") as made:
        yield made


@pytest.fixture
def slot() -> Iterator[Slot]:
    made = Slot()
    yield made
    made.close()


__all__ = ["cli", "environment", "folder", "url"]
