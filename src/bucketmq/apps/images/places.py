"""Where things lie: names of pipelines and stages, and the keys of what is made of an image. Pure.

Nothing that is made lies below `raw/`, so no pipeline sees its own results.
"""

from __future__ import annotations

RAW = "raw/"
THUMBS = "thumbs/"
FACTS = "facts/"
TABLE = "images"

THUMBNAILS, POLICY, TEXT, ALT = "thumbnails", "policy", "text", "alt"
STAGES = (THUMBNAILS, POLICY, TEXT, ALT)

FILTER = f'WHERE `key` LIKE "{RAW}%" OR from_key LIKE "{RAW}%"'
"""Images that come, change and go; also those that are moved away, so that what was made of them goes."""
FACTS_FILTER = f'WHERE `key` LIKE "{FACTS}%"'

COLUMNS = "key string, version string, at timestamp, content binary, content_version string"
"""What every stage takes of an event."""
PASSED = "key string, at timestamp, content_version string"
"""What every stage hands on, so that results can follow their image."""

FACTS_TEMPLATES = {stage: f"{FACTS}{stage}/{{+key}}.json" for stage in STAGES}
THUMB_TEMPLATE = f"{THUMBS}{{size}}/{{+key}}.webp"


def pipeline_of(stage: str) -> str:
    """The pipeline of a stage: its name is also that of its rule in the bucket, so it begins with the application's."""
    return f"images-{stage}"


def thumb_key(key: str, size: int) -> str:
    return f"{THUMBS}{size}/{key}.webp"


def facts_key(key: str, stage: str) -> str:
    return f"{FACTS}{stage}/{key}.json"


def image_of(facts: str) -> str | None:
    """The image that an object below facts/ is about; None if it is not one of ours."""
    stage, _, rest = facts.removeprefix(FACTS).partition("/")
    if not facts.startswith(FACTS) or stage not in STAGES or not rest.startswith(RAW) or not rest.endswith(".json"):
        return None
    return rest.removesuffix(".json")
