"""Promotion and rollback: gates that fail closed, races with one winner, halves that nobody sees, and what it costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from procedures.objects.world import DEATHS, FAULTS, Killed, World

from apps.artifacts.making import (
    ADA,
    BEN,
    CYD,
    FILES,
    MALLORY,
    TRUST,
    Shop,
    counted,
    make_trust,
    resealed,
    trusted,
)
from bucketmq.apps.artifacts import promotion
from bucketmq.apps.artifacts.keys import Environment
from bucketmq.apps.artifacts.promotion import Promoter
from bucketmq.apps.artifacts.refusals import Gated, Untrusted
from bucketmq.errors import BucketMQError, Contended, Denied, NotFound, Unavailable
from bucketmq.procedures.objects import listing
from bucketmq.procedures.objects.put import Put

POINTER = "env/staging/shop.json"


def test_a_version_goes_through_the_environments_and_back(shops: Shop) -> None:
    first, second = shops.publish("1.0"), shops.publish("1.1", {**FILES, "README": b"news"})
    shops.in_production("1.0")
    shops.in_production("1.1")
    pointer = shops.pointer("production")
    assert (pointer.current.version, pointer.current.digest, pointer.current.counter) == ("1.1", second.digest, 2)
    assert pointer.previous is not None and pointer.previous.version == "1.0"
    assert shops.verify("1.1", environment="production").digest == second.digest
    back = shops.rollback("production").pointer
    assert (back.current.version, back.current.digest, back.current.counter) == ("1.0", first.digest, 3)
    assert (back.current.did, back.current.by, back.current.why) == ("rolled back", "ada", "it was bad")
    assert [(each.version, each.did) for each in back.history] == [
        ("1.0", "rolled back"),
        ("1.1", "promoted"),
        ("1.0", "promoted"),
    ]
    assert shops.rollback("production", to="1.1").pointer.current.counter == 4
    assert shops.world.objects("released/production/shop/1.1/app/")["released/production/shop/1.1/app/main.py"]


def test_what_is_current_already_is_left_as_it_is(shop: Shop) -> None:
    shop.publish()
    assert shop.promote("1.0").new
    before = shop.world.objects()
    again = shop.promote("1.0")
    assert (again.new, again.pointer.current.counter) == (False, 1)
    assert shop.world.objects() == before


def nobody_reported(shop: Shop) -> None:
    shop.promote("1.0")


def sick(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report(state="failed")
    shop.approve("1.0")


def one_sick_of_two(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()
    shop.report(agent="a2", state="failed")
    shop.approve("1.0")


def reported_before_it_was_promoted_again(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report(counter=0)
    shop.approve("1.0")


def another_is_current(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()
    shop.approve("1.0")
    shop.publish("1.1", {"a": b"1"})
    shop.promote("1.1")


def reported_by_a_stranger(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report(by=MALLORY)
    shop.approve("1.0")


def report_is_garbage(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()
    shop.world.write("deployed/staging/shop/a1.json", b"healthy, I promise")
    shop.approve("1.0")


def report_of_another_agent_copied(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report(agent="a2", state="failed")
    shop.report()
    objects = shop.world.objects()
    shop.world.write("deployed/staging/shop/a2.json", objects["deployed/staging/shop/a1.json"])
    shop.world.delete("deployed/staging/shop/a1.json")
    shop.approve("1.0")


def nobody_approved(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()


def the_promoter_approved(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()
    shop.approve("1.0", by=ADA)


def another_version_was_approved(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()
    shop.publish("1.1", {"a": b"1"})
    shop.approve("1.1")
    (approval,) = shop.world.objects("approvals/").items()
    shop.world.write(approval[0].replace("/1.1/", "/1.0/"), approval[1])


def approved_for_another_environment(shop: Shop) -> None:
    shop.promote("1.0")
    shop.report()
    shop.approve("1.0", "staging")
    (approval,) = shop.world.objects("approvals/").items()
    shop.world.write(approval[0].replace("/staging/", "/production/"), approval[1])


def a_stranger_approved(shop: Shop) -> None:
    the_promoter_approved(shop)
    (approval,) = shop.world.objects("approvals/").items()
    shop.world.write(approval[0] + ".json", resealed(approval[1], lambda _: None, MALLORY))


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda _: None, "staging has no shop"),
        (nobody_reported, "0 of the 1 agents"),
        (sick, "a1 in staging reports failed"),
        (one_sick_of_two, "a2 in staging reports failed"),
        (reported_before_it_was_promoted_again, "0 of the 1 agents"),
        (another_is_current, r"staging has shop 1\.1"),
        (reported_by_a_stranger, "0 of the 1 agents"),
        (report_is_garbage, "0 of the 1 agents"),
        (report_of_another_agent_copied, "0 of the 1 agents"),
        (nobody_approved, "nobody has"),
        (the_promoter_approved, "nobody has"),
        (another_version_was_approved, "nobody has"),
        (approved_for_another_environment, "nobody has"),
        (a_stranger_approved, "nobody has"),
    ],
)
def test_a_gate_stays_shut(shop: Shop, prepare: Callable[[Shop], None], said: str) -> None:
    shop.publish()
    prepare(shop)
    with pytest.raises(Gated, match=said):
        shop.promote("1.0", "production")
    assert not shop.world.objects("env/production") and not shop.world.objects("released/production")


def test_a_gate_that_loses_its_wiring_fails_closed(shop: Shop) -> None:
    shop.publish()
    shop.promote("1.0")
    shop.report()
    shop.approve("1.0")
    pointer = shop.world.objects()[POINTER]
    for broken in (b"", b"{}", resealed(pointer, lambda _: None, MALLORY)):
        shop.world.write(POINTER, broken)
        with pytest.raises(Untrusted):
            shop.promote("1.0", "production")
    shop.world.write(POINTER, pointer)
    with pytest.raises(NotFound, match="no environment 'production'"):
        shop.promote("1.0", "production", trust=make_trust(environments=(Environment("staging"),)))
    no_reports = make_trust(trusted(ADA, "builds", "environments", "trust"), trusted(BEN, "approves"))
    with pytest.raises(Gated, match="0 of the 1 agents"):
        shop.promote("1.0", "production", trust=no_reports)
    shop.world.advance(40 * 86400)
    with pytest.raises(Untrusted, match="refresh"):
        shop.promote("1.0", "production")
    assert not shop.world.objects("env/production")


def test_a_key_without_the_role_moves_no_pointer(shop: Shop) -> None:
    shop.publish()
    builder = make_trust(trusted(ADA, "builds", "trust"), trusted(BEN))
    with pytest.raises(Denied, match="may not sign this"):
        shop.promote("1.0", trust=builder)
    with pytest.raises(Denied, match="not trusted"):
        shop.promote("1.0", by=MALLORY)
    shop.promote("1.0", trust=builder, by=BEN)
    with pytest.raises(Denied, match="may not sign this"):
        shop.approve("1.0", by=ADA, trust=builder)


def test_a_pointer_of_another_environment_or_artifact_is_not_taken_for_this(shop: Shop) -> None:
    shop.publish()
    shop.in_production("1.0")
    shop.world.write("env/production/shop.json", shop.world.objects()[POINTER])
    with pytest.raises(Untrusted, match="somebody copied it"):
        shop.pointer("production")


def test_what_was_tampered_with_is_not_promoted(shop: Shop) -> None:
    shop.publish()
    shop.world.write("builds/shop/1.0/data.bin", bytes(len(FILES["data.bin"])))
    with pytest.raises(Untrusted, match=r"data\.bin"):
        shop.promote("1.0")
    assert not shop.world.objects("env/")


def test_a_copy_that_was_swapped_before_the_pointer_moved_is_found(shop: Shop) -> None:
    shop.publish()
    bucket = shop.connect()

    def swap(_number: int, request: Any) -> None:
        if type(request).__name__ == "Create" and request.key.endswith("released/staging/shop/1.0/data.bin"):
            bucket.hands.meddle = lambda *_: None
            shop.world.write("released/staging/shop/1.0/data.bin", bytes(len(FILES["data.bin"])))

    bucket.hands.meddle = swap
    with pytest.raises(Untrusted, match="not what was signed"):
        shop.promote("1.0", bucket=bucket)
    assert not shop.world.objects("env/")


def test_a_rollback_verifies_what_it_goes_back_to(shop: Shop) -> None:
    shop.publish("1.0")
    shop.publish("1.1", {"a": b"1"})
    shop.promote("1.0")
    with pytest.raises(NotFound, match="no earlier state"):
        shop.rollback()
    shop.promote("1.1")
    with pytest.raises(NotFound, match=r"never at 3\.0"):
        shop.rollback(to="3.0")
    shop.world.write("released/staging/shop/1.0/README", b"Acme sh0p")
    with pytest.raises(Untrusted, match="README"):
        shop.rollback()
    assert shop.pointer().current.version == "1.1"


def test_a_refresh_gives_the_pointer_a_new_end_and_a_higher_counter(shop: Shop) -> None:
    shop.publish()
    old = shop.promote("1.0").pointer
    shop.world.advance(40 * 86400)
    bucket = shop.connect()
    work = promotion.refresh(bucket.api, TRUST, "shop", "staging", promoter=Promoter((ADA,)))
    new = bucket.run(work).pointer
    assert new.expires_at > old.expires_at
    assert (new.current.counter, new.current.digest) == (2, old.current.digest)
    assert new.previous is None


def test_a_lost_pointer_goes_on_above_what_agents_have_seen(shop: Shop) -> None:
    shop.publish()
    shop.promote("1.0")
    shop.report(counter=41)
    shop.world.delete(POINTER)
    assert shop.promote("1.0").pointer.current.counter == 42


@pytest.mark.parametrize("change", [Shop.rollback, lambda shop: shop.promote("1.2")])
def test_after_an_old_pointer_was_put_back_the_next_one_is_above_what_agents_have_seen(
    shop: Shop, change: Callable[[Shop], promotion.Promoted]
) -> None:
    for number in range(3):
        shop.publish(f"1.{number}", {"a": b"%d" % number})
    shop.promote("1.0")
    shop.promote("1.1")
    old = shop.world.objects()[POINTER]
    for version in ("1.0", "1.1", "1.0"):
        shop.promote(version)
    shop.report()
    shop.world.write(POINTER, old)
    assert change(shop).pointer.current.counter == 6


@pytest.mark.parametrize("kind", ["copying", "folder"])
@pytest.mark.parametrize("same", [True, False])
def test_of_ten_racing_promoters_exactly_one_wins_and_the_rest_are_told(kind: str, same: bool, tmp_path: Path) -> None:
    shop = Shop(World(kind, tmp_path / "bucket"), tmp_path / "files")
    versions = ["1.0"] if same else [f"1.{n}" for n in range(10)]
    for version in versions:
        shop.publish(version, {"a": version.encode()})
    shop.publish("0.1", {"a": b"0"})
    shop.promote("0.1")
    all_have_looked = threading.Barrier(10)
    ends: list[promotion.Promoted | BucketMQError] = []

    def go(version: str) -> None:
        bucket = shop.connect()

        def look(_number: int, request: Any) -> None:
            if request.key.endswith("manifest.json"):  # the pointer was read by now
                bucket.hands.meddle = lambda *_: None
                all_have_looked.wait()

        bucket.hands.meddle = look
        try:
            ends.append(shop.promote(version, bucket=bucket))
        except BucketMQError as error:
            ends.append(error)

    threads = [threading.Thread(target=go, args=((versions * 10)[n],)) for n in range(10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    won = [each for each in ends if isinstance(each, promotion.Promoted)]
    lost = [each for each in ends if isinstance(each, BucketMQError)]
    assert (len(won), len(lost)) == (1, 9)
    assert all(isinstance(each, Contended) and "ada changed shop in staging meanwhile" in str(each) for each in lost)
    pointer = shop.pointer()
    assert pointer == won[0].pointer
    assert (pointer.current.counter, len(pointer.history)) == (2, 2)
    assert shop.verify(pointer.current.version, environment="staging")
    shop.world.close()


def _prepared(folder: Path, kind: str = "copying") -> Shop:
    shop = Shop(World(kind, folder / "bucket"), folder / "files")
    shop.publish("0.9", {"a": b"old"})
    shop.publish("1.0", {"a": b"new", "b/c": b"2"})
    shop.promote("0.9")
    return shop


def _requests(folder: Path, kind: str) -> int:
    shop = _prepared(folder, kind)
    bucket = shop.connect()
    shop.promote("1.0", bucket=bucket)
    count: int = bucket.hands.count
    shop.world.close()
    return count


@pytest.mark.parametrize("kind", ["copying", "cloning"])
def test_a_promoter_that_dies_anywhere_has_promoted_or_not_and_can_be_repeated(kind: str, tmp_path: Path) -> None:
    for at in range(_requests(tmp_path / "count", kind)):
        for fault in DEATHS:
            shop = _prepared(tmp_path / f"{at}{fault}", kind)
            with pytest.raises(Killed):
                shop.promote("1.0", bucket=shop.connect(at=at, fault=fault))
            seen = shop.pointer().current
            assert seen.version in ("0.9", "1.0")
            assert shop.verify(seen.version, environment="staging"), f"{fault} at {at}"
            after = shop.promote("1.0").pointer
            assert (after.current.version, after.current.counter) == ("1.0", 2), f"{fault} at {at}"
            assert shop.verify("1.0", environment="staging")
            shop.world.close()


@pytest.mark.parametrize("kind", ["copying", "cloning"])
def test_one_answer_gone_wrong_anywhere_promotes_once_or_not_at_all(kind: str, tmp_path: Path) -> None:
    for at in range(_requests(tmp_path / "count", kind)):
        for fault in FAULTS:
            shop = _prepared(tmp_path / f"{at}{fault}", kind)
            bucket = shop.connect(at=at, fault=fault)
            try:
                done = shop.promote("1.0", bucket=bucket).new
            except (Unavailable, Contended):
                done = False
            assert bucket.hands.hit
            pointer = shop.pointer()
            assert not done or pointer.current.version == "1.0", f"{fault} at {at}"
            assert shop.promote("1.0").pointer.current.counter == 2, f"{fault} at {at}"
            assert shop.verify("1.0", environment="staging")
            shop.world.close()


@pytest.mark.parametrize(
    ("kind", "each"), [("cloning", {"Look": 50, "Copy": 50, "Get": 50}), ("copying", {"Create": 50, "Get": 100})]
)
def test_a_file_costs_a_copy_and_a_get_to_promote_and_a_get_to_roll_back(
    kind: str, each: dict[str, int], tmp_path: Path
) -> None:
    costs, back = [], []
    for number in (10, 60):
        shop = Shop(World(kind), tmp_path / str(number))
        shop.publish("0.9", {"a": b"old"})
        shop.publish("1.0", {f"f{n}": b"%d" % n for n in range(number)})
        bucket = shop.connect()
        shop.promote("0.9", bucket=bucket)
        counts = counted(bucket)
        shop.promote("1.0", bucket=bucket)
        costs.append(dict(counts))
        shop.promote("0.9", bucket=bucket)
        counts.clear()
        bucket.run(promotion.rollback(bucket.api, TRUST, "shop", "staging", promoter=Promoter((ADA,))))
        back.append(dict(counts))
        shop.world.close()
    less, more = costs
    grown = {name: more[name] - less.get(name, 0) for name in more}
    assert {name: count for name, count in grown.items() if count} == each
    assert sum(less.values()) - sum(each.values()) // 5 <= 25
    assert {name: back[1][name] - back[0].get(name, 0) for name in back[1]} == dict.fromkeys(back[1], 0) | {"Get": 50}


def test_a_failing_agent_counts_however_many_others_have_reported(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "RANGE_KEYS_LOCAL", 10)  # a store of others gives a thousand at a time
    shop.publish()
    shop.promote("1.0")
    shop.approve("1.0")
    shop.report(agent="a")
    shop.report(agent="z", state="failed")
    bucket = shop.connect()
    bucket.put_many([Put(f"deployed/staging/shop/m{number}.json", b"{}") for number in range(10)])
    with pytest.raises(Gated, match="z in staging reports failed"):
        shop.promote("1.0", "production")


def test_nobody_approves_what_they_promote_with_another_key_of_theirs(shop: Shop) -> None:
    mine = msgspec.structs.replace(trusted(BEN), owner="ada")
    trust = make_trust(trusted(ADA), mine)
    shop.publish()
    shop.promote("1.0", trust=trust)
    shop.report()
    shop.approve("1.0", by=BEN, trust=trust)
    with pytest.raises(Gated, match="besides the person who promotes, and nobody has"):
        shop.promote("1.0", "production", trust=trust)


def test_a_person_with_two_keys_approves_once(shop: Shop) -> None:
    twice = msgspec.structs.replace(trusted(CYD), owner="ben")
    gates = (Environment("staging"), Environment("production", after="staging", approvals=2))
    trust = make_trust(trusted(ADA), trusted(BEN), twice, environments=gates)
    shop.publish()
    shop.promote("1.0", trust=trust)
    shop.report()
    for each in (BEN, CYD):
        shop.approve("1.0", by=each, trust=trust)
    with pytest.raises(Gated, match="2 must approve, besides the person who promotes, and ben has"):
        shop.promote("1.0", "production", trust=trust)


def test_who_promotes_by_a_key_of_the_page_does_not_count_as_approving(shop: Shop) -> None:
    shop.publish()
    shop.promote("1.0")
    shop.report()
    shop.approve("1.0", by=BEN)
    bucket = shop.connect()
    todo = promotion.promote(bucket.api, TRUST, "shop", "1.0", "production", promoter=Promoter((ADA,), by="ben"))
    with pytest.raises(Gated, match="besides the person who promotes, and nobody has"):
        bucket.run(todo)
