"""Options: what is wrong is told before anything is read or written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bucketmq.errors import Invalid
from bucketmq.spark.options import Place, sink_options, source_options

GOOD = {"path": "/tmp/inbox", "queue": "jobs"}


def test_names_of_options_are_read_in_any_case() -> None:
    found = source_options({**GOOD, "MAXROWSPERTRIGGER": "7", "startingoffsets": "Latest"}, streaming=True)
    assert (found.rows_max, found.starting) == (7, "latest")


@pytest.mark.parametrize(
    ("name", "value", "field", "found"),
    [
        ("startingOffsets", '{"0": 120, "1": 7}', "starting", {0: 120, 1: 7}),
        ("startingOffsets", "2026-11-16T12:00:00Z", "starting", 1794830400.0),
        ("startingOffsets", "2026-11-16T12:00:00", "starting", 1794830400.0),
        ("startingOffsets", "2026-11-16T13:00:00+01:00", "starting", 1794830400.0),
        ("maxBytesPerTrigger", "64m", "bytes_max", 64 << 20),
        ("maxBytesPerTrigger", "2 GB", "bytes_max", 2 << 30),
        ("pollInterval", "500ms", "poll_seconds", 0.5),
        ("pollInterval", "2", "poll_seconds", 2.0),
        ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
        ("columns", "key, body", "columns", ("key", "body")),
    ],
)
def test_values_are_understood(name: str, value: str, field: str, found: Any) -> None:
    assert getattr(source_options({**GOOD, name: value}, streaming=True), field) == found


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": None}, "option path is missing"),
        ({"queue": None}, "option queue is missing"),
        ({"queue": "../x"}, "queue name"),
        ({"path": "memory://"}, "use a folder or an object store"),
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'"),
        ({"txn": "t"}, "unknown option 'txn' here, it is for the other direction"),
        ({"startingOffsets": "yesterday"}, "must be earliest, latest, offsets"),
        ({"startingOffsets": '{"0": "x"}'}, "must map shards to offsets"),
        ({"startingOffsets": '{"0": -1}'}, "below 0"),
        ({"startingOffsets": '{"5000": 1}'}, "above 1023"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"maxRowsPerTrigger": "0"}, "whole number from 1"),
        ({"maxRowsPerTrigger": "many"}, "whole number from 1"),
        ({"maxBytesPerTrigger": "64q"}, "must be bytes"),
        ({"minPartitions": "-1"}, "whole number from 1"),
        ({"pollInterval": "soon"}, "must be 0 to 3600 seconds"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"columns": "key,nobody"}, "columns must be some of"),
        ({"columns": "key,key"}, "each once"),
    ],
)
def test_bad_options_of_a_stream_are_refused(options: dict[str, str | None], text: str) -> None:
    given = {name: value for name, value in {**GOOD, **options}.items() if value is not None}
    with pytest.raises(Invalid, match=text):
        source_options(given, streaming=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"maxRowsPerTrigger": "7"}, "for streams"), ({"startingOffsets": "latest"}, "reads nothing")],
)
def test_bad_options_of_a_batch_read_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        source_options({**GOOD, **options}, streaming=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"txn": "../x"}, "txn"),
        ({"batch": "1"}, "goes with a txn"),
        ({"txn": "t", "batch": "-1"}, "whole number from 0"),
        ({"bodyFormat": "xml"}, "json or text"),
        ({"queue": "jobs.dead"}, "dead letters"),
        ({"columns": "key"}, "unknown option 'columns'"),
    ],
)
def test_bad_options_of_the_sink_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        sink_options({**GOOD, **options})


def test_a_place_shows_no_secret() -> None:
    place = Place("s3://inbox?secret_access_key=hush", "jobs", (("secret_access_key", "hush"),))
    assert "hush" not in repr(place)


def test_options_of_the_store_are_told_apart_and_kept() -> None:
    found = source_options({**GOOD, "endpoint": "http://127.0.0.1:9", "Region": "x"}, streaming=True)
    assert found.place.options == (("endpoint", "http://127.0.0.1:9"), ("region", "x"))


def test_a_folder_is_named_by_its_whole_path_since_executors_begin_in_others() -> None:
    given = {"path": "inbox", "queue": "jobs"}
    here = str(Path("inbox").absolute())
    assert source_options(given, streaming=False).place.url == here
    assert sink_options(given).place.url == here
    for url in ("s3://inbox", "s3:inbox"):  # the second is refused when it is opened
        assert source_options({**given, "path": url}, streaming=False).place.url == url
