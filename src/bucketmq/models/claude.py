"""Claude as a client, through the `anthropic` SDK: one question, tried again while the API is busy, within a budget.

What is asked and what an answer means is for the caller; retries, waiting and money are decided here, and counting is
`budget`'s.

The SDK could try again by itself, but it waits for as long as a server tells it to, counts nothing, and reports
nothing. So it is asked to try once, and the loop is here: `Retry-After` is kept for all threads of the client, up to a
limit beyond which the API counts as unavailable.

The key is read from the environment or given, and lives in the SDK's client alone: it is not in settings, texts, errors
or pickles. A client that is sent to another process takes the key from the environment there.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from bucketmq.errors import BucketMQError, Denied, Invalid, Unavailable, Unsupported
from bucketmq.models.budget import Budget, Limits, Spent, Taken, Usage

if TYPE_CHECKING:
    from anthropic import Anthropic

MODEL = "claude-haiku-5-5"
BASE_URL = "https://api.anthropic.com"


class Block(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True):
    """An answer of the Messages API, as far as it matters here."""

    content: tuple[Block, ...]
    model: str
    stop_reason: str | None
    usage: Usage = Usage()

    @property
    def text(self) -> str | None:
        """What it says, if that is one text and nothing else. A model may think aloud in blocks of their own."""
        blocks = [each for each in self.content if each.type not in ("thinking", "redacted_thinking")]
        return blocks[0].text or None if len(blocks) == 1 and blocks[0].type == "text" else None


def decode(body: bytes) -> Message | None:
    """The body of an answer of the API; None when it is not one."""
    try:
        return msgspec.json.decode(body, type=Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class ClaudeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers and names a user may choose. Holds no secret, and may be sent to other processes."""

    model: str = MODEL
    base_url: str = BASE_URL
    concurrency: int = 4
    """Requests at a time, from all threads of the process that share the client."""
    attempts_max: int = 4
    """How often a question is sent while the API is busy or silent."""
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


class Answered(msgspec.Struct, frozen=True):
    """The API answered. What the answer is worth is for the caller."""

    message: Message
    attempts: int


class Unanswered(msgspec.Struct, frozen=True):
    """There is no answer, and why. `error` is what is wrong with the key or the model, `silent` that the API is busy or
    out of reach, so that others need not be asked either; otherwise it is about this question alone."""

    why: str
    attempts: int = 0
    silent: bool = False
    error: BucketMQError | None = None


class OfSettings:
    """Made of settings and closed when done. Sent to another process it is made there of the settings alone."""

    settings: ClaudeSettings

    def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.settings.model!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[ClaudeSettings]]:
        return type(self), (self.settings,)


class ClaudeClient(OfSettings):
    """Asks Claude. Made once in a process, called from any thread; `close` when done."""

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

    def ask(self, asked: Mapping[str, Any], *, is_over: Callable[[], bool] = lambda: False) -> Answered | Unanswered:
        """Send one request of the Messages API, as JSON, until it is answered. Once `is_over`, it is not sent again.

        Every way in which it can end is a value: at least one request, `attempts_max` at most.
        """
        at_most = Usage(input_tokens_at_most(asked), asked["max_tokens"])
        last = ""
        for attempt in range(self.settings.attempts_max):
            if is_over():
                return Unanswered("it was not asked, because the API gave no answer before", attempt)
            taken = self.budget.take(at_most)
            if isinstance(taken, str):
                return Unanswered(taken, attempt)
            self._pace.wait()
            match self._try(asked, taken):
                case Message() as message:
                    return Answered(message, attempt + 1)
                case _Later(last, seconds):
                    if seconds is not None and seconds > self.settings.wait_seconds_max:
                        break
                    if attempt + 1 < self.settings.attempts_max:
                        self._pace.hold(seconds if seconds is not None else self._backoff(attempt))
                case BucketMQError() as error:
                    return Unanswered(str(error), attempt + 1, error=error)
                case str(why):
                    return Unanswered(why, attempt + 1)
        return Unanswered(last, attempt + 1, silent=True)

    def ask_text(self, instructions: str, content: Any, *, schema: Mapping[str, Any] | None = None) -> str:
        """The text of an answer, where there is no use for anything else.

        `content` is a text, or blocks of the Messages API; with `schema` the answer is JSON of that shape, which the
        caller checks. Raises `Unavailable` if there is no answer, and `Denied` or `Invalid` for a wrong key or model.
        """
        asked: dict[str, Any] = {
            "model": self.settings.model,
            "max_tokens": self.settings.output_tokens_max,
            "system": [{"type": "text", "text": instructions, "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": content}],
        }
        if schema is not None:
            asked["output_config"] = {"format": {"type": "json_schema", "schema": dict(schema)}}
        match self.ask(asked):
            case Answered(message) if message.stop_reason == "end_turn" and message.text:
                return message.text
            case Answered(message):
                reason = (message.stop_reason or "no reason given")[:40]
                raise Unavailable(f"{self.settings.model} gave no whole text ({reason})")
            case Unanswered(why, error=error):
                raise error if error is not None else Unavailable(f"{self.settings.model} gave no answer: {why}")

    @property
    def spent(self) -> Spent:
        """What this process spent in the window that runs now."""
        return self.budget.spent

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _try(self, asked: Mapping[str, Any], taken: Taken) -> Message | _Later | BucketMQError | str:
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


def input_tokens_at_most(parameters: Mapping[str, Any]) -> int:
    """More tokens than a request can have: what is set aside for it before its real number is known.

    Text takes about a token for four bytes and in no known case more than one for a byte; the schema counts as well.
    """
    return len(json.dumps(parameters, ensure_ascii=False).encode("utf-8", "replace"))


class _Later(msgspec.Struct, frozen=True):
    """The API is busy or silent. `seconds` is what it asks for, if it does."""

    why: str
    seconds: float | None = None


def _refusal(status: int, headers: Mapping[str, str], settings: ClaudeSettings) -> _Later | BucketMQError | str:
    """What a status other than success means. The API's own words may quote what was asked and are not repeated."""
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
