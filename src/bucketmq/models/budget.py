"""How much a client of a model may spend in this process: requests, tokens and money, each over a window of time.

What a request may cost at most is set aside before it is sent and put right when its answer says what it cost. A
request that got no answer may have been billed, so what was set aside for it stays spent. Prices are the user's to
state: they change, and a limit in money must not rest on a guess.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from bucketmq.errors import Invalid

CACHE_WRITE, CACHE_READ = 1.25, 0.1
"""What tokens written to and read from the provider's cache cost, against plain ones."""


class Usage(msgspec.Struct, frozen=True):
    """How many tokens a call was billed for."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class Limits(msgspec.Struct, frozen=True):
    """What may be spent in each `window_seconds`, by one process. None is without limit."""

    requests_max: int | None = None
    tokens_max: int | None = None
    """Input and output together, cached ones included."""
    usd_max: float | None = None
    input_usd_per_million: float | None = None
    output_usd_per_million: float | None = None
    window_seconds: float = 86_400.0

    def __post_init__(self) -> None:
        for name in ("requests_max", "tokens_max", "usd_max", "input_usd_per_million", "output_usd_per_million"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise Invalid(f"{name} must be 0 or more, not {value}")
        if not self.window_seconds > 0:
            raise Invalid(f"window_seconds must be more than 0, not {self.window_seconds}")
        priced = self.input_usd_per_million is not None and self.output_usd_per_million is not None
        if self.usd_max is not None and not priced:
            raise Invalid("usd_max needs prices: set input_usd_per_million and output_usd_per_million for your model")


class Spent(msgspec.Struct, frozen=True):
    """What was spent in the window, or is set aside for one request."""

    requests: int = 0
    tokens: int = 0
    usd: float = 0.0

    def plus(self, other: Spent, sign: int = 1) -> Spent:
        return Spent(
            self.requests + sign * other.requests, self.tokens + sign * other.tokens, self.usd + sign * other.usd
        )


class Taken(msgspec.Struct, frozen=True):
    """What was set aside for a request, and in which window."""

    spent: Spent
    window: int
    discount: float


class Budget:
    """Counts what one process spends. Safe to share between threads."""

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._window = 0
        self._spent = Spent()

    @property
    def spent(self) -> Spent:
        """In the window that runs now."""
        with self._lock:
            self._turn()
            return self._spent

    def take(self, usage: Usage, *, discount: float = 1.0) -> Taken | str:
        """Set aside what a request costs at most, or say which limit forbids it."""
        with self._lock:
            self._turn()
            one = self._cost(usage, discount)
            after = self._spent.plus(one)
            for name, limit, value in (
                ("requests", self._limits.requests_max, after.requests),
                ("tokens", self._limits.tokens_max, after.tokens),
                ("US dollars", self._limits.usd_max, after.usd),
            ):
                if limit is not None and value > limit:
                    return f"the budget of {limit:g} {name} in {self._limits.window_seconds:g} s is spent"
            self._spent = after
            return Taken(one, self._window, discount)

    def settle(self, taken: Taken, usage: Usage | None) -> None:
        """Put right what was set aside. Without a usage nothing was billed; the request itself stays counted."""
        cost = Spent(requests=1) if usage is None else self._cost(usage, taken.discount)
        with self._lock:
            self._turn()
            if taken.window == self._window:
                self._spent = self._spent.plus(taken.spent, -1).plus(cost)

    def _turn(self) -> None:
        window = int((self._clock() - self._began) // self._limits.window_seconds)
        if window != self._window:
            self._window, self._spent = window, Spent()

    def _cost(self, usage: Usage, discount: float) -> Spent:
        written, read = usage.cache_creation_input_tokens or 0, usage.cache_read_input_tokens or 0
        tokens = usage.input_tokens + usage.output_tokens + written + read
        priced_in = usage.input_tokens + CACHE_WRITE * written + CACHE_READ * read
        usd = priced_in * (self._limits.input_usd_per_million or 0.0)
        usd += usage.output_tokens * (self._limits.output_usd_per_million or 0.0)
        return Spent(1, tokens, discount * usd / 1e6)
