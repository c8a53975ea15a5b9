"""The bench of images measures what it says, on a small picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("PIL")

from bench import images
from bucketmq.apps.images.drawing import notice


def test_everything_is_measured_and_pages_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notice().save(tmp_path / "page.tif")
    words = "The bakery of Ada Example, Main Street Rye bread is baked at eight o'clock, and sold until noon. "
    (tmp_path / "page.txt").write_text(f"{words}On Mondays there is cake with plums, while it lasts.")
    assert images.main(["--json", "--repeats", "1", "--megapixels", "0.3", "--pages", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["measured"]) == 9 and all(each["milliseconds"] > 0 for each in found["measured"])
    (page,) = found["pages"]
    assert page["in_reading_order"] > 0.95 > page["by_height"]
