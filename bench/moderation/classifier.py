"""The embedded model alone, in a process of its own: what judging costs without everything around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.children import alone
from bench.moderation.sizes import Sizes
from bench.results import Measurement, measured
from bucketmq.apps.moderation.classify.choose import choice_of
from bucketmq.apps.moderation.demo.posts import samples
from bucketmq.apps.moderation.pipeline import ROWS_MAX
from bucketmq.apps.moderation.record import Post

SCENARIO = "classifier"


def by_itself(sizes: Sizes) -> Iterator[Measurement]:
    runs = [alone(judge_texts, sizes.texts) for _ in range(sizes.rounds)]
    yield measured(SCENARIO, "embedded model, time to load", [each[0] for each in runs], "s")
    yield measured(SCENARIO, "embedded model", [each[1] for each in runs], "texts/s", depth=sizes.texts)
    yield measured(SCENARIO, "embedded model, CPU", [each[2] for each in runs], "ms/text", depth=sizes.texts)


def judge_texts(go: Callable[[], Any], count: int) -> tuple[float, float, float]:
    """Seconds to load, texts a second after that, and CPU milliseconds a text."""
    posts = [Post(each.id, each.text) for each in samples(count)]
    go()
    began = time.perf_counter()
    classifier = choice_of("embedded")()
    classifier.classify(posts[:1])
    loaded, cpu = time.perf_counter(), time.process_time()
    for start in range(0, count, ROWS_MAX):
        classifier.classify(posts[start : start + ROWS_MAX])
    seconds, spent = time.perf_counter() - loaded, time.process_time() - cpu
    return loaded - began, count / seconds, spent / count * 1000
