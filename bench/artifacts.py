"""`python -m bench.artifacts`: publishing, verifying and promoting against plain hashing and copying, in one run.

CPU seconds of this process, and elapsed ones beside them, on a folder of this machine. The baseline does with hashlib
and `shutil` what cannot be left out: hash the bytes once, in small pieces, copy them once inside the kernel, and force
them to disk. A ratio of 1 is disk speed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import bucketmq
from bucketmq.apps.artifacts import promotion, publish, verify
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.keyfiles import public_text
from bucketmq.apps.artifacts.keys import ROLES, Environment, Trust, TrustedKey
from bucketmq.apps.artifacts.promotion import Promoter

MIB = 1 << 20


class Spent(msgspec.Struct, frozen=True):
    """What one thing took."""

    cpu_seconds: float
    seconds: float


class Row(msgspec.Struct, frozen=True):
    what: str
    ours: Spent
    plain: Spent

    @property
    def ratio(self) -> float:
        return self.ours.cpu_seconds / self.plain.cpu_seconds


def run(files: int, file_mib: float, repeats: int, folder: Path) -> list[Row]:
    """The best of some repeats, of ours and of the baseline each by itself; everything is new in each."""
    rounds = [_round(files, round(file_mib * MIB), folder / str(number)) for number in range(repeats)]
    return [
        Row(rows[0].what, _best([row.ours for row in rows]), _best([row.plain for row in rows]))
        for rows in zip(*rounds, strict=True)
    ]


def _best(spent: list[Spent]) -> Spent:
    return min(spent, key=lambda each: each.cpu_seconds)


def _round(files: int, size: int, folder: Path) -> list[Row]:
    source = folder / "files"
    source.mkdir(parents=True)
    block = os.urandom(min(size, 4 * MIB))
    for number in range(files):
        body = (number.to_bytes(8, "big") + block * (size // len(block) + 1))[:size]
        (source / f"f{number:05}").write_bytes(body)
    os.sync()
    key = SigningKey(Ed25519PrivateKey.generate())
    trust = Trust(1, "2099-01-01T00:00:00Z", (TrustedKey("ada", public_text(key), ROLES),), (Environment("staging"),))
    with bucketmq.connect(str(folder / "bucket")) as bucket:
        api = bucket.api
        sources = publish.sources_of([source])
        rows = [
            Row(
                "publish: hash, copy into the store",
                _spent(lambda: bucket.run(publish.publish(api, "shop", "1.0", sources, (key,)))),
                _spent(lambda: _hash_and_copy(source, folder / "plain")),
            ),
            Row(
                "verify: hash",
                _spent(lambda: bucket.run(verify.verify(api, trust, "shop", "1.0"))),
                _spent(lambda: _hash(source)),
            ),
            Row(
                "promote: copy, hash the copies",
                _spent(
                    lambda: bucket.run(
                        promotion.promote(api, trust, "shop", "1.0", "staging", promoter=Promoter((key,)))
                    )
                ),
                _spent(lambda: _hash_and_copy(source, folder / "again")),
            ),
        ]
    shutil.rmtree(folder)
    return rows


def _spent(work: Callable[[], object]) -> Spent:
    cpu, began = time.process_time(), time.perf_counter()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - began)


def _hash_and_copy(source: Path, target: Path) -> None:
    _copy(source, target)
    _hash(target)


def _hash(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for path in source.iterdir():
        shutil.copyfile(path, target / path.name)
        with (target / path.name).open("rb") as file:
            os.fsync(file.fileno())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.artifacts", description=__doc__)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--file-mib", type=float, default=64.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bucketmq-bench-") as folder:
        rows = run(given.files, given.file_mib, given.repeats, Path(folder))
    if given.json:
        sys.stdout.write(msgspec.json.encode([(row, round(row.ratio, 2)) for row in rows]).decode() + "\n")
        return 0
    size = given.files * given.file_mib * MIB / 1e6
    sys.stdout.write(f"{given.files} files, {size:,.0f} MB; CPU seconds (elapsed)\n")
    for row in rows:
        ours, plain = (f"{each.cpu_seconds:7.3f} ({each.seconds:6.2f})" for each in (row.ours, row.plain))
        sys.stdout.write(f"{row.what:<36} ours {ours}  plain {plain}  ratio {row.ratio:4.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
