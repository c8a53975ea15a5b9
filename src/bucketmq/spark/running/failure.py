"""What went wrong inside Spark, in the words of the part that failed: without Java's frames around it.

A failure passes through a Python worker, an executor, the driver's JVM and a query on its way to the caller, and each
wraps it in text. An error of ours comes out as the same kind that went in.
"""

from __future__ import annotations

import importlib
import re

from bucketmq import errors
from bucketmq.errors import BucketMQError, Unavailable, Unsupported
from bucketmq.spark.setup.interpreter import CURE

TEXT_MAX = 2_000

_PYTHON = re.compile(r"^(?:\w+: )?((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::[ \t]*(.*))?$")
"""The last line of a Python traceback: a class and what it says."""

_FRAME = re.compile(r"^\s*(at [\w.$]+[(/]|\.\.\. \d+ more|File \"|\^+$|During handling|The above exception)")

_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)

_WRAPPED = (
    re.compile(r"^\[STREAM_FAILED\].*?terminated with exception: ", re.DOTALL),
    re.compile(r"^An error occurred while calling \S+\s*: ", re.DOTALL),
    re.compile(r"^Job aborted due to stage failure: .*?most recent failure: Lost task [^:]*: ", re.DOTALL),
    re.compile(r"^(?:[a-z]\w*\.)+[\w$]*(?:Exception|Error): ", re.DOTALL),
)
"""What Spark puts in front of a cause."""


_NOT_FOUND = re.compile(
    r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: bucketmq\b|No module named '(pyspark_)?bucketmq'"
)
"""How it looks when a planner or worker runs in a Python without this package."""

_SLOW = "Python worker failed to connect back"


class SlowPython(Unavailable):
    """A Python that Spark started did not answer within ten seconds, which nobody can set: the machine is too busy."""


def explained(error: BaseException) -> BucketMQError:
    """The error as one of ours, with the cause that is at the bottom of it."""
    if isinstance(error, BucketMQError):
        return error
    text = str(error) or type(error).__name__
    if _NOT_FOUND.search(text):
        return Unsupported(f"the Python that Spark starts has no bucketmq; {CURE}, or ship the package with --py-files")
    python = _python_cause(text)
    if python is None and _SLOW in text:
        return SlowPython("a Python that Spark started did not answer within ten seconds; run less at a time")
    if python is None:
        return BucketMQError(_with_root(_first_words(text), text))
    name, said = python
    kind = _kind(name)
    return kind(said) if kind is not None else BucketMQError(f"{name}: {said}" if said else name)


def _kind(name: str) -> type[BucketMQError] | None:
    """The kind of error that a class of ours is, by its whole name."""
    module, _, last = name.rpartition(".")
    if module.partition(".")[0] != "bucketmq":
        return None
    try:
        found = getattr(importlib.import_module(module), last, None)
    except ImportError:
        return None
    if not isinstance(found, type) or not issubclass(found, BucketMQError):
        return None
    return next(each for each in found.__mro__ if each.__module__ == errors.__name__)


def _python_cause(text: str) -> tuple[str, str] | None:
    """The class and message of the last Python exception in a text, if there is a traceback in it."""
    start = text.rfind("Traceback (most recent call last):")
    if start < 0:
        return None
    lines = text[start:].splitlines()[1:]
    for number, line in enumerate(lines):
        found = None if line.startswith((" ", "\t")) else _PYTHON.match(line)
        if found:
            return found[1], _cut([found[2] or "", *_rest(lines[number + 1 :])])
    return None


def _rest(lines: list[str]) -> list[str]:
    """The other lines of a message: up to where Java goes on."""
    kept = []
    for line in lines:
        if _FRAME.match(line) or not line.strip() or "SQLSTATE:" in line or line.startswith("Driver stacktrace"):
            break
        kept.append(line)
    return kept


def _first_words(text: str) -> str:
    changed = True
    while changed:
        changed = False
        for pattern in _WRAPPED:
            shorter = pattern.sub("", text, count=1)
            changed = changed or shorter != text
            text = shorter
    return _cut(_rest(text.splitlines()) or [text.strip().splitlines()[0]])


def _with_root(said: str, text: str) -> str:
    """With Java's last cause behind it: the first words may say no more than that something failed."""
    causes = _CAUSE.findall(text)
    root = _first_words(causes[-1]) if causes else ""
    return said if root in said else f"{said.rstrip('.:')}: {root}"[:TEXT_MAX]


def _cut(lines: list[str]) -> str:
    return "\n".join(lines).strip()[:TEXT_MAX]
