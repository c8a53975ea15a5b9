"""Promise: an editor knows every verb's parameters. Checked by mypy itself, on programs as users write them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
PROJECT = Path(__file__).parents[2]
FOUND = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)")
EXPECTED = re.compile(r"# error: (?P<text>.*)")


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[int, list[str]]]:
    """File -> line -> what mypy says of it."""
    files = [HERE / "handlers.py", HERE / "misspelt.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", *map(str, files)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and not done.stderr, done.stderr or done.stdout
    found: dict[str, dict[int, list[str]]] = {file.name: {} for file in files}
    for line in done.stdout.splitlines():
        if match := FOUND.match(line):
            found[Path(match["file"]).name].setdefault(int(match["line"]), []).append(match["text"])
    return found


@pytest.mark.slow
def test_the_documented_handlers_pass_mypy_strict(errors: dict[str, dict[int, list[str]]]) -> None:
    assert errors["handlers.py"] == {}


@pytest.mark.slow
def test_a_misspelt_setting_option_or_keyword_is_an_error(errors: dict[str, dict[int, list[str]]]) -> None:
    lines = (HERE / "misspelt.py").read_text().splitlines()
    expected = {number: match["text"] for number, line in enumerate(lines, 1) if (match := EXPECTED.search(line))}
    found = errors["misspelt.py"]
    assert sorted(found) == sorted(expected)
    for number, words in expected.items():
        # Of a call that fits no overload mypy says two things: what is wrong, and that none fits.
        said = [text for text in found[number] if not text.startswith("No overload variant")]
        assert len(said) == 1 and words in said[0], (lines[number - 1], found[number])
