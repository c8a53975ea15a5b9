"""The whole of logs without Spark and without processes: what tests run one after the other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec

import bucketmq
from bucketmq import aio
from bucketmq.apps.logs.app import counting, watching
from bucketmq.apps.logs.keeper import Keeper
from bucketmq.apps.logs.names import NEWS, OPEN, RESOLVED, WINDOWS
from bucketmq.apps.logs.settings import LogSettings
from bucketmq.pipeline import Pipeline

START = 1_794_960_000  # a full hour, 18 November 2026, 00:00 UTC
MINUTE = 60


def settings_on(url: str, **options: Any) -> LogSettings:
    return LogSettings(**{"url": url, "learning_minutes": 20, "late_minutes": 5, **options})


def line(at: float, text: str, level: str = "info", **more: Any) -> dict[str, Any]:
    return {"time": datetime.fromtimestamp(at, UTC).isoformat(), "level": level, "message": text, **more}


def ordinary(minute: int, count: int = 10) -> list[dict[str, Any]]:
    """A minute of a made-up service."""
    return [line(START + minute * MINUTE + n, f"request {n} served in {n + 3} ms") for n in range(count)]


def jsonl(lines: list[dict[str, Any]]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, lines))


def put(bucket: Any, name: str, lines: list[dict[str, Any]], service: str = "web") -> str:
    key = f"logs/{service}/2026-11-18/{name}.jsonl"
    bucket.put(key, jsonl(lines))
    return key


class Logs:
    """All parts on one bucket, which is a folder."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.settings = settings_on(url, **options)
        self.bucket = bucketmq.connect(url)
        own = self.settings
        self.counting: Pipeline = counting(
            url=url, sequence_pattern=own.sequence_pattern, unpacked_bytes_max=own.unpacked_bytes_max
        )
        self.watching: Pipeline = watching(
            late_minutes=own.late_minutes,
            quiet_minutes=own.quiet_minutes,
            silence_minutes=own.silence_minutes,
            learning_minutes=own.learning_minutes,
            new_pattern_level=own.new_pattern_level,
            sequences_learnt=own.sequences_learnt,
        )
        handler = self.counting.watcher(self.bucket)
        self.bucket.watch(self.counting.source.filter, name=self.counting.name, start="beginning")(handler)  # type: ignore[union-attr]

    def count(self) -> None:
        self.bucket.run_watchers(stop_when_empty=True, signals=False)

    def watch(self) -> None:
        self.bucket.queue(WINDOWS).run(self.watching.watcher(self.bucket), stop_when_empty=True, signals=False)

    def keep(self, *, tick_at: float | None = None) -> None:
        async def main() -> None:
            async with aio.connect(self.url) as bucket:
                keeper = Keeper(bucket, self.settings)
                if tick_at is not None:
                    await keeper.tick()
                await keeper.run_once()

        asyncio.run(main())

    def go(self) -> None:
        """Until nothing is left to do."""
        self.count()
        self.watch()
        self.keep()

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.bucket.table("log-counts").read().sort_by("id").to_pylist()
        return found

    def alerts(self, prefix: str = OPEN) -> list[dict[str, Any]]:
        keys = self.bucket.rules.matching(f'key LIKE "{prefix}%"').keys
        return [self.bucket.get_json(key) for key in keys]

    def resolved(self) -> list[dict[str, Any]]:
        return self.alerts(RESOLVED)

    def dead(self) -> list[str]:
        return [
            letter.reason
            for queue in ("events", WINDOWS, NEWS)
            for letter in self.bucket.queue(queue).dead_letters.peek()
        ]

    def close(self) -> None:
        self.bucket.close()
