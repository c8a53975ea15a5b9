"""Verbs that look at rules and try filters: rules ls, show, test, explain, dry-run. Nothing is changed."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.cli.credentials import masked_secrets
from bucketmq.cli.dead import when_and_after
from bucketmq.cli.exits import Code, nothing
from bucketmq.cli.look import read_to_end
from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import age, emit, emit_all, emit_text, flush, plural, say, table
from bucketmq.client import Bucket
from bucketmq.deliveries import DeadLetter
from bucketmq.errors import Invalid, NotFound
from bucketmq.events import filters
from bucketmq.events.event import KINDS
from bucketmq.events.filters import Explanation
from bucketmq.events.rule import Destination, Rule, ToQueue, ToWatcher, Webhook
from bucketmq.procedures.queues import DELIVERIES, EVENTS
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.procedures.rules.replay import Tested
from bucketmq.procedures.upkeep.stats import SubscriptionStats
from bucketmq.values import plain

ATTEMPTS_SHOWN = 10
LETTERS_SHOWN = 10
JOURNAL_LINES = 2_000
"""How far back in the journal `rules show` looks for attempts of the rule."""

REASON_CHARACTERS = 120

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The rule's name.")]
RuleOrNot = Annotated[str | None, typer.Argument(metavar="[NAME]", help="A rule; or give --filter.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", metavar="FILTER", help="A filter, instead of a rule's, with or without WHERE.")
]


def existing_rule(bucket: Bucket, name: str) -> Rule:
    """The rule of this name, or an error that names those there are."""
    try:
        return bucket.rules.get(name)
    except NotFound:
        names = [rule.name for rule in bucket.rules.list()]
        close = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        there = f"there are: {', '.join(names)}" if names else "there are none; make one: bucketmq rules add"
        raise NotFound(f"there is no rule {name!r}; {meant}{there}") from None


def destination_text(to: Destination) -> str:
    match to:
        case Webhook(url=url):
            return url
        case ToQueue(queue=queue):
            return f"queue:{queue}"
        case ToWatcher():
            return "watcher"


class Books:
    """What the queue `events` says about rules: how far behind each is, and its dead letters."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        try:
            stats = bucket.existing_queue(EVENTS).stats()
        except NotFound:
            self._subscriptions: dict[str, SubscriptionStats] = {}
            self._dead = 0
        else:
            self._subscriptions = {each.name: each for each in stats.subscriptions}
            self._dead = stats.dead

    def of(self, rule: Rule) -> SubscriptionStats | None:
        return self._subscriptions.get(rule.subscription)

    def states(self, rule: Rule) -> dict[str, int]:
        """How many events are ready for the rule (those it has yet to look at included), in flight and delayed."""
        found = self.of(rule)
        if found is None:
            return {"ready": 0, "in_flight": 0, "delayed": 0}
        return {"ready": found.ready, "in_flight": found.in_flight, "delayed": found.delayed}

    def letters(self) -> list[DeadLetter]:
        """The dead letters of all rules, oldest first."""
        return self._bucket.existing_queue(EVENTS).dead_letters.peek(self._dead) if self._dead else []

    def letters_of(self, rule: Rule) -> list[DeadLetter]:
        return [letter for letter in self.letters() if letter.subscription == rule.subscription]


def ls(url: Url = None, as_json: Json = False) -> None:
    """List the rules: what goes where, and how far each has come.

    Ready are the events of the log that a rule has yet to look at; delayed those that failed and are tried again later.
    """
    with open_bucket(url, probe=False) as bucket:
        rules = sorted(bucket.rules.list(), key=lambda rule: rule.name)
        books = Books(bucket)
        dead = Counter(letter.subscription for letter in books.letters())
    if not rules:
        nothing("there are no rules yet; make one: bucketmq rules add NAME --filter FILTER --to queue:NAME")
    if as_json:
        emit_all(_summary(rule, books, dead[rule.subscription]) for rule in rules)
        return
    table(
        ("name", "filter", "destination", "state", "#ready", "#in flight", "#delayed", "#dead"),
        [
            (
                rule.name,
                rule.filter or "(everything)",
                destination_text(rule.to),
                state_text(rule),
                *(f"{count:,}" for count in books.states(rule).values()),
                f"{dead[rule.subscription]:,}",
            )
            for rule in rules
        ],
    )


def state_text(rule: Rule) -> str:
    return "active" if rule.paused is None else f"paused: {rule.paused}" if rule.paused != "paused" else "paused"


def _summary(rule: Rule, books: Books, dead: int) -> dict[str, Any]:
    found = books.of(rule)
    return {
        "name": rule.name,
        "filter": rule.filter,
        "to": destination_text(rule.to),
        "state": "active" if rule.paused is None else "paused",
        "paused": rule.paused,
        **books.states(rule),
        "dead": dead,
        "oldest_ready_seconds": found.oldest_ready_seconds if found is not None else None,
    }


def show(name: RuleName, url: Url = None, as_json: Json = False) -> None:
    """Show all of a rule: settings, secrets (masked), dead letters, and the last attempts to deliver."""
    with open_bucket(url, probe=False) as bucket:
        rule = existing_rule(bucket, name)
        secrets = masked_secrets(bucket.rules.secrets(name))
        books = Books(bucket)
        letters = books.letters_of(rule)
        attempts = recent_attempts(bucket, name)
    explained = filters.explain(filters.parse(rule.filter), body_bytes_max=rule.policy.body_bytes_max)
    summary = _summary(rule, books, len(letters))
    if as_json:
        dead = [event_letter_row(letter) for letter in letters[:LETTERS_SHOWN]]
        more = {"explanation": explained, "dead_letters": dead, "attempts": attempts}
        emit({**summary, "rule": plain(rule), "secrets": secrets, **more})
        return
    _show_rule(rule, secrets, summary, explained)
    if letters:
        show_letters(letters[:LETTERS_SHOWN], title="dead letters")
        say(f"see every attempt: bucketmq rules dead {name} --full; send again: bucketmq rules redrive {name}")
    if attempts:
        _show_attempts(attempts)


def _show_rule(rule: Rule, secrets: dict[str, Any], summary: dict[str, Any], explained: Explanation) -> None:
    rows: list[tuple[str, object]] = [
        ("name", rule.name),
        ("filter", rule.filter or "(everything)"),
        ("key prefix", explained.prefix or "(any)"),
        ("cost per event", explained.cost),
        ("destination", destination_text(rule.to)),
        ("state", state_text(rule)),
        ("created", rule.created_at),
        *((state.replace("_", " "), f"{summary[state]:,}") for state in ("ready", "in_flight", "delayed", "dead")),
        ("oldest ready", age(summary["oldest_ready_seconds"])),
    ]
    if isinstance(rule.to, Webhook):
        rows += [(field, _cell(value)) for field, value in plain(rule.to).items() if field not in ("kind", "url")]
    rows += [(f"secret: {kind}", _cell(value)) for kind, value in secrets.items()]
    rows += [(field, _cell(value)) for field, value in plain(rule.policy).items()]
    rows.append(("subscription", rule.subscription))
    table(("rule", ""), rows)


def _cell(value: object) -> str:
    match value:
        case list() | tuple():
            return ", ".join(_cell(each) for each in value)
        case dict():
            return ", ".join(f"{name}={_cell(each)}" for name, each in value.items())
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def recent_attempts(bucket: Bucket, name: str) -> list[Attempt]:
    """The last lines of the journal that are about this rule, oldest first."""
    queue = bucket.existing_queue(DELIVERIES)
    try:
        found = list(read_to_end(queue, queue.back(JOURNAL_LINES)))
    except NotFound:
        return []
    attempts = []
    for message in found:
        try:
            attempt = msgspec.convert(message.body, Attempt)
        except msgspec.ValidationError:
            continue
        if attempt.rule == name:
            attempts.append(attempt)
    return sorted(attempts, key=lambda each: each.at)[-ATTEMPTS_SHOWN:]


def _show_attempts(attempts: list[Attempt]) -> None:
    table(
        ("at", "key", "#attempt", "outcome", "#status", "#seconds", "reason"),
        [
            (a.at, a.key, a.attempt, a.outcome, a.status, f"{a.seconds:.3f}", _first_line(a.reason, REASON_CHARACTERS))
            for a in attempts
        ],
        title="last attempts",
    )


def _first_line(text: str, characters: int) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")[:characters]


def event_letter_row(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter of a rule as JSON: its event and everything that went wrong."""
    died = letter.message.died
    return {
        "id": letter.id,
        "event": letter.body,
        "reason": letter.reason,
        "died_at": died.at if died else None,
        "attempts": died.attempts if died else None,
        "failures": letter.failures,
    }


def show_letters(letters: list[DeadLetter], *, title: str | None = None) -> None:
    events = [letter.body if isinstance(letter.body, dict) else {} for letter in letters]
    rows = [
        (one.id, event.get("kind"), event.get("key"), *when_and_after(one), one.reason[:REASON_CHARACTERS])
        for one, event in zip(letters, events, strict=True)
    ]
    table(("id", "kind", "key", "died", "#attempts", "reason"), rows, title=title)


def _filter_text(url: str | None, name: str | None, given: str | None) -> str:
    """The filter to try: the one given, or a rule's. Only the latter needs the bucket."""
    if (name is None) == (given is None):
        raise Invalid("name a rule, or give --filter; one of the two")
    if given is not None:
        filters.parse(given)
        return given
    assert name is not None
    with open_bucket(url, probe=False) as bucket:
        return existing_rule(bucket, name).filter


def test(
    name: RuleOrNot = None,
    *,
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="The object to try; it need not be there.")],
    text: FilterOption = None,
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"What happened: {', '.join(KINDS)}.")] = "created",
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say whether a filter matches a key, and which condition decides.

    The object is looked at as it is now. Exit code 0 if it matches, 3 if not.
    """
    chosen = _filter_text(url, name, text)
    with open_bucket(url, probe=False) as bucket:
        found = bucket.rules.test(chosen, key, kind=kind)
    if as_json:
        emit({"filter": chosen, "key": key, **msgspec.to_builtins(found)})
    else:
        _show_tested(found)
    if not found.matches:
        raise typer.Exit(Code.EMPTY)


def _show_tested(found: Tested) -> None:
    emit_text("match" if found.matches else "no match")
    if found.why:
        table(
            ("", "condition", "outcome", "value"),
            [
                ("→" if each.decides else "", each.condition, each.outcome, f"{each.field} is {each.value}")
                for each in found.why
            ],
        )
    if not found.exists:
        say("there is no such object now; it was judged by its name alone")


def explain(name: RuleOrNot = None, text: FilterOption = None, url: Url = None, as_json: Json = False) -> None:
    """Show how a filter is understood, and what deciding an event costs."""
    chosen = _filter_text(url, name, text)
    found = filters.explain(filters.parse(chosen))
    if as_json:
        emit({"filter": chosen, **msgspec.to_builtins(found)})
        return
    for line in found.tree:
        emit_text(line)
    emit_text("")
    emit_text(f"canonical   {found.canonical or '(everything)'}")
    emit_text(f"key prefix  {found.prefix or '(any)'}")
    emit_text(f"cost        {found.cost}")


def dry_run(
    name: RuleOrNot = None,
    *,
    text: FilterOption = None,
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="Look only at keys that begin with it.")] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Stop after this many matches.")] = 1_000,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List what of the live bucket a filter matches. Nothing is sent."""
    chosen = _filter_text(url, name, text)
    with open_bucket(url, probe=False) as bucket:
        found = bucket.rules.matching(chosen, prefix, limit=limit)
    if as_json:
        emit({"filter": chosen, **msgspec.to_builtins(found)})
    else:
        for key in found.keys:
            emit_text(key)
        flush()
        more = "; there may be more: raise --limit" if found.more else ""
        say(f"{plural(found.looked_at, 'object')} looked at, {found.matched:,} matched{more}")
    if not found.matched:
        raise typer.Exit(Code.EMPTY)
