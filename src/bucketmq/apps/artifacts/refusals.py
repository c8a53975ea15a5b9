"""The two refusals that are this application's own. Everything else is raised as `bucketmq.errors` has it."""

from __future__ import annotations

from collections.abc import Sequence

from bucketmq.errors import Corrupt, Denied

SHOWN_MAX = 5


class Untrusted(Corrupt):
    """What lies in the bucket is not what somebody who may sign it has signed. Do not use it, and find out why."""

    kind = "untrusted"


class Gated(Denied):
    """A promotion is not allowed yet. Nothing was changed; the message says what is missing."""

    kind = "gated"


def listed(problems: Sequence[str]) -> str:
    """Problems as one text, not more of them than anybody reads."""
    more = f"; and {len(problems) - SHOWN_MAX} more" if len(problems) > SHOWN_MAX else ""
    return "; ".join(problems[:SHOWN_MAX]) + more
