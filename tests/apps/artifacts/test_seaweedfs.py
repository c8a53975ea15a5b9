"""Artifacts on a real object store, and a promoter that is really killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from server.running import until

import bucketmq
from apps.artifacts.making import ADA, BEN, TRUST, sources, trust_bytes
from bucketmq.apps.artifacts import environments, promotion, publish, verify
from bucketmq.apps.artifacts.deploy import Deployer, DeployPlan
from bucketmq.apps.artifacts.promotion import Promoter
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.client import Bucket
from bucketmq.errors import BucketMQError, Contended
from bucketmq.testing import servers

BY = Promoter((ADA,))


@pytest.fixture
def url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)


def publish_files(bucket: Bucket, folder: Path, version: str, files: dict[str, bytes]) -> None:
    found = sources(folder / version, files)
    bucket.run(publish.publish(bucket.api, "shop", version, found, (ADA,)))


@pytest.mark.slow
def test_the_whole_way_on_an_object_store(url: str, tmp_path: Path) -> None:
    with bucketmq.connect(url) as bucket:
        api = bucket.api
        for version in ("1.0", "1.1"):
            publish_files(bucket, tmp_path, version, {f"f{n}": f"{version} {n}".encode() for n in range(12)})
        assert bucket.run(verify.verify(api, TRUST, "shop", "1.0")).signed_by == ("ada",)
        bucket.run(promotion.promote(api, TRUST, "shop", "1.0", "staging", promoter=BY))
        plan = DeployPlan(environment="staging", agent="a1", folder=tmp_path / "machine")
        deployer = Deployer(api, bucket.run, plan, pin=trust_bytes(TRUST), signing=ADA)
        (report,) = deployer.look_at_all()
        assert (report.state, report.version) == ("healthy", "1.0")
        bucket.run(promotion.approve(api, TRUST, "shop", "1.0", "production", signing=BEN))
        bucket.run(promotion.promote(api, TRUST, "shop", "1.0", "production", promoter=BY))

        ends: list[object] = []
        ready = threading.Barrier(4)

        def race() -> None:
            with bucketmq.connect(url, probe=False) as own:
                opened = own.run(own.api.open())
                seen = own.run(environments.read_pointer(opened, TRUST, "staging", "shop"))
                assert seen is not None
                ready.wait()
                change = promotion._Change(
                    TRUST.environment("staging"),
                    own.run(verify.read_manifest(opened, "builds/shop/1.1/", "shop", "1.1")),
                    "promoted",
                    BY,
                )
                try:
                    own.run(promotion._release(opened, TRUST, "staging", change.opened))
                    ends.append(own.run(promotion._point(opened, TRUST, seen, change)))
                except BucketMQError as error:
                    ends.append(error)

        threads = [threading.Thread(target=race) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(type(each).__name__ for each in ends) == ["Contended"] * 3 + ["Promoted"]
        assert all("ada changed shop" in str(each) for each in ends if isinstance(each, Contended))
        (report,) = deployer.look_at_all()
        assert (report.state, report.version, report.counter) == ("healthy", "1.1", 2)
        bucket.put("released/staging/shop/1.0/f3", b"another")
        with pytest.raises(Untrusted, match="f3"):
            bucket.run(promotion.rollback(api, TRUST, "shop", "staging", promoter=BY))


PROMOTE = """
import sys
from pathlib import Path
import bucketmq
from apps.artifacts.making import ADA, TRUST
from bucketmq.apps.artifacts import promotion

with bucketmq.connect(sys.argv[1], probe=False) as bucket:
    by = promotion.Promoter((ADA,))
    bucket.run(promotion.promote(bucket.api, TRUST, "shop", "1.0", "staging", promoter=by))
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 30, 99])
def test_half_a_promotion_under_sigkill_is_invisible_and_then_completed(tmp_path: Path, after: int) -> None:
    folder = tmp_path / "bucket"
    files = {f"f{n}": bytes([n]) * 5_000 for n in range(100)}
    with bucketmq.connect(str(folder)) as bucket:
        publish_files(bucket, tmp_path, "1.0", files)
        path = ":".join((str(Path(__file__).parents[2]), *sys.path))
        command = [sys.executable, "-c", PROMOTE, str(folder)]
        process = subprocess.Popen(command, env={"PYTHONPATH": path}, stderr=subprocess.PIPE)
        place = folder / "released" / "staging" / "shop" / "1.0"
        try:
            until(lambda: process.poll() is not None or (place.exists() and len(list(place.iterdir())) > after))
        finally:
            process.kill()
            _, errors = process.communicate()
        assert process.returncode in (0, -9), errors
        opened = bucket.run(bucket.api.open())
        seen = bucket.run(environments.read_pointer(opened, TRUST, "staging", "shop"))
        if seen is not None:  # it was faster than we
            assert bucket.run(verify.verify(bucket.api, TRUST, "shop", "1.0", environment="staging"))
        done = bucket.run(promotion.promote(bucket.api, TRUST, "shop", "1.0", "staging", promoter=BY))
        assert done.pointer.current.counter == 1
        found = bucket.run(verify.verify(bucket.api, TRUST, "shop", "1.0", environment="staging"))
        assert len(found.manifest.files) == 100
