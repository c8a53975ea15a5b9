"""Every example runs as it is, in an empty folder, and prints what its last comment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MARK = "# Output:\n"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(example: Path, tmp_path: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert text.count(MARK) == 1, f"{example.name} does not say what it prints"
    expected = [line.removeprefix("#").removeprefix(" ") for line in text.split(MARK)[1].splitlines()]

    done = subprocess.run(
        [sys.executable, example],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


def test_every_example_is_named_in_the_list_of_examples() -> None:
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")

    assert [path.name for path in EXAMPLES if f"({path.name})" not in index] == []
