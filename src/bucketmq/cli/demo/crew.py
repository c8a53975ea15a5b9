"""Starting, killing, freezing and ending the demo's processes. Only processes started here are ever signalled."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from bucketmq.cli.demo import plan
from bucketmq.cli.demo.records import RecordReader

END_SECONDS = 15.0


class Member:
    """One process and what it has written down."""

    def __init__(self, role: str, name: str, url: str, records: Path, seconds: float) -> None:
        self.role = role
        self.name = name
        self.record = RecordReader(records, name)
        self.state = "working"
        self._errors = (records / f"{name}.err").open("wb")
        command = ["-m", "bucketmq.cli.demo.process", role, name, url, str(records), str(seconds)]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends them in order
        )

    def look(self) -> None:
        """Catch up with its record, and notice if it has ended."""
        self.record.catch_up()
        code = self.process.poll()
        if code is not None and self.state in ("working", "stopping"):
            self.state = "done" if code == 0 else f"failed ({code})"

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.state = "killed"

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.state = "frozen"

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.state = "working"

    def stop(self) -> None:
        """Ask it to finish what is in hand."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
            self.state = "stopping"

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.running:
            if self.state == "frozen":
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._errors.close()


class Crew:
    """All of them. Leaving the `with` block ends whoever is left."""

    def __init__(self, url: str, records: Path, seconds: float) -> None:
        self.members: list[Member] = []
        try:
            for number in range(1, plan.WORKERS + 1):
                self.members.append(Member("worker", f"worker-{number}", url, records, seconds))
            for number in range(1, plan.PRODUCERS + 1):
                self.members.append(Member("producer", f"producer-{number}", url, records, seconds))
        except BaseException:
            self.end()
            raise

    def named(self, name: str) -> Member:
        return next(each for each in self.members if each.name == name)

    @property
    def producers(self) -> list[Member]:
        return [each for each in self.members if each.role == "producer"]

    @property
    def workers(self) -> list[Member]:
        return [each for each in self.members if each.role == "worker"]

    def look(self) -> None:
        for each in self.members:
            each.look()

    def total(self, what: str) -> int:
        return sum(each.record.totals[what] for each in self.members)

    def stop_workers(self) -> None:
        """SIGTERM to every worker, and wait until they have handed in what they hold."""
        for each in self.workers:
            each.stop()
        for each in self.workers:
            try:
                each.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                each.state = "does not stop"
        self.look()

    def end(self) -> None:
        for each in self.members:
            each.end()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
