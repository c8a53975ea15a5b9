"""The verb listen: forwards a bucket's changes to a program that is being developed, and shows what it answers.

It runs a handler of its own under a rule made for the time it runs, so that nobody else who delivers this bucket's
rules can take the events, and posts them from here.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from datetime import datetime
from typing import Annotated, Any

import typer

from bucketmq import outcomes
from bucketmq.changes import Change
from bucketmq.cli.options import Json, Url, open_bucket, the_url
from bucketmq.cli.output import emit, emit_text, flush, say
from bucketmq.cli.rules import fresh_secret
from bucketmq.cli.worker import log_to_stderr
from bucketmq.client import Bucket
from bucketmq.errors import BucketMQError
from bucketmq.events import formats, signing
from bucketmq.events.event import seconds_of
from bucketmq.events.rule import Format, Rule, Webhook, check_rule
from bucketmq.notify.http import Poster
from bucketmq.procedures.requests import Answer, NoAnswer, Post
from bucketmq.procedures.rules.notifier import Notifier
from bucketmq.procedures.rules.webhook import resolve
from bucketmq.rulebook import environment

RETRY_SECONDS = (1.0, 2.0, 5.0)
SWEEP_SECONDS = 1.0
LEFT_SECONDS = 86400.0
"""A rule of ours that is older than this was left by a process that was killed; left there, it would keep the log."""

_OURS = re.compile(r"listen-[0-9a-f]{8}\Z")
SWEEP_NAME = "listen"
"""An inventory of its own, so that what was there before is not news to it and the user's own sweeps lose nothing."""


def listen(
    *,
    forward_to: Annotated[
        str, typer.Option("--forward-to", metavar="URL", help="Your program, like http://localhost:8000/hook.")
    ],
    text: Annotated[str, typer.Option("--filter", metavar="FILTER", help="Which events; all if left out.")] = "",
    wire: Annotated[Format, typer.Option("--format", help="The body of requests.")] = "tigris",
    secret: Annotated[
        str | None, typer.Option(metavar="whsec_…", help="Sign with this, or env:NAME; a new one if left out.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long an answer may take.")] = 10.0,
    sweep_every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Look for changes by other programs; 1 for folders, else 0: never."
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Forward changes to a program on this machine, and show each event, the answer and the time.

    Begins now, tries three times more after a failure, and leaves no rule behind. Stop it with Ctrl-C.
    """
    log_to_stderr()
    name = f"listen-{uuid.uuid4().hex[:8]}"
    to = Webhook(url=forward_to, format=wire, private=True, timeout_seconds=timeout)
    check_rule(Rule(name=name, filter=text, to=to))
    key = fresh_secret() if secret is None else signing.check_secret(resolve(secret, environment))
    sweep_seconds = _sweep_seconds(sweep_every, the_url(url))
    with open_bucket(url) as bucket, Poster() as poster:
        forwarder = Forwarder(name, to, wire, key, poster, as_json=as_json)
        bucket.watch(text, name=name, start="now", retry_seconds=RETRY_SECONDS, gone="deliver")(forwarder)
        sweeper = Sweeper(bucket, sweep_seconds)
        made = secret is None

        def started(_: Notifier) -> None:
            if as_json:
                emit({"listening": name, "forward_to": forward_to, **({"signing_secret": key} if made else {})})
                flush()
            say(f"signing secret: {key}" if made else "signing with the secret given")
            say(f"forwarding to {forward_to}; stop it with Ctrl-C")
            sweeper.start()

        try:
            _remove_left(bucket)
            sweeper.sweep()  # what changed before now is reported before the rule begins, so it is not news to it
            bucket.run_watchers(name, started=started)
        finally:
            sweeper.stop()
            _remove(bucket, name)
    say(f"{forwarder.delivered:,} delivered, {forwarder.failed:,} failed attempts")


def _sweep_seconds(given: float | None, url: str) -> float:
    if given is not None:
        return given
    return SWEEP_SECONDS if url.startswith("file:") else 0.0


def _remove_left(bucket: Bucket) -> None:
    """Remove what killed ones left behind."""
    for rule in bucket.rules.list():
        if _OURS.match(rule.name) and time.time() - seconds_of(rule.created_at) > LEFT_SECONDS:
            _remove(bucket, rule.name)


def _remove(bucket: Bucket, name: str) -> None:
    try:
        bucket.rules.remove(name)
    except LookupError:
        pass  # it was never made
    except BucketMQError as error:
        say(f"the rule {name} is left behind ({error}); remove it: bucketmq rules rm {name}")


class Sweeper:
    """Looks for unreported changes again and again, on a thread of its own."""

    def __init__(self, bucket: Bucket, seconds: float) -> None:
        self._bucket = bucket
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bucketmq-listen-sweep", daemon=True)

    def sweep(self) -> None:
        if self._seconds > 0:
            self._bucket.sweep(baseline=True, name=SWEEP_NAME)

    def start(self) -> None:
        if self._seconds > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            try:
                self.sweep()
            except BucketMQError as error:
                say(f"not swept: {error}")


class Forwarder:
    """The handler: one request for each change, and a line about what came of it."""

    def __init__(self, name: str, to: Webhook, wire: Format, secret: str, poster: Poster, *, as_json: bool) -> None:
        self.delivered = 0
        self.failed = 0
        self._name = name
        self._to = to
        self._wire = wire
        self._secret = secret
        self._poster = poster
        self._as_json = as_json
        self._lock = threading.Lock()

    def __call__(self, change: Change) -> outcomes.Outcome:
        body, content_type = formats.encode(self._wire, [change.event])
        headers = {
            "content-type": content_type,
            "user-agent": "bucketmq",
            "bucketmq-rule": self._name,
            "bucketmq-attempt": str(change.attempt),
            **signing.sign([self._secret], change.id, int(time.time()), body),
        }
        answer = self._poster.post(Post(self._to.url, headers, body, self._to.timeout_seconds, private=True))
        good = isinstance(answer, Answer) and 200 <= answer.status < 300
        again = not good and change.attempt <= len(RETRY_SECONDS)
        self._tell(change, answer, good=good, again=again)
        if again:
            return outcomes.Retry(_answer_text(answer), delay_seconds=RETRY_SECONDS[change.attempt - 1])
        return outcomes.Done()  # also when given up: dead letters of a rule that goes away would help nobody

    def _tell(self, change: Change, answer: Answer | NoAnswer, *, good: bool, again: bool) -> None:
        row: dict[str, Any] = {
            "event": change.id,
            "kind": change.kind,
            "key": change.key,
            "attempt": change.attempt,
            "status": answer.status if isinstance(answer, Answer) else None,
            "seconds": round(answer.seconds, 3),
            "outcome": "done" if good else "retry" if again else "given up",
        }
        if isinstance(answer, NoAnswer):
            row["reason"] = answer.reason
        with self._lock:
            self.delivered += good
            self.failed += not good
            if self._as_json:
                emit(row)
            else:
                after = f", again in {RETRY_SECONDS[change.attempt - 1]:g} s" if again else "" if good else ", given up"
                what = f"{change.kind} {change.key} → {_answer_text(answer)} in {answer.seconds * 1000:,.0f} ms"
                emit_text(f"{datetime.now():%H:%M:%S} {what}{after}")
            flush()


def _answer_text(answer: Answer | NoAnswer) -> str:
    return f"HTTP {answer.status}" if isinstance(answer, Answer) else answer.reason
