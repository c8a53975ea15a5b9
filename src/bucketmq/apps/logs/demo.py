"""The demo of logs: three made-up services, an incident that opens one alert and resolves, on a local folder.

Lines cover the last three hours, an hour of them in half a minute; what is looked at is how long an alert takes from
the object that has it, and that one incident is told once, whatever is delivered again.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.apps.logs.names import OPEN
from bucketmq.apps.mailbox import Mailbox
from bucketmq.cli.exits import end
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, flush
from bucketmq.client import Bucket, connect
from bucketmq.crew import Crew, Scene, free_port
from bucketmq.errors import BucketMQError, Unavailable

MINUTE = 60
HISTORY_MINUTES = 45
AFTER_MINUTES = 25
GIVE_UP_SECONDS = 100.0
SERVICES = ("checkout", "search", "mailer")
PARTS = ("keeper", "page", "log-counts", "log-watch")


def lines_of(service: str, minute: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """An ordinary minute of a service."""
    kinds = {
        "checkout": ("order {id} paid in {ms} ms", "cart {id} updated with {n} items", "session {id} opened"),
        "search": ("query took {ms} ms, {n} hits", "index segment {id} merged in {ms} ms"),
        "mailer": ("sent mail {id} to person{n}@example.com", "queue has {n} mails"),
    }[service]
    for number in range(chance.randint(18, 26)):
        text = kinds[number % len(kinds)].format(
            id=f"{chance.getrandbits(48):012x}", ms=chance.randint(2, 90), n=chance.randint(1, 40)
        )
        yield {"time": _text(minute + chance.random() * 59), "level": "info", "message": text}
    if chance.random() < 0.2:
        yield {"time": _text(minute + 30), "level": "error", "message": "upstream timed out, trying again"}


def incident(minute: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    """The payment provider is away: a line that was never seen, with a secret in it that nobody may see."""
    for _ in range(60):
        id = f"{chance.getrandbits(48):012x}"
        text = f"payment of order {id} failed: connection to pay-1.example.net:443 refused, token=tok-{id}"
        yield {"time": _text(minute + chance.random() * 59), "level": "error", "message": text}


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


class Alerts(Mailbox):
    """Where alerts are sent."""

    def __init__(self) -> None:
        self.told: list[tuple[float, dict[str, Any]]] = []
        super().__init__("/alerts")

    def take(self, body: bytes) -> int:
        self.told.append((time.monotonic(), msgspec.json.decode(body)))
        return 202

    def of(self, action: str) -> list[dict[str, Any]]:
        return [each for _, each in self.told if each["event_action"] == action]


class Show:
    """One run of the demo."""

    def __init__(self, folder: Path, *, tell: bool) -> None:
        self.mailbox = Alerts()
        self.url = f"file://{folder}/bucket"
        self._tell = tell
        self._chance = random.Random(17)
        port, token = free_port(), secrets.token_urlsafe(18)
        self.link = f"http://127.0.0.1:{port}/#token={token}"
        environment = {
            "BUCKETMQ_URL": self.url,
            "BUCKETMQ_PORT": str(port),
            "BUCKETMQ_DASHBOARD_TOKENS": f"demo={token}:operate",
            "LOGS_ALERT_URL": self.mailbox.url,
            "LOGS_ALERT_FORMAT": "pagerduty",
            "LOGS_ALERT_TOKEN": "a-made-up-routing-key",
            "LOGS_RUNBOOK_URL": "https://runbooks.example.com/{service}/{kind}",
            "LOGS_LEARNING": "30",
            "LOGS_LATE": "5",
            "LOGS_SUMMARISE": "false",
        }
        self.crew = Crew(folder, environment)
        self.bucket: Bucket = connect(self.url)
        self._give_up = time.monotonic() + GIVE_UP_SECONDS

    def say(self, text: str) -> None:
        if self._tell:
            emit_text(text)
            flush()

    def close(self) -> None:
        self.crew.__exit__()
        self.mailbox.close()
        self.bucket.close()

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        for part in PARTS:
            self.crew.start(part, "apps", "run", "logs", "--without-spark", "--only", part)
        start = int(time.time()) // MINUTE * MINUTE - 3 * 60 * MINUTE
        self.say(f"{HISTORY_MINUTES} minutes of {', '.join(SERVICES)}: ordinary lines, patterns are learnt")
        for number in range(0, HISTORY_MINUTES, 5):
            self._write(start + number * MINUTE, 5)
        self._until(lambda: self._lines() >= 3 * 5 * 18 * HISTORY_MINUTES // 5, "the history is counted")
        before = len(self.mailbox.told)

        at = start + HISTORY_MINUTES * MINUTE
        self.say("an incident: payments fail, sixty lines in one minute")
        found = [*lines_of("checkout", at, self._chance), *incident(at, self._chance)]
        written = time.monotonic()
        key = self._put("checkout", at, found)
        self._until(lambda: bool(self.mailbox.of("trigger")), "somebody is told")
        seconds = next(moment for moment, each in self.mailbox.told if each["event_action"] == "trigger") - written
        alert = self.mailbox.of("trigger")[0]
        self.say(f"told after {seconds:.1f} s: {alert['payload']['summary']}")
        self.say(f"  example: {alert['payload']['custom_details']['text'].splitlines()[-1]}")

        self.say("the same object is delivered again, and nobody is paged twice")
        self.bucket.trigger(key)
        for number in range(1, AFTER_MINUTES + 1, 5):
            self._write(at + number * MINUTE, 5)
        self.say(f"{AFTER_MINUTES} ordinary minutes follow")
        self._until(lambda: not self._open() and bool(self.mailbox.of("resolve")), "the incident is over")
        triggered, resolved = ({each["dedup_key"] for each in self.mailbox.of(name)} for name in ("trigger", "resolve"))
        self.say("resolved, with the same key")
        return {
            "alert_seconds": round(seconds, 2),
            "told_before": before,
            "triggered": len(self.mailbox.of("trigger")),
            "incidents": len(triggered),
            "resolved": len(resolved & triggered),
            "secret_seen": any("tok-" in str(each) for _, each in self.mailbox.told),
            "seconds": round(time.monotonic() - began, 1),
        }

    def _write(self, at: int, minutes: int) -> None:
        for service in SERVICES:
            found = [
                line for number in range(minutes) for line in lines_of(service, at + number * MINUTE, self._chance)
            ]
            self._put(service, at, found)

    def _put(self, service: str, at: int, found: list[dict[str, Any]]) -> str:
        day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
        key = f"logs/{service}/{day}/{at}.jsonl"
        self.bucket.put(key, b"\n".join(msgspec.json.encode(line) for line in found))
        return key

    def _lines(self) -> int:
        from bucketmq.apps.logs.look import services

        return sum(each.lines for each in self.bucket.run(services(self.bucket.api)))

    def _open(self) -> list[str]:
        return list(self.bucket.rules.matching(f'key LIKE "{OPEN}%"').keys)

    def _until(self, done: Any, what: str) -> None:
        while not done():
            self.crew.look()
            fallen = self.crew.fallen()
            if fallen is not None:
                raise BucketMQError(f"{fallen.name} ended by itself: {fallen.last_words()}")
            if time.monotonic() > self._give_up:
                raise Unavailable(f"waited {GIVE_UP_SECONDS:.0f} s until {what}")
            time.sleep(0.1)

    def stay(self) -> None:
        while self.crew.fallen() is None:
            time.sleep(0.5)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See logs work: three services, an incident, one alert that is told and resolved. Needs no account and no Java.

    Ends by itself in about a minute; exits with 1 if an incident is told twice, or not at all.
    """
    with Scene("logs") as scene, contextlib.closing(Show(scene.folder, tell=not as_json)) as show:
        account = show.run()
        good = account["triggered"] == account["incidents"] == account["resolved"] >= 1 and not account["secret_seen"]
        scene.good = good
        if as_json:
            emit({**account, "good": good, "page": show.link.partition("/#")[0]})
        else:
            for name, value in account.items():
                emit_text(f"{name.replace('_', ' '):<16}{value}")
            emit_text("one alert for each incident, each told once and resolved" if good else "SOMETHING IS WRONG")
            where = show.link if keep else f"{show.link.partition('/#')[0]}; --keep leaves it running"
            emit_text(f"the page {'is' if keep else 'was'} at {where}")
        if keep:
            flush()
            with contextlib.suppress(KeyboardInterrupt):
                show.stay()
    end(scene)
