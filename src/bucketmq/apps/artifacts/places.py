"""Where things lie in the bucket. Keys only.

```
builds/{name}/{version}/{file}                      what a build made
builds/{name}/{version}/manifest.json               written last: from then on the artifact exists
keys/{number}.json                                  trusted keys and environments
env/{environment}/{name}.json                       the pointer: what is current there
released/{environment}/{name}/{version}/{file}      what was promoted there, with its manifest
approvals/{environment}/{name}/{version}/{key}.json who approved
deployed/{environment}/{name}/{agent}.json          what each deploy agent reports
```
"""

from __future__ import annotations

from bucketmq.apps.artifacts.manifest import check_name, check_version
from bucketmq.errors import Invalid

BUILDS = "builds/"
ENV = "env/"
DEPLOYED = "deployed/"


def build(name: str, version: str) -> str:
    return f"{BUILDS}{check_name(name)}/{check_version(version)}/"


def trust(number: int) -> str:
    return f"keys/{number:06}.json"


def pointer(environment: str, name: str) -> str:
    return f"{ENV}{check_name(environment)}/{check_name(name)}.json"


def release(environment: str, name: str, version: str) -> str:
    return f"released/{check_name(environment)}/{check_name(name)}/{check_version(version)}/"


def approvals(environment: str, name: str, version: str) -> str:
    return f"approvals/{check_name(environment)}/{check_name(name)}/{check_version(version)}/"


def reports(environment: str, name: str) -> str:
    return f"{DEPLOYED}{check_name(environment)}/{check_name(name)}/"


def pointed_at(key: str) -> tuple[str, str] | None:
    """The environment and the artifact of a pointer's key; None for any other."""
    parts = key.split("/")
    if len(parts) != 3 or parts[0] != ENV.rstrip("/") or not parts[2].endswith(".json"):
        return None
    try:
        return check_name(parts[1]), check_name(parts[2].removesuffix(".json"))
    except Invalid:
        return None  # anybody may have written that, but nobody promoted anything there
