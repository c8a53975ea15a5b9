"""Confirming a subscription of SNS: the URL comes from outside, so it is fetched only if it is one of SNS' own."""

from __future__ import annotations

import asyncio
import logging

from bucketmq.events.parse import Confirm
from bucketmq.notify.addresses import check_sns_url
from bucketmq.notify.http import Poster
from bucketmq.procedures.requests import NoAnswer
from bucketmq.server.settings import ServerSettings
from bucketmq.server.wire import Refusal

CONFIRM_SECONDS = 5.0

log = logging.getLogger("bucketmq")


class Confirmer:
    """Asks SNS to begin to send. `close` when done."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._poster: Poster | None = None

    async def confirm(self, confirm: Confirm) -> None:
        """403 for a topic or URL that is not wanted, 503 when SNS does not agree."""
        topics, prefix = self._settings.sns_topics, self._settings.sns_prefix
        if topics and confirm.topic not in topics:
            log.warning("action=topic_refused topic=%.200s", confirm.topic)
            raise Refusal(403, "this topic is not among those that may send here", "name it with --sns-topic")
        url = confirm.url or ""
        if (why := check_sns_url(url, allowed_prefix=prefix)) is not None:
            log.warning("action=confirmation_refused why=%s", why)
            raise Refusal(403, "the SubscribeURL is not one of SNS", why)
        # Amazon's is at a public address; only the server that was named for tests may be on this machine.
        private = prefix is not None and check_sns_url(url) is not None
        if self._poster is None:
            self._poster = Poster()
        answer = await asyncio.to_thread(self._poster.get, url, timeout_seconds=CONFIRM_SECONDS, private=private)
        if isinstance(answer, NoAnswer) or not 200 <= answer.status < 300:
            why = answer.reason if isinstance(answer, NoAnswer) else f"HTTP {answer.status}"
            log.warning("action=confirmation_failed topic=%.200s why=%s", confirm.topic, why)
            raise Refusal(503, "SNS did not confirm the subscription", headers={"retry-after": "20"})

    def close(self) -> None:
        if self._poster is not None:
            self._poster.close()
