"""Who may come in to a page for people, from the command line: what several verbs share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bucketmq.errors import Invalid

if TYPE_CHECKING:
    from bucketmq.server.gate import GateSettings


def gate_settings(
    tokens: Sequence[str], files: Sequence[Path], *, variable: str, https: bool, trusted_proxies: Sequence[str]
) -> GateSettings:
    """Who may come in: from the command line and files, or else from the environment."""
    from bucketmq.server.callers import proxies_of
    from bucketmq.server.gate import GateSettings
    from bucketmq.server.people import lines_of, read_people

    proxies_of(trusted_proxies)
    texts = [*tokens, *(line for path in files for line in lines_of(_read_file(path)))]
    people = read_people(texts or os.environ.get(variable, "").split(), variable=variable)
    return GateSettings(people=people, https=https, trusted_proxies=tuple(trusted_proxies))


def warn_of_plain_http(host: str, *, https: bool) -> None:
    from bucketmq.cli.output import say  # rich comes with it, and settings of applications import this module
    from bucketmq.server.access import is_loopback

    if not https and not is_loopback(host):
        say("WITHOUT HTTPS: everybody on the way can read tokens; put a proxy in front and give --https")


def _read_file(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read the tokens in {path}: {error}") from None
