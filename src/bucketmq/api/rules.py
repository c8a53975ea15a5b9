"""What a user can ask of the rules of a bucket: which events go where, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

from bucketmq.api.opening import Opening
from bucketmq.api.options import RuleOptions
from bucketmq.api.times import start_of
from bucketmq.events import filters
from bucketmq.events.filters import Explanation
from bucketmq.events.rule import Rule, Secrets
from bucketmq.procedures.claiming.receive import Start
from bucketmq.procedures.pace import RATE_PER_SECOND
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules import registry, replay
from bucketmq.procedures.rules.replay import Matching, Replayed, Tested
from bucketmq.rulebook import ignore, make_rule, make_secrets

BODY_BYTES_MAX = 1 << 20


class RulesApi:
    """The rules of one bucket."""

    def __init__(self, bucket: Opening) -> None:
        self.bucket = bucket

    def add(
        self,
        name: str,
        *,
        to: str,
        filter: str = "",
        start: object = "now",
        existing: str | None = None,
        signing: str | Sequence[str] | None = None,
        bearer: str | None = None,
        basic: str | None = None,
        sign: bool = False,
        replace: bool = False,
        **options: Unpack[RuleOptions],
    ) -> Procedure[Rule]:
        """Make a rule: which events go where (`https://...` or `queue:NAME`), and how.

        `start` is "now", "beginning" or a time; `existing` is a prefix whose objects are sent to it first. `options`
        are those of a webhook (format, batch, timeout_seconds, private, statuses) and of the policy (retry_seconds,
        rate_per_second, concurrency, ordered, stale, gone, hops_max, ...).
        """
        rule = make_rule(name, filter, to, **options)
        secrets = make_secrets(signing, bearer, basic, sign=sign)
        return (yield from self.write(rule, secrets, start_of(start), existing=existing, replace=replace))

    def write(
        self,
        rule: Rule,
        secrets: Secrets | None = None,
        start: Start = "latest",
        *,
        existing: str | None = None,
        replace: bool = False,
    ) -> Procedure[Rule]:
        """What `add` does, for a rule that is made already."""
        bucket = yield from self.bucket.open()
        made = yield from registry.add_rule(bucket, rule, secrets, start, replace=replace)
        if existing is not None:
            yield from replay.replay_existing(bucket, made, existing)
        return made

    def list(self) -> Procedure[list[Rule]]:
        """All rules that are not removed, paused ones too."""
        found = yield from registry.list_rules((yield from self.bucket.open()))
        return [kept.rule for kept in found.values() if kept.rule.removed_at is None]

    def get(self, name: str) -> Procedure[Rule]:
        """The rule of this name. `NotFound` if there is none."""
        return (yield from registry.get_rule((yield from self.bucket.open()), name))

    def secrets(self, name: str) -> Procedure[Secrets]:
        """The secrets of a rule. Do not log them."""
        return (yield from registry.get_secrets((yield from self.bucket.open()), name))

    def change_secrets(self, name: str, change: Callable[[Secrets], Secrets]) -> Procedure[Secrets]:
        """Replace a rule's secrets by `change` of them, as `rulebook.rotated` does."""
        return (yield from registry.change_secrets((yield from self.bucket.open()), name, change))

    def pause(self, name: str, why: str = "") -> Procedure[Rule]:
        """Stop delivering; what happens meanwhile is kept."""
        return (yield from registry.pause_rule((yield from self.bucket.open()), name, why))

    def resume(self, name: str) -> Procedure[Rule]:
        """Deliver again, beginning with what was kept."""
        return (yield from registry.resume_rule((yield from self.bucket.open()), name))

    def remove(self, name: str) -> Procedure[Rule]:
        """Remove a rule and what it has not delivered."""
        return (yield from registry.remove_rule((yield from self.bucket.open()), name))

    def tidy(self) -> Procedure[int]:
        """Delete what removed rules left behind; `notify` does this by itself."""
        return (yield from registry.tidy_rules((yield from self.bucket.open())))

    def explain(self, filter: str) -> Explanation:
        """How a filter is understood and what it costs. No request."""
        return filters.explain(filters.parse(filter))

    def test(self, filter: str, key: str, *, kind: str = "created") -> Procedure[Tested]:
        """Whether a filter matches a key as it is in the bucket now, and why not. A HEAD, and a GET if it is needed."""
        chosen = filters.parse(filter)
        return (yield from replay.test_key((yield from self.bucket.open()), chosen, key, kind, BODY_BYTES_MAX))

    def matching(self, filter: str, prefix: str = "", *, limit: int = 1_000) -> Procedure[Matching]:
        """Which objects of the live bucket a filter matches."""
        chosen = filters.parse(filter)
        return (yield from replay.matching((yield from self.bucket.open()), chosen, prefix, limit))

    def replay(
        self,
        name: str,
        *,
        key: str | None = None,
        prefix: str | None = None,
        since: float | None = None,
        until: float | None = None,
        rate_per_second: float = RATE_PER_SECOND,
        dry_run: bool = False,
        progress: Callable[[int], None] = ignore,
    ) -> Procedure[Replayed]:
        """Send events again to this rule alone, under the same ids: `key=` or `prefix=` for what is there now, `since=`
        and `until=` (seconds since 1970) for what happened then, narrowed by either."""
        bucket = yield from self.bucket.open()
        rule = yield from registry.get_rule(bucket, name)
        return (
            yield from replay.replay(
                bucket,
                rule,
                key=key,
                prefix=prefix,
                since=since,
                until=until,
                rate_per_second=rate_per_second,
                dry_run=dry_run,
                progress=progress,
            )
        )
