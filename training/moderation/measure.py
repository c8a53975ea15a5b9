"""What the model is worth: figures for each category and set, the bands, and what the first stage may settle alone.

`python -m training.moderation.measure` measures the model in the package on our own held-out sentences and prints how
many texts it judges in a second on one core; with `--data DIR` also by the length of texts.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bucketmq.apps.moderation.classify import head
from bucketmq.apps.moderation.record import CATEGORIES, Post
from bucketmq.models import minilm
from training.moderation import data, fit

LENGTHS, TEXTS = (60, 300, 660, 2000), 200
LOSS_MAX, CAUGHT = 0.01, 0.3
"""Of the bad texts to which the second stage gave `CAUGHT`, version 1 let the first lose this share."""


def band(found: np.ndarray, labels: np.ndarray, everyday: np.ndarray, *, most: head.Band) -> head.Band:
    """`clear`, at least 0.1, so that of everyday texts 2 % lie above; `flag`, so that 9 in 10 above are bad.

    Neither is laxer than `most`. Everyday texts are those that nobody wrote or chose to test a filter.
    """
    clear = float(np.quantile(found[everyday], 0.98))
    known = ~np.isnan(labels)
    found, labels = found[known], labels[known]
    flag = most.flag
    for threshold in np.arange(0.6, most.flag, 0.05):
        above = found >= threshold
        if above.sum() >= 10 and labels[above].mean() >= 0.9:
            flag = float(threshold)
            break
    return head.Band(round(min(max(clear, 0.1), most.clear), 3), round(flag, 3))


def precision_recall(found: np.ndarray, labels: np.ndarray, threshold: float = 0.5) -> tuple[float, float, float]:
    above = found >= threshold
    hits = float((above & (labels == 1)).sum())
    precision = hits / max(above.sum(), 1)
    recall = hits / max((labels == 1).sum(), 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def mean_auroc(scores: np.ndarray, labels: np.ndarray, sources: list[str]) -> float:
    """Over all pairs of a category and a set with at least 20 bad and 20 good texts."""
    source, found = np.array(sources), []
    for i in range(labels.shape[1]):
        for each in dict.fromkeys(sources):
            mask = ~np.isnan(labels[:, i]) & (source == each)
            if 20 <= labels[mask, i].sum() <= mask.sum() - 20:
                found.append(fit.auroc(scores[mask, i], labels[mask, i]))
    return float(np.mean(found))


def table(found: np.ndarray, labels: np.ndarray, sources: list[str], bands: dict[str, head.Band]) -> str:
    """Markdown: one line for each category and set that has both answers."""
    lines = ["| category | set | bad / all | AUROC | precision | recall | F1 | best F1 | bad cleared | good not |"]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    source = np.array(sources)
    for i, name in enumerate(CATEGORIES):
        for each in ("all", *dict.fromkeys(sources)):
            mask = ~np.isnan(labels[:, i]) & ((source == each) | (each == "all"))
            y, p = labels[mask, i], found[mask, i]
            if not 5 <= y.sum() <= len(y) - 5:
                continue
            precision, recall, f1 = precision_recall(p, y)
            best = max(precision_recall(p, y, t)[2] for t in np.arange(0.05, 0.95, 0.05))
            low = float((p[y == 1] < bands[name].clear).mean())
            between = float((p[y == 0] >= bands[name].clear).mean())
            lines.append(
                f"| {name} | {each} | {int(y.sum())} / {len(y)} | {fit.auroc(p, y):.3f} | {precision:.2f} "
                f"| {recall:.2f} | {f1:.2f} | {best:.2f} | {low:.1%} | {between:.1%} |"
            )
    return "\n".join(lines)


def cleared(found: np.ndarray, bands: dict[str, head.Band]) -> np.ndarray:
    """Which texts are below every category's `clear`."""
    below: np.ndarray = np.all(found < np.array([bands[name].clear for name in CATEGORIES]), axis=1)
    return below


def bad_cleared(found: np.ndarray, labels: np.ndarray, sources: list[str], bands: dict[str, head.Band]) -> float:
    """The share of a category's bad texts below its `clear`, the mean over the pairs of `mean_auroc`."""
    source, shares = np.array(sources), []
    for i, name in enumerate(CATEGORIES):
        for each in dict.fromkeys(sources):
            bad = (labels[:, i] == 1) & (source == each)
            if 20 <= bad.sum() <= ((labels[:, i] == 0) & (source == each)).sum() + bad.sum() - 20:
                shares.append(float((found[bad, i] < bands[name].clear).mean()))
    return float(np.mean(shares))


def settle(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> float:
    """What version 1 let the first stage settle: no category loses more than `LOSS_MAX` of what the second catches."""
    top = first.max(axis=1)
    ends = []
    for i in range(labels.shape[1]):
        caught = np.sort(top[(labels[:, i] == 1) & (second[:, i] >= CAUGHT)])
        ends.append(caught[int(LOSS_MAX * len(caught))])
    return round(float(min(ends)), 4)


def own_table() -> str:
    """The model in the package on our own held-out sentences."""
    from bucketmq.apps.moderation.classify.embedded import EmbeddedClassifier, Stages

    lines = [
        "| stages | bad caught or reviewed | right category flagged | good approved | good flagged |",
        "|---|---|---|---|---|",
    ]
    examples = data.held_out()
    every: tuple[Stages, ...] = ("words", "sentences") if minilm.find() else ("words",)
    for stages in every:
        verdicts = EmbeddedClassifier(stages=stages).classify([Post(str(i), e.text) for i, e in enumerate(examples)])
        bad = [(e, v) for e, v in zip(examples, verdicts, strict=True) if 1 in e.labels]
        good = [v for e, v in zip(examples, verdicts, strict=True) if 1 not in e.labels]
        caught = sum(v.violation or v.doubt is not None for _, v in bad)
        right = sum(any(c.flagged and e.labels[i] == 1 for i, c in enumerate(v.categories)) for e, v in bad)
        approved = sum(not v.violation and v.doubt is None for v in good)
        flagged = sum(v.violation for v in good)
        lines.append(f"| {stages} | {caught} of {len(bad)} | {right} | {approved} of {len(good)} | {flagged} |")
    return "\n".join(lines)


def speed(judge: Callable[[list[Post]], object], posts: list[Post], *, seconds: float = 3.0) -> float:
    """Texts in a second of processor time, all in one batch."""
    judge(posts[:50])
    done, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        judge(posts)
        done += len(posts)
    return done / (time.process_time() - began)


def speeds() -> str:
    """How many of our own held-out sentences each part judges in a second."""
    from bucketmq.apps.moderation.classify.embedded import EmbeddedClassifier
    from bucketmq.apps.moderation.classify.pieces import pieces

    posts = [Post(str(i), example.text) for i, example in enumerate(data.held_out())]
    good = [Post(str(i), e.text) for i, e in enumerate(data.held_out()) if 1 not in e.labels]
    told = ["| what | texts/s |", "|---|---|"]
    told.append(
        f"| making plain and cutting | {speed(lambda some: [pieces(each.text) for each in some], posts):,.0f} |"
    )
    told.append(f"| first stage, with that | {speed(EmbeddedClassifier(stages='words').classify, posts):,.0f} |")
    if folder := minilm.find():
        encode = minilm.Encoder(folder).encode
        both = EmbeddedClassifier(stages="sentences").classify
        told.append(f"| the encoder alone | {speed(lambda some: encode([each.text for each in some]), posts):,.0f} |")
        told.append(f"| both stages | {speed(both, posts):,.0f} |")
        told.append(f"| both stages, good texts only | {speed(both, good):,.0f} |")
    return "\n".join(told)


def by_length(folder: Path) -> str:
    """How many texts of the public sets the classifier judges in a second, by their length."""
    from bucketmq.apps.moderation.classify.embedded import EmbeddedClassifier

    chance, judge = random.Random(20), EmbeddedClassifier().classify
    examples = data.read(folder)
    everyday = [each.text for each in examples if (each.source, each.kind) in data.EVERYDAY]
    strung = " ".join(chance.sample(everyday, len(everyday)))
    told = ["| characters | texts of the sets, cut | everyday texts, strung together |", "|---|---|---|"]
    for length in LENGTHS:
        long = [each.text[:length] for each in examples if len(each.text) >= length]
        cut = chance.sample(long, min(len(long), TEXTS))
        joined = [strung[at : at + length] for at in range(0, TEXTS * length, length)]
        rates = [speed(judge, [Post(str(i), text) for i, text in enumerate(texts)]) for texts in (cut, joined)]
        told.append(f"| {length:,} | {rates[0]:,.0f} | {rates[1]:,.0f} |")
    rate = speed(judge, [Post(str(i), text) for i, text in enumerate(chance.sample(everyday, TEXTS))])
    told.append(f"| as they are, {sum(map(len, everyday)) / len(everyday):.0f} on average | | {rate:,.0f} |")
    return "\n".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.moderation.measure", description=__doc__)
    parser.add_argument("--data", type=Path, default=None, help="folder with the five sets, for the speed by length")
    options = parser.parse_args()
    print(f"{own_table()}\n\n{speeds()}")
    if options.data:
        print(f"\n{by_length(options.data)}")


if __name__ == "__main__":
    main()
