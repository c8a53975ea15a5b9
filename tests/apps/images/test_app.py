"""The whole application on a bucket in memory: what is made of an image, follows it, and makes one row."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

import msgspec

import bucketmq
from apps.images.drawn import drawing, jpeg, opened_image, photo
from apps.images.running import STAGES, Images
from apps.moderation.drawing import chunk, encoded, png_that_claims, written
from bucketmq.apps.images import alt, policy, text, thumbnails
from bucketmq.apps.images.places import pipeline_of
from bucketmq.outcomes import Done


@pytest.fixture
def images() -> Iterator[Images]:
    with bucketmq.connect("memory://") as bucket:
        yield Images(bucket)


def test_an_image_gets_thumbnails_facts_and_a_row(images: Images) -> None:
    images.put("raw/2026/hills.jpg", jpeg(photo((900, 600))))
    images.run()
    assert images.keys("thumbs/") == [f"thumbs/{size}/raw/2026/hills.jpg.webp" for size in (1600, 256, 800)]
    assert images.keys("facts/") == sorted(f"facts/{stage}/raw/2026/hills.jpg.json" for stage in STAGES)
    thumb = images.bucket.get("thumbs/256/raw/2026/hills.jpg.webp")
    assert thumb.content_type == "image/webp" and opened_image(thumb.body).size == (256, 171)
    row = images.row("raw/2026/hills.jpg")
    assert row["complete"] and row["version"] == images.version("raw/2026/hills.jpg")
    assert {row[f"{stage}_version"] for stage in STAGES} == {row["version"]}
    assert {row[f"{stage}_stage"] for stage in STAGES} == {1}
    assert (row["width"], row["height"], row["format"], row["animated"]) == (900, 600, "jpeg", False)
    assert [(each["size"], each["width"]) for each in row["thumbs"]] == [(256, 256), (800, 800), (1600, 900)]
    assert (row["verdict"], row["kind"], row["alt_source"], row["text"]) == ("fine", "photo", "embedded", "")
    assert row["alt"].startswith("A photo, mainly ") and 0.6 <= row["confidence"] <= 1
    assert row["policy_model"] and row["text_model"] == "rapidocr" and row["alt_model"] == "embedded-1"


def test_nothing_that_is_made_is_read_again(images: Images) -> None:
    """Loops: thumbnails below the watched prefix."""
    images.put("raw/a.jpg", jpeg(photo()))
    images.run()
    before = images.keys("")
    images.run()
    assert images.keys("") == before and not [key for key in before if key.startswith("raw/") and key != "raw/a.jpg"]


def test_a_replaced_photograph_takes_what_was_derived_along(images: Images) -> None:
    images.put("raw/a.jpg", jpeg(photo((300, 200))))
    images.run()
    images.put("raw/a.jpg", encoded(written("Rye bread, fresh at eight")))
    images.run()
    row = images.row("raw/a.jpg")
    assert row["complete"] and row["format"] == "png" and row["text"] == "Rye bread, fresh at eight"
    assert opened_image(images.bucket.get("thumbs/256/raw/a.jpg.webp").body).width == 256
    assert images.bucket.get("thumbs/256/raw/a.jpg.webp").metadata["source-version"] == row["version"]


def test_a_deleted_photograph_takes_everything_along(images: Images) -> None:
    images.put("raw/a.jpg", jpeg(photo()))
    images.put("raw/b.jpg", jpeg(drawing()))
    images.run()
    images.bucket.delete("raw/a.jpg")
    images.run()
    assert [key for key in images.keys("") if "a.jpg" in key] == []
    assert [row["key"] for row in images.rows()] == ["raw/b.jpg"]


def test_a_photograph_that_is_moved_away_takes_everything_along(images: Images) -> None:
    images.put("raw/a.jpg", jpeg(photo()))
    images.run()
    images.bucket.move("raw/a.jpg", "archive/a.jpg")
    images.run()
    assert images.keys("thumbs/") == images.keys("facts/") == [] and images.rows() == []
    images.bucket.move("archive/a.jpg", "raw/again.jpg")
    images.run()
    assert images.row("raw/again.jpg")["complete"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_finishes_late_overwrites_nothing(
    images: Images, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a stage is at the old version, the image is replaced and the new version handled by another process."""
    handle = images.pipelines()[pipeline_of(stage)].watcher(images.bucket)
    images.put("raw/a.jpg", jpeg(photo((300, 200))))
    old = images.event("raw/a.jpg", 1_700_000_000)
    versions = []

    def meanwhile(row: dict[str, Any]) -> str:
        versions.append(row["content_version"])
        if len(versions) == 1:
            images.put("raw/a.jpg", encoded(drawing((200, 300))))
            assert isinstance(handle(images.event("raw/a.jpg", 1_700_000_100)), Done)
            versions.append(images.made())
        return str(row["content_version"])

    module = {"thumbnails": thumbnails, "policy": policy, "text": text, "alt": alt}[stage]
    monkeypatch.setattr(module, "version_of", meanwhile)
    handle(old)
    first, _, after_new = versions
    assert images.made() == after_new and first != images.version("raw/a.jpg")
    (facts,) = (body for key, body in after_new.items() if key == f"facts/{stage}/raw/a.jpg.json")
    assert msgspec.json.decode(facts)["version"] == images.version("raw/a.jpg")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the object is empty"),
        (b"just words", "do not begin like an image that is read"),
        (png_that_claims(787_402, 787_402), "787402 x 787402 pixels; the limits are"),
        (jpeg(photo())[:2000], "the jpeg cannot be decoded"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter_of_each_stage_that_says_why(
    images: Images, data: bytes, why: str
) -> None:
    images.put("raw/bad.jpg", data)
    images.put("raw/good.jpg", jpeg(photo()))
    images.run()
    dead = images.dead()
    assert sorted(stage for stage, _ in dead) == sorted(STAGES)
    assert all(why in reason for _, reason in dead), dead
    assert [row["key"] for row in images.rows()] == ["raw/good.jpg"] and images.row("raw/good.jpg")["complete"]


def test_an_image_that_says_it_has_endless_frames_holds_up_no_row(images: Images) -> None:
    said = encoded(drawing())
    images.put("raw/odd.png", said[:33] + chunk(b"acTL", struct.pack(">II", 0x80000000, 0)) + said[33:])
    images.put("raw/good.jpg", jpeg(photo()))
    images.run()
    assert {"raw/good.jpg", "raw/odd.png"} == {row["key"] for row in images.rows()}


def test_a_key_too_long_for_one_of_its_facts_holds_up_no_row(images: Images) -> None:
    """Its alternative text has a place; what is known of its thumbnails would have a key that is too long."""
    images.put(f"raw/{'x' * 876}.jpg", jpeg(photo()))
    images.put("raw/good.jpg", jpeg(photo()))
    images.run()
    assert images.keys("facts/alt/") and images.row("raw/good.jpg")["complete"]
    long = images.row(f"raw/{'x' * 876}.jpg")
    assert long["alt"] and not long["complete"]


def test_an_object_that_is_too_large_is_a_dead_letter_and_not_read(images: Images) -> None:
    images.settings["bytes_max"] = 1000
    images.put("raw/large.jpg", jpeg(photo()))
    images.run()
    reasons = [reason for _, reason in images.dead()]
    assert len(reasons) == len(STAGES) and all("more than 1,000" in each for each in reasons), reasons


def test_a_version_that_cannot_be_read_leaves_what_was_made_and_the_row_says_so(images: Images) -> None:
    images.put("raw/a.jpg", jpeg(photo()))
    images.run()
    images.put("raw/a.jpg", b"broken")
    images.run()
    images.touch("raw/a.jpg")
    row = images.row("raw/a.jpg")
    assert not row["complete"] and row["version"] != row["policy_version"] and len(images.dead()) == len(STAGES)


def test_running_a_stage_again_tells_it_alone_and_writes_nothing_new(images: Images) -> None:
    for name in ("raw/2025/a.jpg", "raw/2026/a.jpg"):
        images.put(name, jpeg(photo()))
    images.run()
    images.bucket.delete("thumbs/256/raw/2025/a.jpg.webp")
    images.bucket.delete("thumbs/256/raw/2026/a.jpg.webp")
    before = images.made()
    assert images.rerun("thumbnails", prefix="raw/2026/").told == 1
    images.run()
    after = images.made()
    assert set(after) - set(before) == {"thumbs/256/raw/2026/a.jpg.webp"}
    assert {key: after[key] for key in before} == before, "results that would be the same are not written"


def test_the_text_of_a_page_becomes_its_alternative_text(images: Images) -> None:
    images.put("raw/page.png", encoded(written("Rye bread", "fresh at eight")))
    images.run()
    row = images.row("raw/page.png")
    assert row["text"] == "Rye bread\nfresh at eight"
    assert row["alt"].endswith(". Text in it: Rye bread fresh at eight")


def test_other_tools_read_the_table(images: Images, tmp_path: Any) -> None:
    duckdb = pytest.importorskip("duckdb")
    images.put("raw/a.jpg", jpeg(photo()))
    images.put("raw/b.png", encoded(drawing()))
    images.run()
    files = []
    for number, key in enumerate(images.bucket.table("images").snapshot().files):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(images.bucket.store.get(key).body)
        files.append(str(path))
    found = duckdb.read_parquet(files, union_by_name=True).order("key").project("key, verdict, kind").fetchall()
    assert found == [("raw/a.jpg", "fine", "photo"), ("raw/b.png", "fine", "drawing")]
