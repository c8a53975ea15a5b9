"""The verbs of images, and its demo."""

from __future__ import annotations

import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

from cli.conftest import bucket, cli, environment, folder, url
from cli.ran import Cli

from apps.images.drawn import jpeg, photo
from apps.images.running import STAGES, Images
from bucketmq.client import Bucket

__all__ = ["bucket", "cli", "environment", "folder", "url"]


@pytest.fixture
def images(bucket: Bucket) -> Images:
    made = Images(bucket)
    made.put("raw/cat.jpg", jpeg(photo()))
    made.put("raw/bad.jpg", b"not an image")
    made.run()
    return made


def test_an_image_is_shown_stage_by_stage(cli: Cli, images: Images) -> None:
    ran = cli("images", "show", "raw/cat.jpg")
    assert ran.code == 0 and "A photo" in ran.out and ran.out.count("current") == len(STAGES), ran
    shown = cli("images", "show", "raw/cat.jpg", "--json").row
    assert shown["image"]["complete"] and shown["dead_letters"] == []
    assert shown["image"]["version"] == images.version("raw/cat.jpg")


def test_an_image_that_could_not_be_read_says_why(cli: Cli, images: Images) -> None:
    shown = cli("images", "show", "raw/bad.jpg", "--json").row
    assert shown["image"] is None and len(shown["dead_letters"]) == len(STAGES)
    assert "do not begin like an image" in cli("images", "show", "raw/bad.jpg").out
    ran = cli("images", "show", "raw/none.jpg")
    assert ran.code == 1 and "nothing is known of 'raw/none.jpg'" in ran.err


def test_images_are_listed_from_the_table(cli: Cli, images: Images) -> None:
    assert "raw/cat.jpg" in cli("images", "ls").out
    assert cli("images", "ls", "raw/c", "--verdict", "fine", "--json").row["key"] == "raw/cat.jpg"
    assert cli("images", "ls", "raw/2026/", "--verdict", "flagged").code == 3
    ran = cli("images", "ls", "--verdict", "flaged")
    assert ran.code == 2 and "fine, flagged, unsure or unknown" in ran.err, ran


def test_a_table_that_disagrees_is_made_anew(cli: Cli, images: Images) -> None:
    images.bucket.table("images").delete("raw/cat.jpg")
    images.bucket.table("images").upsert([{"key": "raw/ghost.jpg"}])
    assert cli("images", "rebuild", "--json").row == {"images": 2}
    assert [row["key"] for row in images.rows()] == ["raw/cat.jpg"] and images.row("raw/cat.jpg")["complete"]


@pytest.mark.parametrize("words", [("apps", "rerun", "images"), ("images", "rerun")], ids=" ".join)
def test_a_stage_is_run_again_by_its_name(cli: Cli, images: Images, words: tuple[str, ...]) -> None:
    ran = cli(*words, "--stage", "thumbnails", "--prefix", "raw/", "--json")
    assert (ran.code, ran.row["told"]) == (0, 2)
    assert cli(*words, "--stage", "alt", "--key", "raw/cat.jpg", "--dry-run", "--json").row["told"] == 1


def test_the_application_is_run_by_a_verb_of_its_own(cli: Cli, bucket: Bucket) -> None:
    bucket.put("raw/dog.jpg", jpeg(photo()))
    ran = cli("images", "run", "--only", "images-alt", "--without-spark", "--once", "--describer", "embedded")
    assert ran.code == 0, ran
    assert bucket.get("facts/alt/raw/dog.jpg.json")
    assert "has no part 'images-mood'" in cli("images", "run", "--only", "images-mood").err


@pytest.mark.long
def test_the_demo_ends_by_itself_and_everything_is_in_place(cli: Cli) -> None:
    ran = cli("--json", "apps", "demo", "images")
    assert ran.code == 0, ran
    assert ran.row["good"] and ran.row["problems"] == []
    found = {image["key"]: image for image in ran.row["images"]}
    assert (
        len(found) == 6 and found["raw/2026/sideways.jpg"]["width"] == 1200 and found["raw/2026/ball.gif"]["animated"]
    )
    text = found["raw/2026/notice.png"]["text"].splitlines()
    assert text[1:4] == ["Rye bread is baked", "at eight o'clock,", "and sold until noon."], "column by column"
