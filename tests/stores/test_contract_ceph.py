"""The object store adapter keeps the contract on Ceph's gateway, a second real S3 server, where it is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bucketmq import connect
from bucketmq.bucket.port import Attributes, Store
from bucketmq.bucket.urls import open_store
from bucketmq.errors import Unsupported
from bucketmq.testing import ceph
from bucketmq.testing.contract import ATTRIBUTES, StoreContract

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def ceph_url() -> Iterator[str]:
    try:
        with ceph.radosgw() as url:
            yield url
    except Unsupported as error:  # also where CI is set: it is a package of the system, not of this project
        pytest.skip(str(error))


class TestCeph(StoreContract):
    @pytest.fixture
    def url(self, ceph_url: str) -> str:
        return ceph_url

    @pytest.fixture
    def store(self, ceph_url: str) -> Store:
        return open_store(ceph_url)[0]

    @pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=ATTRIBUTES)
    def test_attributes_are_kept_as_they_were_given(self, store: Store, base: str, attributes: Attributes) -> None:
        if any("_" in name for name in attributes.metadata):
            pytest.xfail("Ceph turns '_' in metadata names into '-'")
        super().test_attributes_are_kept_as_they_were_given(store, base, attributes)


def test_a_queue_works_on_ceph(ceph_url: str) -> None:
    with connect(ceph_url) as bucket:
        queue = bucket.queue("jobs")
        queue.send_many(range(10))
        assert sorted(delivery.body for delivery in queue.receive(10)) == list(range(10))


def test_ceph_16_is_refused_without_its_option(ceph_url: str) -> None:
    """It takes a quoted hash for another one, so that no replace would ever succeed."""
    with pytest.raises(Unsupported):
        connect(ceph_url.replace("&unquoted_etags=true", ""))
