"""Each attack on what lies in the bucket is refused, with a message that says what is wrong."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from apps.artifacts.making import (
    ADA,
    BEN,
    FILES,
    MALLORY,
    MANIFEST_KEY,
    Shop,
    make_trust,
    resealed,
    sources,
    trusted,
)
from bucketmq.apps.artifacts import archives, publish
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.errors import Invalid, NotFound

PLACE = "builds/shop/1.0/"


def test_what_was_published_is_verified(shops: Shop) -> None:
    published = shops.publish()
    found = shops.verify()
    assert (found.digest, found.signed_by) == (published.digest, ("ada",))
    assert {each.path for each in found.manifest.files} == set(FILES)


def swap_a_byte(shop: Shop) -> None:
    shop.world.write(f"{PLACE}data.bin", FILES["data.bin"][:-1] + b"!")


def take_a_file_away(shop: Shop) -> None:
    shop.world.delete(f"{PLACE}README")


def add_a_file(shop: Shop) -> None:
    shop.world.write(f"{PLACE}app/extra.py", b"import os")


def add_a_second_manifest(shop: Shop) -> None:
    shop.world.write(f"{PLACE}app/manifest.json", shop.world.objects()[MANIFEST_KEY])


def put_an_old_manifest(shop: Shop) -> None:
    shop.publish("0.9", {"README": b"old"})
    shop.world.write(MANIFEST_KEY, shop.world.objects()["builds/shop/0.9/manifest.json"])


def sign_with_a_foreign_key(shop: Shop) -> None:
    shop.world.write(MANIFEST_KEY, resealed(shop.world.objects()[MANIFEST_KEY], lambda _: None, MALLORY))


def sign_a_path_without_its_content(shop: Shop) -> None:
    def without_digest(payload: Any) -> None:
        payload["subject"][0]["digest"] = {}

    shop.world.write(MANIFEST_KEY, resealed(shop.world.objects()[MANIFEST_KEY], without_digest, ADA))


def sign_a_weak_digest(shop: Shop) -> None:
    def weak(payload: Any) -> None:
        payload["subject"][0]["digest"] = {"md5": "0" * 32}

    shop.world.write(MANIFEST_KEY, resealed(shop.world.objects()[MANIFEST_KEY], weak, ADA))


def leave_a_subject_out(shop: Shop) -> None:
    def fewer(payload: Any) -> None:
        payload["subject"].pop()

    shop.world.write(MANIFEST_KEY, resealed(shop.world.objects()[MANIFEST_KEY], fewer, ADA))


def lead_out_of_the_folder(shop: Shop) -> None:
    def outside(payload: Any) -> None:
        payload["subject"][0]["name"] = "../../etc/passwd"

    shop.world.write(MANIFEST_KEY, resealed(shop.world.objects()[MANIFEST_KEY], outside, ADA))


def change_what_was_signed(shop: Shop) -> None:
    document = msgspec.json.decode(shop.world.objects()[MANIFEST_KEY])
    forged = resealed(shop.world.objects()[MANIFEST_KEY], lambda payload: payload["subject"].pop(), MALLORY)
    document["envelope"]["payload"] = msgspec.json.decode(forged)["envelope"]["payload"]
    shop.world.write(MANIFEST_KEY, msgspec.json.encode(document))


def take_the_signatures_off(shop: Shop) -> None:
    document = msgspec.json.decode(shop.world.objects()[MANIFEST_KEY])
    document["envelope"]["signatures"] = []
    shop.world.write(MANIFEST_KEY, msgspec.json.encode(document))


def break_the_manifest(shop: Shop) -> None:
    shop.world.write(MANIFEST_KEY, b"\x00garbage")


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (swap_a_byte, "'data.bin' has other bytes"),
        (take_a_file_away, "'README' is missing"),
        (add_a_file, "'app/extra.py' does not belong"),
        (add_a_second_manifest, "'app/manifest.json' does not belong"),
        (put_an_old_manifest, "manifest of shop 0.9"),
        (sign_with_a_foreign_key, "not trusted"),
        (sign_a_path_without_its_content, "but not for its content"),
        (sign_a_weak_digest, "but not for its content"),
        (leave_a_subject_out, "something else than what was signed"),
        (lead_out_of_the_folder, "is not a manifest"),
        (change_what_was_signed, "something else than what was signed"),
        (take_the_signatures_off, "nobody signed it"),
        (break_the_manifest, "cannot be read"),
    ],
)
def test_an_attack_is_refused(shop: Shop, attack: Callable[[Shop], None], said: str) -> None:
    shop.publish()
    assert shop.verify()
    attack(shop)
    with pytest.raises(Untrusted, match=said):
        shop.verify()


def test_a_key_that_was_removed_vouches_for_nothing_any_more(shop: Shop) -> None:
    shop.publish()
    with pytest.raises(Untrusted, match="foreign, or removed"):
        shop.verify(trust=make_trust(trusted(BEN), number=2))


def test_a_second_person_can_sign_where_two_must(shop: Shop) -> None:
    two = make_trust(builds_threshold=2)
    published = shop.publish()
    with pytest.raises(Untrusted, match="1 of the 2"):
        shop.verify(trust=two)
    bucket = shop.connect()
    assert bucket.run(publish.sign(bucket.api, "shop", "1.0", BEN)) is True
    assert bucket.run(publish.sign(bucket.api, "shop", "1.0", BEN)) is False
    found = shop.verify(trust=two)
    assert (found.signed_by, found.digest) == (("ada", "ben"), published.digest)


def test_an_artifact_without_its_manifest_is_not_there(shop: Shop) -> None:
    shop.publish()
    shop.world.delete(MANIFEST_KEY)
    with pytest.raises(NotFound, match="has not finished"):
        shop.verify()


def tar_with(name: str, *, link: str = "", kind: bytes = tarfile.REGTYPE) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        archive.addfile(member)
    return made.getvalue()


def zip_with(name: str, *, mode: int = 0o100644) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, b"x")
    return made.getvalue()


ARCHIVES = [
    ("a.tar.gz", tar_with("../outside")),
    ("a.tgz", tar_with("/etc/passwd")),
    ("a.tar.gz", tar_with("link", link="/etc", kind=tarfile.SYMTYPE)),
    ("a.tar.gz", tar_with("hard", link="other", kind=tarfile.LNKTYPE)),
    ("a.tar.gz", tar_with("device", kind=tarfile.CHRTYPE)),
    ("a.zip", zip_with("../outside")),
    ("a.zip", zip_with("link", mode=0o120777)),
    ("a.zip", b"not an archive"),
    ("a.tar", b"neither"),
]


@pytest.mark.parametrize(("path", "body"), ARCHIVES)
def test_an_archive_that_would_leave_its_folder_is_not_published(shop: Shop, path: str, body: bytes) -> None:
    with pytest.raises(Invalid, match=r"cannot be published"):
        shop.publish(files={path: body})
    assert MANIFEST_KEY not in shop.world.objects()


def test_an_archive_of_plain_files_is_fine() -> None:
    assert archives.problem_of("a.tar.gz", tar_with("./folder/file.txt")) is None
    assert archives.problem_of("a.zip", zip_with("folder/file.txt")) is None
    assert archives.problem_of("notes.txt", b"../x") is None


def test_a_link_among_the_files_is_not_followed(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    sources(folder, {"a": b"1"})
    (folder / "b").symlink_to("/etc/passwd")
    with pytest.raises(Invalid, match="link"):
        publish.sources_of([folder])
