"""Every code block of the documentation does what the page says.

The blocks of a page run in order, in one temporary folder. A block of language `output` right after a block is what
that block prints. `python no-run` and `sh no-run` are for what needs an account; `sh` blocks that call `bucketmq` wait
until the command line is installed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from docs.pages import Block, blocks, name_of, pages

RUNS = {"python", "sh"}
KNOWN = {*RUNS, "output", "json", "ndjson", "text", "toml", "yaml", "http", "sql", ""}
BIN = Path(sys.executable).parent

LONG = {"process-images.md", "search-documents.md"}
"""Pages that load models and start many programs: twenty seconds each."""

PAGES = [
    pytest.param(page, marks=[pytest.mark.long] if page.name in LONG else [])
    for page in pages()
    if any(block.language in RUNS for block in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUCKETMQ_URL", raising=False)
    names: dict[str, Any] = {"__name__": "__page__"}
    skipped = ""
    try:
        found = blocks(page)
        for block, following in zip(found, [*found[1:], None], strict=True):
            if block.language not in RUNS or "no-run" in block.words:
                continue
            missing = _missing(block)
            if missing:
                skipped = missing
                continue
            printed = _run_python(block, names) if block.language == "python" else _run_shell(block, tmp_path)
            if following is not None and following.language == "output":
                assert printed.strip() == following.code.strip(), f"{block.where} prints something else"
    finally:
        for value in names.values():
            if isinstance(value, bucketmq.Bucket):
                value.close()
    if skipped:
        pytest.skip(f"some blocks of {name_of(page)} wait for {skipped}")


def test_every_block_has_a_language_that_is_known_here() -> None:
    odd = [block.where for page in pages() for block in blocks(page) if block.language not in KNOWN]

    assert odd == []


def test_what_is_not_run_needs_an_account_or_another_system() -> None:
    """A block may be left out only where it names a service that nobody has on a laptop."""
    stores, clouds = ("s3://", "gs://", "az://"), ("AWS_", "ANTHROPIC_API_KEY", "gcloud", "az ", "docker")
    services = (
        *stores,
        *clouds,
        "duckdb",
        "spark",
        "pip install",
        "make ",
        ":4318",
    )  # the last: a collector of metrics
    for page in pages():
        for block in blocks(page):
            if "no-run" in block.words:
                assert any(service in block.code for service in services), block.where


def _run_python(block: Block, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.padded(), block.where.rsplit(":", 1)[0], "exec"), names)
    return printed.getvalue()


def _run_shell(block: Block, folder: Path) -> str:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=folder,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{block.where} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def _missing(block: Block) -> str:
    """What this machine lacks for the block, or nothing."""
    if block.language != "sh":
        return ""
    if "bucketmq " in block.code and not _command_line_works():
        return "the command line"
    return next((tool for tool in ("jq", "curl") if f"{tool} " in block.code and shutil.which(tool) is None), "")


@functools.cache
def _command_line_works() -> bool:
    command = BIN / "bucketmq"
    if not command.exists():
        return False
    return subprocess.run([command, "--help"], capture_output=True, timeout=60, check=False).returncode == 0
