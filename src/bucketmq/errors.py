"""What can go wrong, grouped by what the caller does next.

```
BucketMQError
├── Invalid        fix the call: a bad name, size, option or URL
│   └── Unfit      a value does not fit the model it was asked for as; bury the message, or change the model
├── NotFound       there is no such bucket, queue or message
├── LeaseLost      stop: the lease is over, and another receiver may have the message
├── Contended      back off, or add shards: too many writers want the same object
├── Unavailable    retry later: the store did not answer, or not in time
├── Denied         fix credentials or permissions
├── Unsupported    choose another store or option: this one cannot do what is asked
└── Corrupt        stop and look: stored bytes are not what the format says
```

Every message says what happened, to what, and what to do. All of them pickle, because they cross process borders.
Expected outcomes (an empty queue, a refused write) are values, never exceptions.
"""

from __future__ import annotations

from typing import ClassVar


class BucketMQError(Exception):
    """The root: catch this to catch everything that this library raises on purpose."""

    kind: ClassVar[str] = "error"


class Invalid(BucketMQError, ValueError):
    """The call is wrong as written; repeating it cannot help."""

    kind = "invalid"


class Unfit(Invalid):
    """A value does not fit the model it was asked for as. `path` says where, as in `$.items[2].price`."""

    kind = "unfit"

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message, path)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class NotFound(BucketMQError, LookupError):
    """The bucket, queue, subscription or message named in the call does not exist."""

    kind = "not_found"


class LeaseLost(BucketMQError):
    """The receipt is stale: the lease is over, or the message was settled already. Nothing was changed."""

    kind = "lease_lost"


class Contended(BucketMQError):
    """Other writers were faster, as often as was tried. Back off and try again, or raise the shard count."""

    kind = "contended"


class Unavailable(BucketMQError):
    """The store failed, or did not answer, for longer than the retry budget. The same call may work later."""

    kind = "unavailable"


class Denied(BucketMQError):
    """The store refused the credentials, or they lack a permission."""

    kind = "denied"


class Unsupported(BucketMQError):
    """This store, or this installation, cannot do what was asked."""

    kind = "unsupported"


class Corrupt(BucketMQError):
    """Stored bytes are not what `docs/format` allows. Nothing was changed."""

    kind = "corrupt"
