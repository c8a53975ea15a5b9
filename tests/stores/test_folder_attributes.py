"""Attributes in extended attributes, files of other programs, and `remove` in a folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from bucketmq.bucket import files
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.port import Attributes, Found, Missing, Refused, Removed, Unknown, Written
from bucketmq.errors import Corrupt, Invalid, Unsupported
from bucketmq.testing.contract import created, names, read

XATTR = "user.bucketmq"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> FolderStore:
    return FolderStore(root, lock_wait_seconds=5)


def no_xattrs(monkeypatch: pytest.MonkeyPatch, *, system: bool) -> None:
    """As on macOS, where Python lacks the calls, or on a file system that says no."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    for name in ("_LISTXATTR", "_GETXATTR", "_SETXATTR"):
        monkeypatch.setattr(files, name, None if system else refuse)


def test_plain_objects_have_no_extended_attribute(root: Path, store: FolderStore) -> None:
    created(store, "a", b"")
    assert isinstance(store.create("b.json", b"", Attributes("application/json")), Written)
    assert isinstance(store.create("c", b"", Attributes("application/json")), Written)
    assert [XATTR in os.listxattr(root / name) for name in ("a", "b.json", "c")] == [False, False, True]


def test_an_object_has_its_attributes_from_the_first_moment(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked: list[list[str]] = []
    link = os.link

    def spy(source: str, target: str, **options: Any) -> None:
        linked.append(os.listxattr(root / ".bucketmq" / "tmp" / source))
        link(source, target, **options)

    created(store, "first", b"")  # the file system has been tried out
    monkeypatch.setattr(os, "link", spy)
    store.create("key", b"body", Attributes("", {"name": "value"}))
    assert linked == [[XATTR]]


@pytest.mark.parametrize("system", [True, False])
def test_without_extended_attributes_metadata_is_unsupported(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, system: bool
) -> None:
    no_xattrs(monkeypatch, system=system)
    for key, attributes in (
        ("a.json", Attributes("", {"name": "value"})),
        ("a.json", Attributes("application/json", {"name": "value"})),
        ("a", Attributes("application/json")),
        ("a.json", Attributes("text/plain")),
    ):
        with pytest.raises(Unsupported, match="leave them out"):
            store.create(key, b"", attributes)
    assert names(store, "") == []


@pytest.mark.parametrize("system", [True, False])
def test_without_extended_attributes_the_ending_tells_the_content_type(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, system: bool
) -> None:
    no_xattrs(monkeypatch, system=system)
    assert isinstance(store.create("a.json", b"{}", Attributes("application/json")), Written)
    assert read(store, "a.json").attributes == Attributes("application/json")
    created(store, "plain", b"")
    assert read(store, "plain").attributes == Attributes()


def test_attributes_that_do_not_fit_beside_a_file_are_invalid(store: FolderStore) -> None:
    # Each byte is doubled when it is written down: more than a block of ext4 holds.
    large = Attributes("", {f"{n:04}": "\\" * 100 for n in range(19)})
    try:
        store.create("key", b"", large)
    except Invalid as error:
        assert "use less metadata" in str(error)
        assert store.get("key") == Missing()
    else:  # other file systems have more room
        assert read(store, "key").attributes == large


def test_an_extended_attribute_of_somebody_else_is_corrupt(root: Path, store: FolderStore) -> None:
    created(store, "key", b"")
    os.setxattr(root / "key", XATTR, b"not ours")
    for verb in (store.get, store.look):
        with pytest.raises(Corrupt, match="setfattr -x"):
            verb("key")


# files of other programs


def test_files_of_other_programs_are_objects(root: Path, store: FolderStore) -> None:
    (root / "photos").mkdir(parents=True)
    (root / "photos" / "Cat 1.JPG").write_bytes(b"cat")
    found = store.look("photos/Cat 1.JPG")
    assert isinstance(found, Found)
    assert (found.size_bytes, found.attributes) == (3, Attributes("image/jpeg"))
    [entry] = store.list("photos/", after="", limit=9).entries
    assert (entry.key, entry.version) == ("photos/Cat 1.JPG", found.version)

    written = store.replace("photos/Cat 1.JPG", b"dog", found.version, Attributes("image/jpeg", {"by": "agent"}))
    assert isinstance(written, Written)
    assert (root / "photos" / "Cat 1.JPG").read_bytes() == b"dog"
    assert store.remove("photos/Cat 1.JPG", written.version) == Removed()
    assert not (root / "photos" / "Cat 1.JPG").exists()


def test_a_file_that_another_program_changed_is_not_removed(root: Path, store: FolderStore) -> None:
    version = created(store, "key", b"mine")
    with (root / "key").open("ab") as file:
        file.write(b" and theirs")
    assert store.remove("key", version) == Refused()
    assert (root / "key").read_bytes() == b"mine and theirs"


def test_a_file_that_another_program_deletes_first_is_refused(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = created(store, "key", b"")
    unlink = os.unlink

    def too_late(path: str, **options: int) -> None:
        unlink(path, **options)
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", too_late)
    assert store.remove("key", version) == Refused()


def test_a_remove_that_could_not_be_forced_to_disk_is_unknown(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.remove("other", created(store, "other", b"")) == Removed()  # its lock files are there
    version = created(store, "key", b"")

    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    assert store.remove("key", version) == Unknown("the directory could not be forced to disk: Input/output error")


def test_a_symbolic_link_is_not_followed(root: Path, store: FolderStore, tmp_path: Path) -> None:
    version = created(store, "key", b"")
    (tmp_path / "outside").write_bytes(b"outside")
    (root / "link").symlink_to(tmp_path / "outside")
    for verb in (lambda: store.look("link"), lambda: store.remove("link", version)):
        with pytest.raises(Invalid):
            verb()
    assert (tmp_path / "outside").read_bytes() == b"outside"
