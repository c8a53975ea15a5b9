"""What make would do, by what a run before it has left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that make reads, without a virtual environment."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    return tmp_path


def plan(checkout: Path) -> str:
    """The commands of `make install`, none of them run."""
    command = ["make", "--dry-run", f"PYTHON={sys.executable}", "install"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout


def leave(checkout: Path, *names: str) -> None:
    for name in names:
        (checkout / ".venv" / name).touch()


def test_a_virtual_environment_that_was_not_finished_is_made_again(checkout: Path) -> None:
    leave(checkout, "pyvenv.cfg")
    assert "-m venv --clear .venv" in plan(checkout)


def test_an_installation_that_was_not_finished_is_repeated(checkout: Path) -> None:
    leave(checkout, ".made")
    assert "-m venv" not in plan(checkout)
    assert "--editable '.[dev]'" in plan(checkout)


def test_what_is_installed_is_left_alone(checkout: Path) -> None:
    leave(checkout, ".made", ".installed-dev")
    assert "--editable" not in plan(checkout)
