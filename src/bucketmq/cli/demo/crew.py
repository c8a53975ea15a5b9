"""The producers and workers of the demo, with what each has written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from bucketmq.cli.demo import plan
from bucketmq.cli.demo.records import RecordReader
from bucketmq.crew import Crew, Member

WORKER, PRODUCER = "worker", "producer"


class Workers(Crew):
    """Started on entering the `with` block."""

    def __init__(self, url: str, records: Path, seconds: float) -> None:
        super().__init__(records, {}, "bucketmq.cli.demo")
        self._arguments = url, str(records), str(seconds)
        self._records: dict[str, RecordReader] = {}

    def __enter__(self) -> Self:
        try:
            for role, count in ((WORKER, plan.WORKERS), (PRODUCER, plan.PRODUCERS)):
                for name in (f"{role}-{number}" for number in range(1, count + 1)):
                    self._records[name] = RecordReader(self._folder, name)
                    self.start(name, role, name, *self._arguments)
        except BaseException:
            self.__exit__()
            raise
        return self

    def look(self) -> None:
        """Catch up with their records, and notice which have ended."""
        for record in self._records.values():
            record.catch_up()
        super().look()

    def recorded(self, role: str = "") -> Iterator[tuple[Member, RecordReader]]:
        """The members of a role, or all, each with its record."""
        for name, member in self.members.items():
            if name.startswith(role):
                yield member, self._records[name]

    def records(self, role: str = "") -> list[RecordReader]:
        return [record for _, record in self.recorded(role)]

    @property
    def sending(self) -> bool:
        """Whether a producer is still at work."""
        return any(member.running for member, _ in self.recorded(PRODUCER))

    def total(self, what: str) -> int:
        return sum(record.totals[what] for record in self._records.values())

    def stop_workers(self) -> None:
        self.finish(member for member, _ in self.recorded(WORKER))
