"""Ceph's S3 gateway on 127.0.0.1, for tests: a monitor, one disk in memory and `radosgw`, from Debian's packages.

`apt-get install --no-install-recommends radosgw ceph-mon ceph-osd ceph-common`. It is a real store, so it is evidence
for races. Ready after about fifteen seconds.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

from bucketmq.errors import Unavailable, Unsupported
from bucketmq.testing.servers import free_ports, program_path, served, stop

KEY, SECRET = "bucketmq", "bucketmq-testing"
STEP_SECONDS = 120.0
"""How long one step of making the cluster may take."""


@contextlib.contextmanager
def radosgw(bucket: str = "bucketmq") -> Iterator[str]:
    """A cluster of one monitor and one disk, with an empty bucket. The URL has the option that Ceph 16 needs."""
    gateway = {name: program_path(name, package) for name, package in _PROGRAMS.items()}["radosgw"]
    with (
        tempfile.TemporaryDirectory(prefix="ceph-", ignore_cleanup_errors=True) as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        monitor_port, port = free_ports(2)
        _Cluster(folder, monitor_port, port).start(stack)

        def command() -> tuple[int, list[str]]:
            return port, [gateway, f"--conf={folder}/ceph.conf", "--name=client.rgw.a", "--foreground"]

        def url(at: int) -> str:
            options = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
            given = {"endpoint": f"http://127.0.0.1:{at}", **options, "unquoted_etags": "true"}
            return f"s3://{bucket}?" + urlencode(given, safe=":/")

        with served(command, url, folder, prepare=lambda at: _make_bucket(at, bucket)) as ready:
            yield ready


class _Cluster:
    """A monitor and a disk that trust everybody on this machine."""

    def __init__(self, folder: Path, monitor_port: int, port: int) -> None:
        self._folder = folder
        self._id = str(uuid.uuid4())
        self._conf = folder / "ceph.conf"
        self._monitor_port = monitor_port
        for part in ("mon", "osd", "rgw"):
            (folder / part).mkdir()
        self._conf.write_text(_CONF.format(id=self._id, folder=folder, monitor=monitor_port, port=port))

    def start(self, stack: contextlib.ExitStack) -> None:
        disk = str(uuid.uuid4())
        address = f"[v1:127.0.0.1:{self._monitor_port}]"
        monmap = str(self._folder / "monmap")
        self._step("monmaptool", "--create", "--fsid", self._id, "--addv", "a", address, monmap, conf=False)
        self._step("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, *_as_root())
        self._run(stack, "ceph-mon", "-i", "a", "-f", *_as_root())
        self._step("ceph", "osd", "new", disk, "0")
        self._step("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk, *_as_root())
        self._run(stack, "ceph-osd", "-i", "0", "-f", *_as_root())
        deadline = time.monotonic() + STEP_SECONDS
        while b"1 up" not in self._step("ceph", "osd", "stat"):
            if time.monotonic() > deadline:
                log = (self._folder / "ceph-osd.log").read_text(errors="replace")[-1000:]
                raise Unavailable(f"Ceph's disk did not come up in {STEP_SECONDS:g} s; its log ends:\n{log}")
        keys = (f"--access-key={KEY}", f"--secret-key={SECRET}")
        self._step("radosgw-admin", "-n", "client.rgw.a", "user", "create", "--uid=t", "--display-name=t", *keys)

    def _step(self, name: str, *args: str, conf: bool = True) -> bytes:
        given = ("-c", str(self._conf)) if conf else ()
        done = subprocess.run([name, *given, *args], capture_output=True, timeout=STEP_SECONDS, check=False)
        if done.returncode:
            raise Unavailable(f"{name} {args[0]} failed: {done.stderr.decode(errors='replace')[-500:]}")
        return done.stdout

    def _run(self, stack: contextlib.ExitStack, name: str, *args: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                [name, "-c", str(self._conf), *args], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        stack.callback(stop, process)


def _as_root() -> tuple[str, ...]:
    """Ceph's daemons become another user, who has no place here."""
    return ("--setuser", "root", "--setgroup", "root") if os.getuid() == 0 else ()


def _make_bucket(port: int, bucket: str) -> None:
    date = formatdate(usegmt=True)
    signature = hmac.digest(SECRET.encode(), f"PUT\n\n\n{date}\n/{bucket}".encode(), hashlib.sha1)
    headers = {"Date": date, "Authorization": f"AWS {KEY}:{base64.b64encode(signature).decode()}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("PUT", f"/{bucket}", headers={**headers, "Content-Length": "0"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise Unsupported(f"radosgw answers {answer.status} to a new bucket: {answer.read()[:200]!r}")
    finally:
        connection.close()


_PROGRAMS = {
    "radosgw": "radosgw",
    "radosgw-admin": "radosgw",
    "ceph-mon": "ceph-mon",
    "ceph-osd": "ceph-osd",
    "ceph": "ceph-common",
    "monmaptool": "ceph-common",
}
"""Each program, and Debian's package that has it."""

_CONF = """\
[global]
fsid = {id}
mon initial members = a
mon host = v1:127.0.0.1:{monitor}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
log file =
admin socket =
ms bind msgr2 = false
ms bind ipv6 = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
osd crush chooseleaf type = 0
mon data avail warn = 1
mon data avail crit = 1
[mon.a]
mon data = {folder}/mon
mon addr = v1:127.0.0.1:{monitor}
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd class load list = *
osd class default list = *
[client.rgw.a]
rgw data = {folder}/rgw
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw run sync thread = false
"""
