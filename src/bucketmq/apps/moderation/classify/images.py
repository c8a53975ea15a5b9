"""Posts with images: the text is judged as ever, the image is fetched, scored and read, and all of it counts.

An image that was not looked at is never approved: what cannot be fetched, decoded, scored or read is a doubt with a
reason. `WithImages` looks at images; `TextOnly` is for where nothing can, and leaves posts that have one to a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, Self

import msgspec

from bucketmq.apps.moderation.classify import Classifier
from bucketmq.apps.moderation.classify.cascade import highest
from bucketmq.apps.moderation.record import Category, Post, Verdict
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.models.fetch import Fetched, Unseen
from bucketmq.models.nsfw import Scorer
from bucketmq.models.ocr import Reader
from bucketmq.models.pictures import PLAIN_LIMITS, PictureLimits, pictures

CONCURRENCY = 4
"""Images at a time; each may hold its bytes and one decoded frame."""


class Bands(msgspec.Struct, frozen=True):
    """Below `clear` a picture is fine, from `flag` on it is not safe for work, between a person looks."""

    clear: float = 0.2
    flag: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.clear <= self.flag <= 1.0:
            raise Invalid(f"bands must be 0 <= clear <= flag <= 1, not {self.clear} and {self.flag}")


PLAIN_BANDS = Bands()


class Fetches(Protocol):
    """What `WithImages` needs of a fetcher."""

    def fetch(self, url: str) -> Fetched | Unseen: ...


class _Seen(msgspec.Struct, frozen=True):
    """What is known of an image that was looked at."""

    nsfw: float
    text: str
    unsure: bool


class WithImages:
    """A classifier of posts with images, around a classifier of texts. `close` when done."""

    def __init__(
        self,
        text_classifier: Classifier,
        fetcher: Fetches,
        scorer: Scorer,
        reader: Reader,
        *,
        limits: PictureLimits = PLAIN_LIMITS,
        bands: Bands = PLAIN_BANDS,
        concurrency: int = CONCURRENCY,
    ) -> None:
        if concurrency < 1:
            raise Invalid(f"concurrency must be 1 or more, not {concurrency}")
        self._text = text_classifier
        self._fetcher = fetcher
        self._scorer = scorer
        self._reader = reader
        self._limits = limits
        self._bands = bands
        self._concurrency = concurrency
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="bucketmq-images")

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order. Text in images is judged by one more call of the classifier."""
        urls = list(dict.fromkeys(post.media_url for post in posts if post.media_url is not None))
        looks = {url: self._pool.submit(self._look, url) for url in urls}
        verdicts = self._text.classify(posts)  # while images are on their way
        seen = {url: look.result() for url, look in looks.items()}
        written = self._judge_texts(seen)
        return [
            verdict
            if post.media_url is None
            else self._both(verdict, seen[post.media_url], written.get(post.media_url))
            for post, verdict in zip(posts, verdicts, strict=True)
        ]

    def close(self) -> None:
        """Wait for images under way, and close what the parts hold open."""
        self._pool.shutdown()
        for each in (self._text, self._fetcher):
            if (close := getattr(each, "close", None)) is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        parts = (self._text, self._fetcher, self._scorer, self._reader)
        settings = {"limits": self._limits, "bands": self._bands, "concurrency": self._concurrency}
        return _made, (parts, settings)

    def _look(self, url: str) -> _Seen | Unseen:
        """Everything about one image, on one thread, so that only so many are in memory at a time."""
        fetched = self._fetcher.fetch(url)
        if isinstance(fetched, Unseen):
            return fetched
        shown = pictures(fetched, self._limits)
        if isinstance(shown, Unseen):
            return shown
        try:
            nsfw = self._scorer.score(shown)
            reading = self._reader.read(shown)
        except BucketMQError:
            raise
        except Exception as error:
            # Models are other people's code on a stranger's picture: what they stumble over is a doubt about that one.
            return Unseen(f"the image could not be judged ({type(error).__name__})")
        if not 0.0 <= nsfw <= 1.0:
            return Unseen(f"{self._scorer.model} has no score for the image")
        return _Seen(nsfw, reading.text, reading.unsure)

    def _judge_texts(self, seen: dict[str, _Seen | Unseen]) -> dict[str, Verdict]:
        texts = {url: each.text for url, each in seen.items() if isinstance(each, _Seen) and each.text.strip()}
        if not texts:
            return {}
        judged = self._text.classify([Post(f"image-{n}", text) for n, text in enumerate(texts.values())])
        return dict(zip(texts, judged, strict=True))

    def _both(self, text: Verdict, seen: _Seen | Unseen, written: Verdict | None) -> Verdict:
        model = f"{text.model}+{self._scorer.model}+{self._reader.model}"
        if isinstance(seen, Unseen):
            return msgspec.structs.replace(text, model=model, doubt=_joined(text.doubt, seen.reason))
        doubts = [text.doubt]
        reasons = [text.rationale, f"Image: nsfw {seen.nsfw:.2f}."]
        if self._bands.clear <= seen.nsfw < self._bands.flag:
            doubts.append(f"the image may not be safe for work ({seen.nsfw:.2f})")
        if seen.unsure:
            doubts.append("the image has text that could not be read for sure")
        if written is not None:
            if written.doubt is not None:
                doubts.append(f"the text in the image: {written.doubt}")
            if written.rationale:
                reasons.append(f"Text in the image: {written.rationale}")
        # A classifier that has no opinion on the text has none on the post: the doubt says why.
        image = Category("nsfw", seen.nsfw >= self._bands.flag, seen.nsfw)
        opinions = () if written is None else written.categories
        return msgspec.structs.replace(
            text,
            categories=highest(text.categories, opinions, (image,)) if text.categories else (),
            model=model,
            rationale=" ".join(each for each in reasons if each),
            doubt=_joined(*doubts),
        )


def _made(parts: tuple[Any, ...], settings: dict[str, Any]) -> WithImages:
    return WithImages(*parts, **settings)


def _joined(*doubts: str | None) -> str | None:
    return "; ".join(each for each in doubts if each is not None) or None


class TextOnly:
    """A classifier of texts alone: a post with an image goes to a person."""

    def __init__(self, text_classifier: Classifier) -> None:
        self._text = text_classifier

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        """One verdict for each post, in their order."""
        return [
            verdict
            if post.media_url is None
            else msgspec.structs.replace(verdict, doubt=_joined(verdict.doubt, "its image was not looked at"))
            for post, verdict in zip(posts, self._text.classify(posts), strict=True)
        ]

    def close(self) -> None:
        """Close what the classifier holds open."""
        if (close := getattr(self._text, "close", None)) is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
