"""Policy: how probable it is that an image is not safe for work, and a verdict. Nothing is moved or deleted.

Every frame of an animation that differs is judged, and transparent pictures on white and on black; the worst counts. An
image that can be read and not be judged is `unknown`, never fine. Nudity is all that the embedded models know of:
violence, weapons and symbols of hate need a person, or a model of yours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bucketmq.apps.images.decode import on_white, opened, picture
from bucketmq.apps.images.facts import LoadModel, PolicyFacts, Verdict, WithModel, facts_pipeline, version_of
from bucketmq.apps.images.places import POLICY
from bucketmq.errors import BucketMQError
from bucketmq.models.fetch import KINDS, Fetched, Unseen
from bucketmq.models.nsfw import Scorer, nsfw_scorer
from bucketmq.models.pictures import PICTURE_SIDE_MAX, PictureLimits, pictures
from bucketmq.pipeline import Pipeline

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 1
CLEAR, FLAG = 0.2, 0.5
"""Below the first an image is fine, from the second on it is flagged, between a person looks: as in moderation."""
ROWS_MAX, TASK_ROWS = 32, 16


def judged(data: bytes, uses: WithModel[Scorer]) -> tuple[Verdict, float | None, str]:
    """Verdict, score and reason. `Unreadable` if there is no picture."""
    shown = _shown(data, uses.limits)
    if isinstance(shown, Unseen):
        return "unknown", None, shown.reason
    try:
        score = uses.model.score(shown)
    except BucketMQError:
        raise
    except Exception as error:  # models are other people's code on a stranger's picture
        return "unknown", None, f"the image could not be judged ({type(error).__name__})"
    if not 0.0 <= score <= 1.0:
        return "unknown", None, f"{uses.model.model} has no score for the image"
    score = round(score, 4)
    if score >= FLAG:
        return "flagged", score, f"probably not safe for work ({score:.2f})"
    if score >= CLEAR:
        return "unsure", score, f"may not be safe for work ({score:.2f})"
    return "fine", score, ""


def _shown(data: bytes, limits: PictureLimits) -> Sequence[Image] | Unseen:
    """All there is to see. An image that no browser shows the way we would see it is `Unseen`."""
    with opened(data, limits) as found:
        first = picture(found, PICTURE_SIDE_MAX).image
        deep = found.image.mode.startswith("I;16")
    # A JPEG has one frame and nothing transparent, and is decoded no larger than needed here.
    if found.kind == "jpeg" or found.kind not in KINDS.values() or deep:
        return [on_white(first)]
    return pictures(Fetched(data, found.kind), limits)


def policed(row: dict[str, Any], uses: WithModel[Scorer]) -> PolicyFacts:
    """What the stage says of an image."""
    verdict, score, reason = judged(row["content"], uses)
    return PolicyFacts(
        key=row["key"],
        version=version_of(row),
        stage_version=VERSION,
        verdict=verdict,
        score=score,
        reason=reason,
        model=uses.model.model,
    )


def pipeline(limits: PictureLimits, *, bytes_max: int) -> Pipeline:
    return facts_pipeline(
        POLICY,
        policed,
        LoadModel(load=nsfw_scorer, limits=limits),
        about="judge whether images below raw/ are safe for work",
        bytes_max=bytes_max,
        rows_max=ROWS_MAX,
        task_rows=TASK_ROWS,
    )
