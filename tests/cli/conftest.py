"""A bucket in a folder, and the command line run in this process or in one of its own."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketmq.cli.app import run
from bucketmq.client import Bucket, connect
from cli.ran import Cli, Ran, Shell

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is such a place: nothing here is about disks."""
    made = Path(tempfile.mkdtemp(prefix="bucketmq-cli-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def url(folder: Path) -> str:
    return f"file://{folder}/bucket"


@pytest.fixture
def bucket(url: str) -> Iterator[Bucket]:
    with connect(url) as opened:
        yield opened


@pytest.fixture
def cli(url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process, with BUCKETMQ_URL set."""
    monkeypatch.setenv("BUCKETMQ_URL", url)
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*args: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = run([str(each) for each in args])
        sys.stdout.flush()
        return Ran(code, *capfd.readouterr())

    return call


@pytest.fixture
def environment(url: str) -> dict[str, str]:
    """For commands in processes of their own: this virtual environment first in the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "BUCKETMQ_URL": url, "NO_COLOR": "1"}


@pytest.fixture
def shell(folder: Path, environment: dict[str, str]) -> Shell:
    """Run a shell line in a process of its own, in the test's folder."""

    def call(line: str) -> Ran:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=folder,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return call
