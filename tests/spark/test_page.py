"""The pages about Spark do what they say. (The other pages are run where Spark is not installed.)"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from docs.pages import ROOT, blocks

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    "page",
    [
        "tutorial-pipelines",
        "how-to/use-spark",
        "how-to/write-a-pipeline",
        "how-to/archive-a-queue",
        "how-to/history-as-tables",
        "how-to/sweep-a-large-bucket",
    ],
)
def test_the_page_does_what_it_says(spark: Any, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # the session is shared
    names: dict[str, Any] = {"__name__": "__page__", "spark": spark}
    found = blocks(ROOT / "docs" / f"{page}.md")
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language != "python":
            continue
        # Spark's processes begin elsewhere: a relative path is for the reader of the page.
        code = block.padded().replace('"inbox"', f'"{tmp_path}/inbox"')
        code = code.replace('"checkpoints/', f'"{tmp_path}/checkpoints/').replace('"tables/', f'"{tmp_path}/tables/')
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, block.where, "exec"), names)
        if following is not None and following.language == "output":
            assert printed.getvalue().strip() == following.code.strip(), f"{block.where} prints something else"
