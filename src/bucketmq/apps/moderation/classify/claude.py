"""Claude as a classifier, through the `anthropic` SDK: one request for each post, many at a time.

Retries, waiting and money are decided here; the words are `prompt`'s, reading answers is `answer`'s, counting is
`budget`'s, and many posts at half the price in hours rather than seconds are `batches`'.

The SDK could try again by itself, but it waits for as long as a server tells it to, counts nothing, and reports
nothing. So it is asked to try once, and the loop is here: `Retry-After` is kept for all threads of the classifier, up
to a limit beyond which the API counts as unavailable.

The key is read from the environment or given, and lives in the SDK's client alone: it is not in settings, texts, errors
or pickles. A classifier that is sent to another process takes the key from the environment there.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from bucketmq.apps.moderation.classify.addressed import speaks_to_the_judge
from bucketmq.apps.moderation.classify.answer import Message, Usage, decode, verdict_of
from bucketmq.apps.moderation.classify.budget import Budget, Limits, Spent, Taken
from bucketmq.apps.moderation.classify.prompt import (
    PROMPT,
    TEXT_CHARS_MAX,
    input_tokens_at_most,
    request,
)
from bucketmq.apps.moderation.record import Post, Verdict
from bucketmq.errors import BucketMQError, Denied, Invalid, Unavailable, Unsupported

if TYPE_CHECKING:
    from anthropic import Anthropic

MODEL = "claude-haiku-5-5"
BASE_URL = "https://api.anthropic.com"
OUTAGES_MAX = 3
"""After so many posts in a row for which the API had no answer, the rest of a call is not asked."""


class ClaudeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers and names a user may choose. Holds no secret, and may be sent to other processes."""

    model: str = MODEL
    base_url: str = BASE_URL
    concurrency: int = 4
    """Requests at a time, from all threads of the process that share the classifier."""
    attempts_max: int = 4
    """How often a post is sent while the API is busy or silent."""
    timeout_seconds: float = 60.0
    """The longest silence of the API within one attempt."""
    wait_seconds_max: float = 60.0
    """The longest wait between two attempts. A longer `Retry-After` means that the API is unavailable now."""
    output_tokens_max: int = 1024
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        for name in ("concurrency", "attempts_max", "output_tokens_max", "timeout_seconds"):
            if not getattr(self, name) > 0:
                raise Invalid(f"{name} must be more than 0, not {getattr(self, name)}")
        if not self.base_url.startswith(("https://", "http://")) or "@" in self.base_url:
            raise Invalid("base_url must begin with https:// and have no user or password in it")
        if not self.model:
            raise Invalid("model must not be empty")


PLAIN_SETTINGS = ClaudeSettings()


def settings_of(environ: Mapping[str, str], settings: ClaudeSettings = PLAIN_SETTINGS) -> ClaudeSettings:
    """The settings with what the environment says: `ANTHROPIC_MODEL` and `ANTHROPIC_BASE_URL`."""
    return msgspec.structs.replace(
        settings,
        model=environ.get("ANTHROPIC_MODEL") or settings.model,
        base_url=environ.get("ANTHROPIC_BASE_URL") or settings.base_url,
    )


class Claude:
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
        self.budget = Budget(settings.limits)
        self._client = connect(settings, api_key)
        self._pace = _Pace(sleep)
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
    def spent(self) -> Spent:
        """What this process spent in the window that runs now."""
        return self.budget.spent

    def close(self) -> None:
        """Wait for requests under way and close the connections."""
        self._pool.shutdown()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Claude(model={self.settings.model!r})"

    def __reduce__(self) -> tuple[type[Claude], tuple[ClaudeSettings]]:
        return Claude, (self.settings,)

    def _judge(self, post: Post, call: _Call) -> Verdict:
        if (why := not_shown(post)) is not None:
            call.answered()
            return self._doubt(why)
        mark = secrets.token_hex(8)
        asked = request(post, mark=mark, model=self.settings.model, output_tokens_max=self.settings.output_tokens_max)
        at_most = Usage(input_tokens_at_most(asked), self.settings.output_tokens_max)
        for attempt in range(self.settings.attempts_max):
            if call.over:
                return self._doubt("it was not asked, because the API gave no answer to the posts before")
            taken = self.budget.take(at_most)
            if isinstance(taken, str):
                call.answered()
                return self._doubt(taken)
            self._pace.wait()
            match self._ask(asked, taken):
                case Message() as message:
                    call.answered()
                    return _after(attempt + 1, after_all(post, verdict_of(message, mark=mark)))
                case _Later(why, seconds):
                    last = why
                    if seconds is not None and seconds > self.settings.wait_seconds_max:
                        break
                    if attempt + 1 < self.settings.attempts_max:
                        self._pace.hold(seconds if seconds is not None else self._backoff(attempt))
                case BucketMQError() as error:
                    call.refuse(error)
                    return self._doubt(str(error))
                case str(why):
                    call.answered()
                    return _after(attempt + 1, self._doubt(why))
        call.unanswered(last)
        return _after(attempt + 1, self._doubt(f"the API gave no answer: {last}"))

    def _ask(self, asked: dict[str, Any], taken: Taken) -> Message | _Later | BucketMQError | str:
        """One attempt. Every way in which it can end is a value; the SDK's errors carry the key and stay here."""
        import anthropic

        try:
            raw = self._client.messages.with_raw_response.create(**asked)
            message = decode(raw.http_response.content)
        except anthropic.APIStatusError as error:
            self.budget.settle(taken, None)
            return _refusal(error.status_code, error.response.headers, self.settings)
        except anthropic.APIConnectionError as error:
            # The request may have arrived: what was set aside stays spent.
            silent = isinstance(error, anthropic.APITimeoutError)
            return _Later(f"no answer within {self.settings.timeout_seconds:g} s" if silent else "no connection")
        except anthropic.AnthropicError as error:
            return f"the SDK could not read the API's answer ({type(error).__name__})"
        if message is None:
            return "the API's answer is not a message"
        self.budget.settle(taken, message.usage)
        return message

    def _backoff(self, attempt: int) -> float:
        return min(self.settings.wait_seconds_max, 2.0**attempt) * random.uniform(0.5, 1.0)

    def _doubt(self, why: str) -> Verdict:
        return Verdict((), self.settings.model, prompt=PROMPT, doubt=f"{self.settings.model} gave no judgement: {why}")


def connect(settings: ClaudeSettings, api_key: str) -> Anthropic:
    """The SDK's client: it tries once, and the key is in it and nowhere else."""
    try:
        from anthropic import Anthropic
    except ImportError:
        raise Unsupported("Claude needs the package anthropic; run: pip install 'bucketmq[claude]'") from None
    key = api_key or os.environ.get("ANTHROPIC_API_KEY", "")
    if not key:
        raise Invalid("there is no key for Claude; set ANTHROPIC_API_KEY in the environment of this process")
    return Anthropic(api_key=key, base_url=settings.base_url, max_retries=0, timeout=settings.timeout_seconds)


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


class _Later(msgspec.Struct, frozen=True):
    """The API is busy or silent. `seconds` is what it asks for, if it does."""

    why: str
    seconds: float | None = None


def _refusal(status: int, headers: Mapping[str, str], settings: ClaudeSettings) -> _Later | BucketMQError | str:
    """What a status other than success means. The API's own words may quote the post and are not repeated."""
    if status in (408, 409, 429) or status >= 500:
        return _Later(f"status {status}", _retry_after(headers))
    if status in (401, 403):
        return Denied(f"{settings.base_url} refused the key with status {status}; check ANTHROPIC_API_KEY")
    if status == 404:
        return Invalid(f"{settings.base_url} knows no model {settings.model!r}; set ANTHROPIC_MODEL to one that it has")
    return f"the API refused the request with status {status}"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """How long the API asks to wait: in milliseconds, seconds, or until a date."""
    try:
        if given := headers.get("retry-after-ms"):
            return max(0.0, float(given) / 1000)
        if given := headers.get("retry-after"):
            if given.strip().replace(".", "", 1).isdigit():
                return float(given)
            return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, OverflowError):
        pass
    return None


class _Pace:
    """When the next request may be sent: a wait that one thread was told is kept by all."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before = 0.0

    def hold(self, seconds: float) -> None:
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)

    def wait(self) -> None:
        with self._lock:
            seconds = self._not_before - time.monotonic()
        if seconds > 0:
            self._sleep(seconds)


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
