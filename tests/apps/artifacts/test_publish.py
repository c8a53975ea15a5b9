"""Publishing: once, whole, and however often it is interrupted; and what it costs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from procedures.objects.world import DEATHS, FAULTS, Killed, World, told

from apps.artifacts.making import ADA, BEN, FILES, MANIFEST_KEY, Shop, counted
from bucketmq.apps.artifacts import publish
from bucketmq.errors import BucketMQError, Invalid, Unavailable


def test_the_same_again_is_no_error_and_other_files_are(shops: Shop) -> None:
    first = shops.publish()
    assert first.new
    again = shops.publish()
    assert (again.new, again.digest) == (False, first.digest)
    with pytest.raises(Invalid, match="versions never change"):
        shops.publish(files={**FILES, "README": b"changed"})
    with pytest.raises(Invalid, match="versions never change"):
        shops.publish(files={"README": FILES["README"]})
    assert shops.verify().digest == first.digest


def test_without_a_key_nothing_is_written(shop: Shop) -> None:
    with pytest.raises(Invalid, match="keygen"):
        shop.publish(by=())
    assert shop.world.objects() == {}


def test_files_of_another_unfinished_publish_are_neither_used_nor_overwritten(shop: Shop) -> None:
    shop.world.write("builds/shop/1.0/README", b"other bytes")
    with pytest.raises(Invalid, match="other bytes"):
        shop.publish()
    shop.world.delete("builds/shop/1.0/README")
    shop.world.write("builds/shop/1.0/old.txt", b"left behind")
    with pytest.raises(Invalid, match=r"old\.txt"):
        shop.publish(files={"README": b"x"})
    assert shop.world.objects()["builds/shop/1.0/old.txt"] == b"left behind"


def test_one_answer_gone_wrong_anywhere_leaves_it_whole_or_invisible(tmp_path: Path) -> None:
    count = _requests(tmp_path)
    for at in range(count):
        for fault in FAULTS:
            shop = Shop(World("copying"), tmp_path / f"{at}")
            bucket = shop.connect(at=at, fault=fault)
            try:
                shop.publish(bucket=bucket)
            except Unavailable:
                pass
            assert bucket.hands.hit
            assert shop.publish().digest == shop.verify().digest, f"{fault} at {at}"
            shop.world.close()


def test_a_publisher_that_dies_anywhere_leaves_it_whole_or_invisible_and_is_completed(tmp_path: Path) -> None:
    count = _requests(tmp_path)
    for at in range(count):
        for fault in DEATHS:
            shop = Shop(World("copying"), tmp_path / f"{at}")
            with pytest.raises(Killed):
                shop.publish(bucket=shop.connect(at=at, fault=fault))
            if MANIFEST_KEY in shop.world.objects():
                assert shop.verify(), f"{fault} at {at}"
            published = shop.publish()
            assert shop.verify().digest == published.digest, f"{fault} at {at}"
            shop.world.advance(3600)
            bucket = shop.connect()
            bucket.recover()
            assert {each.key for each in told(bucket)} == set(shop.world.objects())
            shop.world.close()


def _requests(folder: Path) -> int:
    shop = Shop(World("copying"), folder / "count")
    bucket = shop.connect()
    shop.publish(bucket=bucket)
    count: int = bucket.hands.count
    shop.world.close()
    return count


def test_of_many_publishers_of_one_version_one_makes_it(tmp_path: Path) -> None:
    shop = Shop(World("copying"), tmp_path)
    ends: list[publish.Published | BucketMQError] = []

    def go(number: int) -> None:
        try:
            ends.append(shop.publish(files={"a": b"same", "n": b"%d" % (number % 2)}, by=((ADA, BEN)[number % 2],)))
        except BucketMQError as error:
            ends.append(error)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    made = [each for each in ends if isinstance(each, publish.Published)]
    assert sum(each.new for each in made) <= 1
    assert len({each.digest for each in made}) <= 1
    assert all(isinstance(each, Invalid) for each in ends if not isinstance(each, publish.Published))
    if made:
        assert shop.verify().digest == made[0].digest
    shop.world.close()


def test_a_file_costs_one_put_to_publish_and_one_get_to_verify(tmp_path: Path) -> None:
    costs = []
    for number in (10, 60):
        shop = Shop(World("copying"), tmp_path / str(number))
        shop.publish("0.1", {"warm": b"up"})
        bucket = shop.connect()
        shop.publish("0.2", {"warm": b"up"}, bucket=bucket)
        counts = counted(bucket)
        shop.publish(files={f"f{n}": b"%d" % n for n in range(number)}, bucket=bucket)
        published = dict(counts)
        counts.clear()
        shop.verify(bucket=bucket)
        costs.append((published, dict(counts)))
        shop.world.close()
    (less, verified_less), (more, verified_more) = costs
    assert {kind: more.get(kind, 0) - less[kind] for kind in less} == dict.fromkeys(less, 0) | {"Create": 50}
    assert less["Create"] == 10 + 2 + 3  # files, note and report; note, manifest and report
    assert less["List"] == 1
    assert verified_less == {"List": 1, "Get": 11}
    assert verified_more == {"List": 1, "Get": 61}
