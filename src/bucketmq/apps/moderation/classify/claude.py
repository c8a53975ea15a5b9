"""Claude as a classifier: one request for each post, many at a time.

The words are `prompt`'s, reading answers is `answer`'s, and many posts at half the price in hours rather than seconds
are `batches`'. Retries, waiting and money are those of the client, `bucketmq.models.claude`.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from bucketmq.apps.moderation.classify.addressed import speaks_to_the_judge
from bucketmq.apps.moderation.classify.answer import verdict_of
from bucketmq.apps.moderation.classify.prompt import PROMPT, TEXT_CHARS_MAX, request
from bucketmq.apps.moderation.record import Post, Verdict
from bucketmq.errors import BucketMQError, Unavailable
from bucketmq.models.budget import Budget, Spent
from bucketmq.models.claude import PLAIN_SETTINGS, Answered, ClaudeClient, ClaudeSettings, OfSettings, Unanswered

OUTAGES_MAX = 3
"""After so many posts in a row for which the API had no answer, the rest of a call is not asked."""


class Claude(OfSettings):
    """A classifier that asks Claude about each post. `close` when done.

    Raises `Unavailable` if the API gave no answer for any post of a call, and `Denied` or `Invalid` if it refuses the
    key or the model. Everything else that goes wrong is a doubt about the post it happened to.
    """

    def __init__(
        self,
        settings: ClaudeSettings = PLAIN_SETTINGS,
        *,
        api_key: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Without `api_key`, `ANTHROPIC_API_KEY` is read."""
        self.settings = settings
        self._client = ClaudeClient(settings, api_key=api_key, sleep=sleep)
        self._pool = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="bucketmq-claude")

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order; at least one request for each that is not too long."""
        call = _Call()
        judged = list(self._pool.map(lambda post: self._judge(post, call), posts))
        if call.refused is not None:
            raise call.refused
        if posts and call.silent is not None and not call.answers:
            raise Unavailable(
                f"Claude at {self.settings.base_url} judged none of {len(posts)} posts ({call.silent}); try again later"
            )
        return judged

    @property
    def budget(self) -> Budget:
        return self._client.budget

    @property
    def spent(self) -> Spent:
        """What this process spent in the window that runs now."""
        return self.budget.spent

    def close(self) -> None:
        """Wait for requests under way and close the connections."""
        self._pool.shutdown()
        self._client.close()

    def _judge(self, post: Post, call: _Call) -> Verdict:
        if (why := not_shown(post)) is not None:
            call.answered()
            return no_judgement(why, self.settings)
        mark, asked = question(post, self.settings)
        match self._client.ask(asked, is_over=lambda: call.over):
            case Answered(message, attempts):
                call.answered()
                return _after(attempts, after_all(post, verdict_of(message, mark=mark)))
            case Unanswered(why, attempts, silent, error):
                if error is not None:
                    call.refuse(error)
                elif silent:
                    call.unanswered(why)
                    why = f"the API gave no answer: {why}"
                elif not call.over:
                    call.answered()
                return _after(attempts, no_judgement(why, self.settings))


def question(post: Post, settings: ClaudeSettings) -> tuple[str, dict[str, Any]]:
    """What is asked about a post, and the mark that its answer must repeat."""
    mark = secrets.token_hex(8)
    return mark, request(post, mark=mark, model=settings.model, output_tokens_max=settings.output_tokens_max)


def no_judgement(why: str, settings: ClaudeSettings) -> Verdict:
    return Verdict((), settings.model, prompt=PROMPT, doubt=f"{settings.model} gave no judgement: {why}")


def not_shown(post: Post) -> str | None:
    """Why a post is not sent to a model at all."""
    if len(post.text) + len(post.media_url or "") > TEXT_CHARS_MAX:
        return f"the post is longer than {TEXT_CHARS_MAX} characters"
    return None


def after_all(post: Post, verdict: Verdict) -> Verdict:
    """The verdict, with a doubt if the post talks to the model: then its word that nothing is wrong does not count."""
    if verdict.doubt is None and not verdict.violation and (why := speaks_to_the_judge(post)) is not None:
        return msgspec.structs.replace(verdict, doubt=why)
    return verdict


def _after(attempts: int, verdict: Verdict) -> Verdict:
    return msgspec.structs.replace(verdict, attempts=attempts)


class _Call:
    """What the posts of one call have in common: whether the API answers at all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._row = 0
        self.answers = 0
        self.silent: str | None = None
        self.refused: BucketMQError | None = None

    @property
    def over(self) -> bool:
        return self.refused is not None or self._row >= OUTAGES_MAX

    def answered(self) -> None:
        with self._lock:
            self._row = 0
            self.answers += 1

    def unanswered(self, why: str) -> None:
        with self._lock:
            self._row += 1
            self.silent = why

    def refuse(self, error: BucketMQError) -> None:
        with self._lock:
            self.refused = error
