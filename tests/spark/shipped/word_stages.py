"""Stages for tests, importable on executors."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

import bucketmq
from bucketmq.pipeline import Later, Outcomes, stage
from bucketmq.pipeline.columns import arrow_schema

POST = "id string, text string, revision bigint"


@stage(takes=POST, gives="id string, words int, revision bigint")
def count_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fails on a text that is missing, and on the whole batch if any is."""
    texts = batch.column("text").to_pylist()
    if "poison" in texts:
        raise ValueError("no words in poison")
    words = pa.array([len(text.split()) for text in texts], pa.int32())
    columns = {"id": batch.column("id"), "words": words, "revision": batch.column("revision")}
    return pa.RecordBatch.from_pydict(columns)


@stage(takes=POST, gives="id string, words int, revision bigint", name="count_words")
def count_all(batch: pa.RecordBatch) -> dict[str, Any]:
    """The same, repaired: poison has one word."""
    words = [len(text.split()) for text in batch.column("text").to_pylist()]
    return {"id": batch.column("id"), "words": words, "revision": batch.column("revision")}


@stage(takes="id string, words int", gives="id string, long boolean", kind="pandas")
def judge(rows: Any) -> Any:
    rows["long"] = rows["words"] > 2
    return rows[["id", "long"]]


@stage(takes="id string", gives="id string, n bigint")
def wrong(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"id": batch.column("id"), "n": ["text"] * batch.num_rows}


@stage(takes=POST, gives="id string")
def away(batch: pa.RecordBatch) -> dict[str, Any]:
    """Unavailable the first time that anybody asks, on whichever executor. The texts name a file that says so."""
    try:
        Path(batch.column("text")[0].as_py()).touch(exist_ok=False)
    except FileExistsError:
        return {"id": batch.column("id")}
    raise bucketmq.Unavailable("the model does not answer; try again later")


@stage(takes="key string, content string, content_state string", gives="key string, size int, state string")
def measure(batch: pa.RecordBatch) -> dict[str, Any]:
    sizes = [None if text is None else len(text) for text in batch.column("content").to_pylist()]
    return {"key": batch.column("key"), "size": pa.array(sizes, pa.int32()), "state": batch.column("content_state")}


@stage(takes="text string", adds="words int", later_max=2)
def count_or_wait(batch: pa.RecordBatch) -> Outcomes:
    """Says itself what became of each row. `poison` fails, and `asleep` comes back, without end."""
    texts = batch.column("text").to_pylist()
    failed = {row: "no words in poison" for row, text in enumerate(texts) if text == "poison"}
    later = {row: Later(0, "nobody is awake") for row, text in enumerate(texts) if text == "asleep"}
    good = [text for text in texts if text not in ("poison", "asleep")]
    return Outcomes(rows={"words": [len(text.split()) for text in good]}, failed=failed, later=later)


@stage(takes="text string", adds="words int")
def count_when_up(batch: pa.RecordBatch) -> Outcomes:
    """Puts a row off whose text names a file that is not there yet, and makes the file."""
    texts = batch.column("text").to_pylist()
    later = {row: Later(0, "not up yet") for row, text in enumerate(texts) if not Path(text).exists()}
    for row in later:
        Path(texts[row]).touch()
    return Outcomes(rows={"words": [1] * (len(texts) - len(later))}, later=later)


def _so_far(key: str, rows: Any, state: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    before = (state or {"posts": 0})["posts"]
    if not rows.num_rows:
        return {"text": [key], "posts": [-before]}, None
    if key == "poison":
        raise ValueError("poison is not counted")
    return {"text": [key], "posts": [before + rows.num_rows]}, {"posts": before + rows.num_rows}


SO_FAR: dict[str, Any] = {"takes": "text string", "gives": "text string, posts bigint", "state": "posts bigint"}

so_far = stage(**SO_FAR, key="text", name="so_far")(_so_far)
for_a_while = stage(**SO_FAR, key="text", name="so_far", timeout_seconds=0.5)(_so_far)


@stage(takes="text string, posts bigint", adds="many boolean")
def crowd(batch: pa.RecordBatch) -> dict[str, Any]:
    """Behind a stage that keeps state."""
    if "thirteen" in batch.column("text").to_pylist():
        raise ValueError("thirteen is too many")
    return {"many": [posts > 2 for posts in batch.column("posts").to_pylist()]}


LETTERS = "array<struct<place: int, body: string, kind: string>>"


@stage(takes=POST, gives=f"id string, letters {LETTERS}")
def spell(batch: pa.RecordBatch) -> dict[str, Any]:
    """Several parts of each row, none of an empty text."""
    made = [
        [{"place": place, "body": letter, "kind": "text/x-letter"} for place, letter in enumerate(text[:3])]
        for text in batch.column("text").to_pylist()
    ]
    return {"id": batch.column("id"), "letters": pa.array(made, arrow_schema(f"x {LETTERS}").field("x").type)}


@stage(takes=POST, gives="id string, words int")
def counted(batch: pa.RecordBatch) -> dict[str, Any]:
    """Leaves a mark for each row that it was given: the texts name a folder, and ids are told apart by a number."""
    for name, text in zip(batch.column("id").to_pylist(), batch.column("text").to_pylist(), strict=True):
        (Path(text) / f"{name}.{uuid.uuid4().hex}").touch()
    return {"id": batch.column("id"), "words": pa.array([1] * batch.num_rows, pa.int32())}


EVENT = "key string, version string, at timestamp"


@stage(takes=f"{EVENT}, content string", gives=f"{EVENT}, line int, text string")
def split_lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each line; none for a text without any."""
    rows = [
        {"key": row["key"], "version": row["version"], "at": row["at"], "line": number, "text": line}
        for row in batch.to_pylist()
        for number, line in enumerate(row["content"].splitlines())
    ]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(f"{EVENT}, line int, text string"))


@stage(takes="text string, words int", gives="text string, posts bigint", kind="frame")
def by_text(rows: Any) -> Any:
    """Spark's own work between two stages."""
    return rows.where("words > 0").groupBy("text").count().withColumnRenamed("count", "posts")
