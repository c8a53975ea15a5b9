"""Detectors: what is out of the ordinary, when it is over, and what is none of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bucketmq.apps.logs.detect import Change, Limits, State, Window, poisson, step, upper, usual_hours

LIMITS = Limits(late_minutes=5, quiet_minutes=15, silence_minutes=15, learning_minutes=20, sequences_learnt=30)
MINUTE = 60
HOUR = 3600
START = 1_794_960_000


class Service:
    """A service that writes an object a minute."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.state, self.limits, self.minute = State(), limits, 0
        self.changes: list[Change] = []

    def write(
        self, counts: dict[str, int], *, level: str = "info", minute: int | None = None, **more: Any
    ) -> list[Change]:
        at = START + (self.minute if minute is None else minute) * MINUTE
        self.minute += minute is None
        window = Window(
            at=START + self.minute * MINUTE + 5.0,
            source=more.pop("source", f"object-{self.minute}-{minute}"),
            version=more.pop("version", "1"),
            lines=sum(counts.values()),
            counts=[(at, id, level, count) for id, count in counts.items()],
            templates={id: f"template {id}" for id in counts},
            examples={id: [f"line of {id}"] for id in counts},
            **more,
        )
        return self.step(window)

    def step(self, window: Window) -> list[Change]:
        kept = msgspec.json.encode(self.state)  # as it is kept between two steps
        self.state, found = step("web", msgspec.json.decode(kept, type=State), window, self.limits)
        self.changes += found
        return found

    def tick(self, minutes_later: float) -> list[Change]:
        return self.step(Window(at=START + (self.minute + minutes_later) * MINUTE))

    def usual(self, minutes: int) -> list[Change]:
        return [change for n in range(minutes) for change in self.write({"a": 10 + n % 3, "b": 5})]


def kinds(changes: list[Change]) -> list[tuple[str, str, bool]]:
    return [(each.kind, each.template_id, each.over) for each in changes]


def test_ordinary_minutes_are_no_incident() -> None:
    assert Service().usual(200) == []


def test_a_spike_is_one_incident_until_it_was_quiet_for_a_while() -> None:
    web = Service()
    web.usual(40)
    (change,) = web.write({"a": 200})
    assert (change.kind, change.template_id, change.count, change.usual) == ("spike", "a", 200, 11)
    assert change.template == "template a" and change.examples == ["line of a"]
    assert web.write({"a": 220}) == web.write({"a": 230}) == [], "the same incident goes on"
    (over,) = web.usual(20)
    assert over.over and over.fingerprint == change.fingerprint and over.since == change.since and over.count == 230
    (again,) = web.write({"a": 300})
    assert again.fingerprint == change.fingerprint and again.since != change.since, "another incident of its kind"


def test_rare_lines_may_come_a_few_times_more() -> None:
    web = Service()
    for n in range(60):
        web.write({"a": 10, **({"rare": 1} if n % 10 == 0 else {})})
    assert web.write({"a": 10, "rare": 4}) == []
    assert kinds(web.write({"a": 10, "rare": 40})) == [("spike", "rare", False)]


def test_many_spikes_at_once_are_one_incident() -> None:
    web = Service()
    many = [f"t{n}" for n in range(30)]
    for _ in range(40):
        web.write(dict.fromkeys(many, 3))
    assert kinds(web.write(dict.fromkeys(many, 90))) == [("spike", "", False)]


def test_a_service_that_is_not_known_yet_is_only_learnt() -> None:
    web = Service()
    web.usual(12)
    assert web.write({"a": 500}) == []


def test_late_lines_are_counted_and_alert_nobody() -> None:
    web = Service()
    web.usual(40)
    before = web.state.lines
    assert web.write({"a": 900}, minute=10) == []
    assert (web.state.lines - before, web.state.late) == (900, 900)
    assert web.write({"a": 11}, minute=38) == [] and web.state.late == 900, "two minutes are not late"


def test_an_object_that_comes_again_counts_once() -> None:
    web = Service()
    web.usual(40)
    first = web.write({"a": 15}, minute=40, source="same")
    state = web.state
    assert first == web.write({"a": 15}, minute=40, source="same") == [] and web.state == state
    for _ in range(20):
        web.write({"a": 15}, minute=40, source="same")
    assert web.state.minutes["a"][START + 40 * MINUTE] == 15
    web.write({"a": 18}, minute=40, source="same", version="longer")
    assert web.state.minutes["a"][START + 40 * MINUTE] == 18, "a file that grows counts for what is new in it"


def test_silence_begins_by_ticks_and_is_over_with_the_next_object() -> None:
    web = Service()
    web.usual(30)
    assert web.tick(10) == []
    (change,) = web.tick(16)
    assert (change.kind, change.template_id, change.over, change.severity) == ("silence", "", False, "error")
    assert web.tick(17) == [], "told once"
    web.minute += 40
    assert kinds(web.usual(1)) == [("silence", "", True)]


def test_a_service_that_writes_once_an_hour_is_not_silent_in_between() -> None:
    web = Service()
    for _ in range(10):
        web.write({"a": 10})
        web.minute += 59
    assert web.tick(100) == []
    assert kinds(web.tick(320)) == [("silence", "", False)]


def test_a_heartbeat_that_stops_is_told_while_others_go_on() -> None:
    web = Service()
    for _ in range(60):
        web.write({"a": 10, "heartbeat": 1})
    found = [change for _ in range(15) for change in web.write({"a": 10})]
    assert kinds(found) == [("silence", "heartbeat", False)]
    assert kinds(web.write({"a": 10, "heartbeat": 1})) == [("silence", "heartbeat", True)]


def test_more_errors_than_usual_for_the_hour() -> None:
    web = Service()
    for hour in range(10):
        web.minute = hour * 60
        web.write({"a": 500})
        web.write({"e": 4 + hour % 2}, level="error")
    web.minute = 10 * 60
    web.write({"a": 500})
    assert web.write({"e": 9}, level="error") == []
    (change,) = web.write({"e": 25}, level="error")
    assert (change.kind, change.severity, change.count) == ("errors", "error", 34)
    assert change.examples == ["line of e"]
    web.minute += 20
    assert kinds(web.usual(1)) == [("errors", "", True)]


def test_an_hour_is_compared_with_its_like() -> None:
    weeks = {hour: 100 if hour % 168 == 7 else 1 for hour in range(168 * 4)}
    assert usual_hours(weeks, 168 * 4 + 7) == [100] * 4, "the same hour of other weeks"
    days = {hour: hour % 24 for hour in range(24 * 6)}
    assert usual_hours(days, 24 * 6 + 5) == [5] * 6
    assert usual_hours({1: 3, 2: 3}, 5) == []


def test_bounds_of_what_is_usual() -> None:
    assert upper([0] * 60) == 0 and upper([1] * 60) >= 7
    assert upper([100, 102, 98, 100, 101]) >= 100 + 5 * 10
    assert poisson(0.0) == 0 and 6 <= poisson(1.0) <= 10 and poisson(1000) == pytest.approx(1158, abs=2)


def test_odd_sequences_are_told_after_enough_were_learnt() -> None:
    web = Service()
    for n in range(60):
        web.write({"a": 1}, sessions=[(f"r{n}", ["open", "work", "close"])])
    assert web.state.sequences.seen >= 30
    web.write({"a": 1}, sessions=[("bad", ["open", "work"])])
    found = web.usual(8)
    assert kinds(found) == [("sequence", "", False)]
    assert "in these numbers" in found[0].why and found[0].examples[0].startswith("bad: ")
    web.write({"a": 1}, sessions=[("half", ["open", "work"])])
    web.write({"a": 1}, sessions=[("half", ["close"])])
    assert kinds(web.usual(30)) == [("sequence", "", True)], "a sequence may come in two objects"


def test_a_new_pattern_is_over_when_it_was_not_seen_for_a_while_and_is_no_spike_beside() -> None:
    web = Service()
    web.usual(40)
    assert web.write({"n": 90}, level="error", fresh=["n"]) == []
    assert web.usual(10) == []
    web.write({"n": 3}, level="error")
    assert web.usual(14) == []
    assert kinds(web.usual(2)) == [("new-pattern", "n", True), ("new-patterns", "", True)]


def test_the_state_stays_small() -> None:
    web = Service()
    for n in range(300):
        web.write({f"t{n}-{m}": 1 for m in range(20)}, sessions=[(f"k{n}-{m}", ["a"]) for m in range(50)])
    assert len(web.state.minutes) <= 400 and len(web.state.sources) <= 500
    assert len(msgspec.json.encode(web.state)) < 200_000


def test_the_state_stays_small_whatever_keys_and_sequences_come() -> None:
    web = Service()
    for n in range(60):
        web.write({"a": 1}, sessions=[(f"r{n}", ["open", "work", "close"])])
    many = [f"e{place:011}" for place in range(400)]
    for n in range(12):
        web.write({"a": 1}, sessions=[(f"k{n}-{m}", [f"{n:04}{m:08}", *many]) for m in range(40)])
    assert len(web.state.odd) == 200
    web.write({"a": 1}, sessions=[(f"l{m}", many) for m in range(300)])
    assert 90_000 < sum(len(each.events) for each in web.state.sessions.values()) <= 100_000
    for _ in range(2):  # what comes often stays among those that are remembered
        web.write({"a": 1}, sessions=[(f"s{web.state.newest}", ["zz"])])
        web.usual(8)
    assert web.state.odd["zz:1"] == 2
