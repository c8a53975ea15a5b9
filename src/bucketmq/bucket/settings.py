"""The options of one store, as `bucketmq.bucket.urls` found them, each checked when a store asks for it.

Messages name options and never show their values: some are secret. Which options mean what belongs to the stores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from bucketmq.errors import Invalid

SECRET_OPTIONS = frozenset({"secret_access_key", "session_token", "account_key", "sas_token"})

PLACE_OPTIONS = frozenset({"account", "emulator", "endpoint"})
"""Those that say where a bucket is: with another one of these it is another bucket."""

OPTIONS: dict[str, tuple[str, ...]] = {
    "memory": (),
    "file": ("timeout",),
    "s3": (
        "access_key_id",
        "anonymous",
        "ca_file",
        "connect_timeout",
        "endpoint",
        "profile",
        "region",
        "secret_access_key",
        "session_token",
        "tigris",
        "timeout",
        "unquoted_etags",
        "virtual_hosted",
    ),
    "gs": ("anonymous", "connect_timeout", "credentials", "endpoint", "timeout"),
    "az": ("account", "account_key", "anonymous", "connect_timeout", "emulator", "endpoint", "sas_token", "timeout"),
}
"""Scheme of the URL -> the options it has. Explained for users at `bucketmq.bucket.urls.open_store`."""

_SECONDS_MAX = 3600


class Settings:
    """Named values of one scheme. Its `repr` shows the names only."""

    def __init__(self, scheme: str, values: Mapping[str, str]) -> None:
        unknown = sorted(values.keys() - set(OPTIONS[scheme]))
        if unknown:
            names = ", ".join(repr(name[:40]) for name in unknown)
            raise Invalid(f"{scheme}:// has no option {names}; it has: {', '.join(OPTIONS[scheme]) or 'none'}")
        self._values = dict(values)

    def text(self, name: str) -> str | None:
        return self._values.get(name) or None

    def flag(self, name: str) -> bool:
        value = self._values.get(name, "false").lower()
        if value not in ("true", "false", "1", "0"):
            raise Invalid(f"option {name!r} must be true or false")
        return value in ("true", "1")

    def seconds(self, name: str, default: float) -> float:
        try:
            value = float(self._values.get(name, default))
        except ValueError:
            value = math.nan
        if not 0 < value <= _SECONDS_MAX:
            raise Invalid(f"option {name!r} must be seconds, above 0 and at most {_SECONDS_MAX}, like {name}=30")
        return value

    def __repr__(self) -> str:
        return f"Settings({', '.join(sorted(self._values))})"
