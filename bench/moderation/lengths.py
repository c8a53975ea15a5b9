"""What the embedded model costs by the length of posts, beside what version 1 did: every window and span encoded.

Texts are made-up posts strung together and cut. Milliseconds of CPU on one thread, both in one process, in turns: what
counts is the ratio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.children import alone
from bench.moderation.sizes import Sizes
from bench.results import EARLIER, OURS, Measurement, measured
from bucketmq.apps.moderation.demo.posts import samples
from bucketmq.apps.moderation.record import Post

SCENARIO = "lengths"
LENGTHS = (60, 300, 660, 2000)
WINDOW_CHARS, SPAN_CHARS = 800, 240
"""As version 1 cut: texts longer than a span were judged in windows, and again in spans."""


def compared(sizes: Sizes) -> Iterator[Measurement]:
    for length in LENGTHS:
        count = max(4, sizes.texts * 60 // (length * 10))
        runs = [alone(judged_both_ways, length, count) for _ in range(sizes.rounds)]
        for subject, took in ((OURS, [each[0] for each in runs]), (EARLIER, [each[1] for each in runs])):
            yield measured(SCENARIO, f"posts of {length} characters", took, "ms/text", subject=subject, depth=count)


def strung(length: int, count: int) -> list[str]:
    """Made-up posts strung together, cut into `count` texts of this length."""
    words = " ".join(each.text for each in samples(count * length // 40 + 10))
    return [words[at * length : (at + 1) * length] for at in range(count)]


def judged_both_ways(go: Callable[[], Any], length: int, count: int) -> tuple[float, float]:
    """CPU milliseconds a text: by the classifier, and by an encoder that sees every window and span."""
    from bucketmq.apps.moderation.classify.embedded import EmbeddedClassifier
    from bucketmq.apps.moderation.classify.pieces import spans
    from bucketmq.models.minilm import Encoder, find

    classifier = EmbeddedClassifier(stages="sentences")
    folder = find()
    assert folder is not None, "the classifier found it"
    encoder = Encoder(folder)
    texts = strung(length, count)
    half = max(1, count // 2)

    def ours(those: Sequence[str]) -> None:
        classifier.classify([Post(str(at), text) for at, text in enumerate(those)])

    def earlier(those: Sequence[str]) -> None:
        cut = [[*spans(text, WINDOW_CHARS), *spans(text, SPAN_CHARS)] for text in those]
        encoder.encode([part for parts in cut for part in dict.fromkeys(parts)])

    go()
    took = {ours: 0.0, earlier: 0.0}
    for judge in took:
        judge(texts[:2])
    for start in range(0, count, half):
        for judge in took:
            began = time.process_time()
            judge(texts[start : start + half])
            took[judge] += time.process_time() - began
    return took[ours] / count * 1000, took[earlier] / count * 1000
