"""The ledgers against each other: every promise, in numbers. The log itself is trimmed, so they are all there is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def audit(ledgers: Path, dead: list[str]) -> tuple[list[str], dict[str, int]]:
    """What was broken, and how much there was of everything. `dead` are the ids of the dead letters."""
    notes: dict[str, Counter[str]] = {}
    for path in ledgers.glob("*.ledger"):
        with path.open() as lines:
            for line in lines:
                word, _, ids = line.rstrip("\n").partition(" ")
                notes.setdefault(word, Counter()).update(ids.split(","))
    tried, sent, got, begun, ok = (set(notes.get(word, ())) for word in ("try", "sent", "got", "ack", "ok"))
    buried = set(notes.get("buried", ()))
    problems = []

    def none_of(what: str, ids: set[str]) -> None:
        if ids:
            problems.append(f"{what}: {len(ids)}, such as {sorted(ids)[:3]}")

    none_of("LOST: sent, and neither acknowledged, dead, nor begun to be", sent - ok - begun - set(dead))
    none_of("LOST: sent and never delivered", sent - got)
    none_of("PHANTOM: delivered and never sent", got - tried)
    none_of("SETTLED TWICE", {id_ for id_, count in notes.get("ok", Counter()).items() if count > 1})
    none_of("DEAD TWICE", {id_ for id_, count in Counter(dead).items() if count > 1})
    none_of("ACKNOWLEDGED AND DEAD", ok & set(dead))
    none_of("BURIED and not among the dead letters", buried - set(dead))
    none_of("DEAD though nobody buried it", set(dead) - set(notes.get("bury", ())))
    none_of(
        "CHANGE LOST: reported and never seen by the watcher", set(notes.get("put", ())) - set(notes.get("seen", ()))
    )
    figures = {
        "sent": len(sent),
        "unknown sends": len(tried - sent),
        "of these delivered": len((tried - sent) & got),
        "deliveries": sum(notes.get("got", Counter()).values()),
        "acknowledged": len(ok),
        "acknowledged, unconfirmed": len((begun & got) - ok - set(dead)),
        "dead letters": len(dead),
        "changes": len(notes.get("put", ())),
        "changes seen": len(notes.get("seen", ())),
        "failures passed over": sum(notes.get("failed", Counter()).values()),
    }
    return problems, figures
