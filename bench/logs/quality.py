"""How well templates, sequences and alerts of `logs` agree with samples: `python -m bench.logs.quality FOLDER`.

FOLDER holds `loghub/NAME_2k.log_structured.csv.gz` (LogHub's samples: a line of content and its true template in each
row), `loghub/BGL_*.log_structured.csv.gz` (with a label), and `hdfs-sessions-normal.txt.gz`,
`hdfs-sessions-abnormal.txt.gz` (a session of event numbers in each line). None of it comes with BucketMQ.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from bucketmq.apps.logs.drain import Index, Words, learn, merge, words_of
from bucketmq.apps.logs.masks import masked
from bucketmq.apps.logs.sequences import Judge, Sequences, learnt

TRUE_SHARE = 16_838 / 575_061
"""Of all sessions of HDFS_v1, so many are abnormal; the files have far more of them."""
SEVERE = ("ERROR", "SEVERE", "FATAL", "FAILURE")


class Sample(msgspec.Struct, frozen=True):
    """Lines of one system, and what people said of each."""

    name: str
    rows: list[dict[str, str]]

    def column(self, name: str) -> list[str]:
        return [row[name] for row in self.rows]


def samples(folder: Path, pattern: str) -> list[Sample]:
    found = []
    for path in sorted(folder.glob(f"loghub/{pattern}.log_structured.csv*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", errors="replace", newline="") as text:
            found.append(Sample(path.name.split("_")[0], list(csv.DictReader(text))))
    return found


def grouping_accuracy(found: Sequence[Hashable], true: Sequence[Hashable]) -> float:
    """The part of the lines whose group is exactly a true one."""
    mine, theirs = _groups(found), set(_groups(true).values())
    return sum(len(lines) for lines in mine.values() if lines in theirs) / len(true)


def _groups(labels: Sequence[Hashable]) -> dict[Hashable, tuple[int, ...]]:
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, label in enumerate(labels):
        groups[label].append(place)
    return {label: tuple(places) for label, places in groups.items()}


def words_of_lines(contents: Sequence[str]) -> list[Words]:
    return [words_of(line) for line in masked(pa.array(contents, pa.string())).to_pylist()]


def templates_of(contents: Sequence[str]) -> list[Words]:
    lines = words_of_lines(contents)
    found = learn(set(lines))
    return [found[line] for line in lines]


def grouping(folder: Path) -> dict[str, float]:
    """For each sample, all of whose lines are learnt at once."""
    return {
        each.name: grouping_accuracy(templates_of(each.column("Content")), each.column("EventId"))
        for each in samples(folder, "*_2k")
    }


def grouping_in_parts(folder: Path, lines_of_an_object: int = 100) -> dict[str, float]:
    """The same as the application does it: each object is learnt apart, and merged into the model."""
    return {
        each.name: grouping_accuracy(_merged(each.column("Content"), lines_of_an_object), each.column("EventId"))
        for each in samples(folder, "*_2k")
    }


def _merged(contents: Sequence[str], lines_of_an_object: int) -> list[Words]:
    lines = words_of_lines(contents)
    templates: set[Words] = set()
    for first in range(0, len(lines), lines_of_an_object):
        known = Index(templates)
        unknown = [line for line in lines[first : first + lines_of_an_object] if known.match(line) is None]
        templates = set(merge(templates, learn(set(unknown)).values()).values())
    final = Index(templates)
    return [final.match(line) or line for line in lines]


def sessions(folder: Path) -> dict[str, float]:
    """Odd sequences of HDFS. When an event is loose is chosen on the first half of all sessions, and measured, after
    learning the normal ones of that half, on the second."""
    normal, abnormal = (_sessions(folder / f"hdfs-sessions-{name}.txt.gz") for name in ("normal", "abnormal"))
    quarter, half, other = len(normal) // 4, len(normal) // 2, len(abnormal) // 2
    scores = {
        numbers: _measured(normal[:quarter], normal[quarter:half], abnormal[:other], numbers)["F1"]
        for numbers in range(3, 9)
    }
    best = [numbers for numbers, score in scores.items() if score == max(scores.values())]
    chosen = best[(len(best) - 1) // 2]
    return {"loose from": chosen, **_measured(normal[:half], normal[half:], abnormal[other:], chosen)}


def _measured(
    learn_from: Sequence[Sequence[str]], normal: Sequence[Sequence[str]], odd: Sequence[Sequence[str]], numbers: int
) -> dict[str, float]:
    judge = Judge(learnt(Sequences(), learn_from), loose_numbers=numbers)
    false = sum(bool(judge.oddity(each)) for each in normal) / len(normal)
    found = sum(bool(judge.oddity(each)) for each in odd) / len(odd)
    precision = _precision(found * TRUE_SHARE, false * (1 - TRUE_SHARE))
    return {"found": found, "false alarms": false, "precision": precision, "F1": _harmonic(precision, found)}


def _sessions(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="ascii") as text:
        return [line.split() for line in text]


def severity_and_novelty(folder: Path) -> dict[str, dict[str, float]]:
    """BGL: the first fifth of the lines is learnt, alerts are looked for in the rest."""
    found = {}
    for sample in samples(folder, "BGL_*"):
        lines, alerts = words_of_lines(sample.column("Content")), [each != "-" for each in sample.column("Label")]
        learnt_lines = len(lines) // 5
        known = Index(set(learn(set(lines[:learnt_lines])).values()))
        severe = [level in SEVERE for level in sample.column("Level")][learnt_lines:]
        new = [known.match(line) is None for line in lines[learnt_lines:]]
        for name, told in (
            ("severity alone", severe),
            ("new template", new),
            ("new and severe", [one and two for one, two in zip(new, severe, strict=True)]),
        ):
            right = sum(one and two for one, two in zip(told, alerts[learnt_lines:], strict=True))
            wanted = sum(alerts[learnt_lines:])
            precision, recall = _precision(right, sum(told) - right), right / wanted if wanted else 0.0
            found[name] = {"told": float(sum(told)), "precision": precision, "recall": recall}
    return found


def _precision(right: float, wrong: float) -> float:
    return right / (right + wrong) if right + wrong else 0.0


def _harmonic(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    found = grouping(folder)
    for name, accuracy in found.items():
        print(f"grouping accuracy  {name:<12} {accuracy:.3f}")
    if found:
        print(f"grouping accuracy  {'mean':<12} {sum(found.values()) / len(found):.3f}")
        parts = grouping_in_parts(folder)
        print(f"grouping accuracy  {'in parts':<12} {sum(parts.values()) / len(parts):.3f}")
    if (folder / "hdfs-sessions-normal.txt.gz").exists():
        print("HDFS sessions      " + ", ".join(f"{name} {value:.4f}" for name, value in sessions(folder).items()))
    for how, figures in severity_and_novelty(folder).items():
        print(f"BGL, {how:<15}" + ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
