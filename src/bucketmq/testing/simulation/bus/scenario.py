"""The rules of a run: what each wants, said twice: as a filter, and plainly, so that the one checks the other."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bucketmq.api.watching import Watcher
from bucketmq.events.rule import Destination, Policy, Rule, ToQueue, Webhook
from bucketmq.procedures.rules.fan_in import Gather
from bucketmq.testing.simulation.bus.plan import LEASE_SECONDS, RETRY_SECONDS, Plan

THERE = frozenset({"created", "changed", "moved"})
HUMANS, LEDGER, ARCHIVE, TEMP, ROUTER, PAIRS = "humans", "ledger", "archive", "temp", "router", "pairs"
DEADLINE_SECONDS = 25.0
TIMEOUT_SECONDS = 2.0
PAIR = ("parts/{set}/a.json", "parts/{set}/b.json")

WATCHER_POLICY = Policy(retry_seconds=RETRY_SECONDS, gone="drop", concurrency=2, lease_seconds=LEASE_SECONDS)


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One rule to a webhook or a queue, and what it wants."""

    rule: Rule
    wants: Callable[[str, str], bool]
    """Of an object's key and the kind of its change."""
    deletions: bool
    all_states: bool
    """Whether every state that was reported must arrive, or only the last one."""


def specs(plan: Plan) -> list[Spec]:
    """The rules that are there from the beginning."""
    made = []
    if plan.moderation:
        made.append(
            _spec(
                HUMANS,
                "WHERE `key` REGEXP '^flagged/' AND `kind` IN ('created', 'changed', 'moved')",
                _webhook(HUMANS, 1),
                msgspec.structs.replace(plan.policy, ordered=False, stale="deliver"),
                lambda key, kind: key.startswith("flagged/") and kind in THERE,
                deletions=False,
            )
        )
    if plan.documents:
        made.append(
            _spec(
                LEDGER,
                "WHERE `key` REGEXP '^(docs|kept)/'",
                _webhook(LEDGER, plan.batch),
                plan.policy,
                lambda key, _: key.startswith(("docs/", "kept/")),
                deletions=True,
            )
        )
    if plan.archive:
        made.append(
            _spec(
                ARCHIVE,
                "WHERE `key` LIKE 'docs/%' OR `key` LIKE 'approved/%'",
                ToQueue(queue=ARCHIVE),
                Policy(retry_seconds=RETRY_SECONDS, lease_seconds=LEASE_SECONDS),
                lambda key, _: key.startswith(("docs/", "approved/")),
                deletions=True,
            )
        )
    return made


def temp_spec(plan: Plan) -> Spec:
    """The rule that comes later, is paused, removed or replayed."""
    return _spec(
        TEMP,
        "WHERE `key` LIKE 'docs/%' AND NOT `kind` = 'deleted'",
        _webhook(TEMP, 1),
        Policy(retry_seconds=RETRY_SECONDS, breaker=plan.policy.breaker, lease_seconds=LEASE_SECONDS),
        lambda key, kind: key.startswith("docs/") and kind != "deleted",
        deletions=False,
    )


def watchers(plan: Plan, route: Callable[[object], object], complete: Callable[[object], object]) -> dict[str, Watcher]:
    made = {}
    if plan.moderation:
        text = 'WHERE `key` REGEXP "^pending/"'
        batch = plan.together if plan.together > 1 else None
        made[ROUTER] = Watcher(ROUTER, text, route, WATCHER_POLICY, "latest", batch=batch)
    if plan.fan_in:
        gather = Gather(PAIR, DEADLINE_SECONDS if plan.deadline else None)
        policy = msgspec.structs.replace(WATCHER_POLICY, gone="deliver")
        made[PAIRS] = Watcher(PAIRS, gather.filter(), complete, policy, "latest", gather)
    return made


def _spec(
    name: str, text: str, to: Destination, policy: Policy, wants: Callable[[str, str], bool], *, deletions: bool
) -> Spec:
    rule = Rule(name=name, filter=text, to=to, policy=policy)
    return Spec(rule=rule, wants=wants, deletions=deletions, all_states=policy.stale == "deliver")


def _webhook(name: str, batch: int) -> Webhook:
    return Webhook(url=url_of(name), batch=batch, timeout_seconds=TIMEOUT_SECONDS)


def url_of(name: str) -> str:
    return f"https://{name}.example/hook"


def rule_at(url: str) -> str:
    return url.removeprefix("https://").partition(".")[0]
