"""How fast lines go through the stage: `python -m bench.logs.speed`.

In CPU seconds of one core, and as a ratio to a bare loop over the same lines in the same run. The lines are made up.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import msgspec
import pyarrow as pa

from bucketmq.apps.logs.drain import Index
from bucketmq.apps.logs.matching import tally
from bucketmq.apps.logs.parse import read

COUNT = 100_000
AT = 1_794_960_000.0
KINDS = (
    "order {id} of customer {n} paid in {ms} ms",
    "GET /v1/orders/{id} 200 {n} bytes in {ms} ms",
    "connection from 10.0.{n}.7:{ms} closed after {n} requests",
    "cache miss for key user:{n}:profile, loading from /var/lib/cache/{id}.bin",
    "retrying call to payments-{n}.example.net:443 (attempt {n} of 5): timeout after {ms} ms",
    "worker {n} finished job {id} status=ok duration={ms}ms",
)
DIGITS = re.compile(r"\d+")


def lines(count: int) -> list[str]:
    chance = random.Random(7)
    return [
        chance.choice(KINDS).format(
            id=f"{chance.getrandbits(48):012x}", n=chance.randint(1, 250), ms=chance.randint(1, 9999)
        )
        for _ in range(count)
    ]


def cpu_seconds(work: Callable[[], object]) -> float:
    """The best of three."""
    found = []
    for _ in range(3):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    pa.set_cpu_count(1)
    texts = lines(COUNT)
    structured = b"\n".join(
        msgspec.json.encode({"time": AT + place / 100, "level": "info", "message": text})
        for place, text in enumerate(texts)
    )
    plain = "\n".join(
        f"2026-11-18 00:{n // 60 % 60:02}:{n % 60:02} INFO {text}" for n, text in enumerate(texts)
    ).encode()

    def parsed(content: bytes) -> list[object]:
        return list(read(content, at=AT + 3600, bytes_max=1 << 30))

    known = list(read(structured, at=AT + 3600, bytes_max=1 << 30))
    index = Index(tuple(each.template.split()) for each in tally(known, Index(()), at=AT, skew_seconds=9e9).seen)
    bare = cpu_seconds(lambda: [DIGITS.sub("<*>", text).split() for text in texts])
    for name, work in (
        ("matching", lambda: tally(known, index, at=AT, skew_seconds=9e9)),
        ("parsing JSON lines", lambda: parsed(structured)),
        ("parsing plain text", lambda: parsed(plain)),
    ):
        seconds = cpu_seconds(work)
        print(f"{name:<20} {COUNT / seconds:>10,.0f} lines/s  {seconds / bare:5.2f} times a bare regex and split")
    whole = cpu_seconds(lambda: tally(parsed(structured), index, at=AT, skew_seconds=9e9))  # type: ignore[arg-type]
    print(f"{'JSON, both':<20} {COUNT / whole:>10,.0f} lines/s  {whole / bare:5.2f} times a bare regex and split")


if __name__ == "__main__":
    main()
