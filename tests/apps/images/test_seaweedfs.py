"""Images on a real object store: come, are replaced, go; and a table that other tools can read there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

import bucketmq
from apps.images.drawn import drawing, jpeg, opened_image, photo
from apps.images.running import STAGES, Images
from apps.moderation.drawing import encoded, written
from bucketmq.testing import servers


@pytest.fixture
def url() -> Iterator[str]:
    try:
        with servers.seaweedfs() as url:
            yield url
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)


@pytest.mark.slow
def test_what_is_derived_follows_its_image(url: str) -> None:
    with bucketmq.connect(url) as bucket:
        images = Images(bucket)
        images.put("raw/ö & a.jpg", jpeg(photo()))
        images.put("raw/b.png", encoded(drawing()))
        images.run()
        thumb = bucket.get("thumbs/256/raw/ö & a.jpg.webp")
        assert thumb.content_type == "image/webp" and opened_image(thumb.body).width == 256
        assert [(row["key"], row["complete"], row["kind"]) for row in images.rows()] == [
            ("raw/b.png", True, "drawing"),
            ("raw/ö & a.jpg", True, "photo"),
        ]
        images.put("raw/b.png", encoded(written("Rye bread")))
        bucket.delete("raw/ö & a.jpg")
        images.run()
        (row,) = images.rows()
        assert (row["key"], row["complete"], row["text"]) == ("raw/b.png", True, "Rye bread")
        assert images.keys("facts/") == sorted(f"facts/{stage}/raw/b.png.json" for stage in STAGES)
        assert len(images.keys("thumbs/")) == 3
