"""Secrets on the command line: where they are read from, and how they are shown.

A secret is never an argument of `rules`: arguments are seen by everybody on the machine and stay in the shell's
history. It is named (`env:NAME`, read by the process that delivers) or read from a file and kept in the bucket.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bucketmq.errors import Invalid
from bucketmq.events.rule import Secrets
from bucketmq.events.signing import SECRET_PREFIX

SHOWN_CHARS = 4
LONG_CHARS = 16
"""The end of a secret is shown only if what is not shown is long enough to be one."""


def given_secret(option: str, value: str | None, file: str | None) -> str | None:
    """A secret as `--option env:NAME` or `--option-file FILE` name it; None if neither does."""
    if value is not None and file is not None:
        raise Invalid(f"give {option} or {option}-file, not both")
    if value is not None and not value.removeprefix("env:").strip():
        raise Invalid(f"{option} env:NAME needs the name of a variable")
    if value is not None and not value.startswith("env:"):
        raise Invalid(
            f"{option} takes env:NAME, a variable of the process that delivers; a secret on the command line would be "
            f"seen by others: put it into a file and say {option}-file FILE ('-' reads standard input)"
        )
    return value if file is None else _read(option, file)


def _read(option: str, file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Invalid(f"cannot read {option}-file {file}: {reason}") from None
    if not text.strip():
        raise Invalid(f"{option}-file {file} is empty")
    return text.strip()


def masked(secret: str) -> str:
    """Enough of a secret to tell it from another."""
    if secret.startswith("env:"):
        return secret
    head = SECRET_PREFIX if secret.startswith(SECRET_PREFIX) else ""
    return head + "…" + (secret[-SHOWN_CHARS:] if len(secret) - len(head) >= LONG_CHARS else "")


def masked_secrets(secrets: Secrets) -> dict[str, Any]:
    """A rule's secrets as they may be shown; what there is none of is left out."""
    shown: dict[str, Any] = {}
    if secrets.signing:
        shown["signing"] = [masked(each) for each in secrets.signing]
    if secrets.bearer is not None:
        shown["bearer"] = masked(secrets.bearer)
    if secrets.basic is not None:
        user, colon, _ = secrets.basic.partition(":")
        shown["basic"] = secrets.basic if user == "env" or not colon else f"{user}:…"
    return shown
