"""Real servers, one of each for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bucketmq.errors import Unsupported
from bucketmq.testing import servers


@pytest.fixture(scope="session")
def seaweedfs_url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except Unsupported as error:
        servers.skip_or_fail(error)


@pytest.fixture(scope="session")
def azurite_url() -> Iterator[str]:
    try:
        with servers.azurite() as url:
            yield url
    except Unsupported as error:
        servers.skip_or_fail(error)


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    try:
        with servers.moto_server() as url:
            yield url
    except Unsupported as error:
        servers.skip_or_fail(error)
