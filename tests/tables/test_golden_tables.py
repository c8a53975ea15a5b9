"""The documents of tables on disk, pinned byte for byte by the files in `golden/` (see `tests/log/test_golden.py`)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pinned import Files, Golden, document

from bucketmq.log import documents
from bucketmq.procedures.tables.files import Footer, Gone
from bucketmq.procedures.tables.opened import decode_head
from bucketmq.procedures.tables.unused import Unused
from bucketmq.tables.head import Head, Shape, Shard

HEAD = Head(
    version=12,
    shape=Shape(key="id", group="doc", newer_by="rev"),
    schema="/////w==",
    shards=(
        Shard(0, "data/q2v8k0c5x9w1m3aa.parquet", 10, 4096, "ab" * 32),
        Shard(32_768, "data/c5x9w1m3aab7q2v8.parquet", 12, 5000, "cd" * 32),
    ),
    commits=("m3aab7q2v8c5x9w1", "nightly"),
    writers={"d1e30378-8290-4646-87ba-f684caac0379": 41},
    swept_at=1_763_208_060.5,
)
UNUSED = Unused(3, 1_763_208_060.5, ("data/x9w1m3aab7q2v8c5.parquet",))
FOOTER = Footer({"a.pdf": Gone(7, 1_763_208_060.5)})

FILES: Files = {
    "table-head.json": (HEAD, documents.encode, lambda body: decode_head(body, "it")),
    "table-unused.json": (UNUSED, documents.encode, document(Unused)),
    "table-footer.json": (FOOTER, msgspec.json.encode, lambda body: msgspec.json.decode(body, type=Footer)),
}

GOLDEN = Golden(Path(__file__).parent / "golden", FILES)


@pytest.mark.parametrize("name", FILES)
def test_todays_code_writes_exactly_the_golden_bytes(name: str) -> None:
    assert GOLDEN.written(name) == GOLDEN.kept(name)


@pytest.mark.parametrize("name", FILES)
def test_todays_code_reads_the_golden_bytes(name: str) -> None:
    assert GOLDEN.read(name) == GOLDEN.value(name)


def test_every_golden_file_is_tested() -> None:
    assert GOLDEN.in_the_folder() == FILES.keys()


def test_the_golden_files_use_every_field_of_every_value() -> None:
    assert GOLDEN.fields_at_their_defaults() == set()
