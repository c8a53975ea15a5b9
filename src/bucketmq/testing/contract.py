"""The contract of `bucketmq.bucket.port` as tests: a store that passes them can hold queues.

Subclass it in a test module and give it a store; pytest does the rest:

```python
class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MyStore(...)
```

Each test names its line of the contract. Lines 6, 7 and 17 are about failures, which a healthy store does not show: the
tests of each adapter cover them with a server that fails on purpose. Every test has a prefix of its own, so one store
serves them all.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from bucketmq.bucket.port import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    Attributes,
    Found,
    Missing,
    Object,
    Refused,
    Removed,
    Store,
    Unknown,
    Version,
    Written,
)
from bucketmq.bucket.urls import open_store
from bucketmq.errors import Invalid, Unsupported

THREADS = 8
PROCESSES = 3

BODIES = {
    "empty": b"",
    "every byte": bytes(range(256)),
    "line ends": b"\r\n\n\r\x00\xff\xfe",
    "5 MB": bytes(range(251)) * (5_000_000 // 251 + 1),
}

ODD_KEYS = [
    "Grüße/日本語/😀",
    "with space/and+plus",
    "percent%20/100%",
    "marks/!$&'()*,;=:@~[]{}|^`\"<>#?",
    ".hidden/..two/three...",
    "/".join(["long" * 11] * 20)[:KEY_BYTES_MAX],
]

BAD_KEYS = [
    "",
    "/",
    "/absolute",
    "trailing/",
    "a//b",
    ".",
    "..",
    "../up",
    "a/../../up",
    "a/./b",
    "back\\slash",
    "new\nline",
    "nul\x00",
    "\x7f",
    "\ud800",
    "x" * (KEY_BYTES_MAX + 1),
    "é" * (KEY_BYTES_MAX // 2 + 1),
]

ATTRIBUTES = {
    "a content type": Attributes("text/x-odd; charset=utf-8"),
    "metadata": Attributes("", {"made-by": "an agent", "a.b_c-1": 'quotes " and \\ and = ; , %20 +', "9": "9"}),
    "both": Attributes("application/json", {"source": "pending/1.json"}),
    "as much as there may be": Attributes("", {"name": "x" * (METADATA_BYTES_MAX - 4)}),
}

BAD_ATTRIBUTES = {
    "a name in upper case": Attributes("", {"Name": "value"}),
    "an empty name": Attributes("", {"": "value"}),
    "a value that is not ASCII": Attributes("", {"name": "Grüße"}),
    "a line end in a value": Attributes("", {"name": "a\r\nx: y"}),
    "a space at the end of a value": Attributes("", {"name": "value "}),
    "too much": Attributes("", {"name": "x" * (METADATA_BYTES_MAX - 3)}),
    "a line end in the content type": Attributes("text/plain\r\nx: y"),
}

Result = TypeVar("Result")


class StoreContract:
    """Tests that every store passes. Override `store`, and `url` where another process can open the same store."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("override the fixture `store`")

    @pytest.fixture
    def url(self) -> str | None:
        """For `open_store` in another process; None where the store cannot be shared."""
        return None

    @pytest.fixture
    def base(self) -> str:
        """A prefix that no other test has."""
        return f"contract/{uuid.uuid4().hex}"

    @pytest.fixture
    def races(self) -> None:
        """Asked for by tests in which writers compete. Override it to skip them on a server that keeps no lock."""

    # 1: get

    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
    def test_get_answers_what_was_written(self, store: Store, base: str, body: bytes) -> None:
        """Contract 1."""
        written = store.create(f"{base}/created", body)
        assert isinstance(written, Written)
        assert read(store, f"{base}/created").body == body

        first = created(store, f"{base}/replaced", b"first")
        assert isinstance(store.replace(f"{base}/replaced", body, first), Written)
        assert read(store, f"{base}/replaced").body == body

    def test_a_key_without_an_object_is_missing(self, store: Store, base: str) -> None:
        """Contract 1."""
        created(store, f"{base}/here", b"here")
        for key in (f"{base}/there", f"{base}/no/such/place", base, f"{base}/her", f"{base}/here/below"):
            assert store.get(key) == Missing(), key

    @pytest.mark.usefixtures("races")
    def test_a_reader_never_sees_a_mixture_of_two_writes(self, store: Store, base: str) -> None:
        """Contract 1."""
        key, rounds = f"{base}/object", 30
        # Every state is one byte repeated, in a length that tells which: a mixture or a prefix would show.
        states = [bytes([65 + n % 26]) * (n % 7 * 40_000 + n) for n in range(rounds)]
        version = created(store, key, states[0])
        done = threading.Event()

        def watch() -> list[bytes]:
            seen = []
            while not done.is_set():
                seen.append(read(store, key).body)
            return seen

        with ThreadPoolExecutor(2) as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            try:
                for state in states[1:]:
                    written = store.replace(key, state, version)
                    assert isinstance(written, Written)
                    version = written.version
            finally:
                done.set()
            assert all(body in states for watcher in watchers for body in watcher.result())

    # 2: create

    def test_a_second_create_is_refused(self, store: Store, base: str) -> None:
        """Contract 2."""
        created(store, f"{base}/key", b"first")
        assert store.create(f"{base}/key", b"second") == Refused()
        assert store.create(f"{base}/key", b"first") == Refused()
        assert read(store, f"{base}/key").body == b"first"

    def test_a_key_can_be_created_again_after_a_delete(self, store: Store, base: str) -> None:
        """Contract 2."""
        created(store, f"{base}/key", b"first")
        store.delete(f"{base}/key")
        created(store, f"{base}/key", b"second")
        assert read(store, f"{base}/key").body == b"second"

    @pytest.mark.usefixtures("races")
    def test_of_many_threads_that_create_one_key_one_wins(self, store: Store, base: str) -> None:
        """Contract 2."""
        keys = [f"{base}/{n:02}" for n in range(50)]
        race(store, {key: functools.partial(store.create, key) for key in keys})

    @pytest.mark.timeout(120)
    @pytest.mark.usefixtures("races")
    def test_of_many_processes_that_create_one_key_one_wins(self, store: Store, url: str | None, base: str) -> None:
        """Contract 2."""
        keys = [f"{base}/{n:02}" for n in range(30)]
        winners = in_processes(url, create_all, [(keys, f"writer {n}") for n in range(PROCESSES)])
        for key in keys:
            names = [name for won in winners for winner_key, name in won if winner_key == key]
            assert len(names) == 1
            assert read(store, key).body == names[0].encode()

    # 3: replace

    def test_replace_takes_the_newest_version_only(self, store: Store, base: str) -> None:
        """Contract 3."""
        first = created(store, f"{base}/key", b"one")
        second = store.replace(f"{base}/key", b"two", first)
        assert isinstance(second, Written)
        assert store.replace(f"{base}/key", b"three", first) == Refused()
        assert read(store, f"{base}/key").body == b"two"
        assert isinstance(store.replace(f"{base}/key", b"three", second.version), Written)

    def test_replace_of_a_missing_key_is_refused(self, store: Store, base: str) -> None:
        """Contract 3."""
        version = created(store, f"{base}/other", b"body")
        for key in (f"{base}/missing", f"{base}/no/such/place"):
            assert store.replace(key, b"new", version) == Refused()
            assert store.get(key) == Missing()

    def test_replace_of_a_deleted_state_is_refused(self, store: Store, base: str) -> None:
        """Contract 3."""
        key = f"{base}/key"
        for n in range(20):
            version = created(store, key, b"old %02d" % n)
            store.delete(key)
            assert store.replace(key, b"new", version) == Refused()
            assert store.get(key) == Missing()
            created(store, key, b"now %02d" % n)  # same length, and soon after: the version must differ all the same
            assert store.replace(key, b"new", version) == Refused()
            store.delete(key)

    @pytest.mark.usefixtures("races")
    def test_of_many_replaces_of_one_state_one_wins(self, store: Store, base: str) -> None:
        """Contract 3."""
        writes: dict[str, Callable[[bytes], object]] = {}
        for n in range(20):
            version = created(store, f"{base}/{n:02}", b"begin")
            writes[f"{base}/{n:02}"] = functools.partial(store.replace, f"{base}/{n:02}", version=version)
        race(store, writes)

    @pytest.mark.usefixtures("races")
    def test_a_counter_of_many_threads_loses_no_count(self, store: Store, base: str) -> None:
        """Contract 3."""
        key = f"{base}/counter"
        created(store, key, b"0 nobody")
        at_once([functools.partial(count_up, store, key, f"thread-{n}", 20) for n in range(THREADS)])
        assert read(store, key).body.split()[0] == str(THREADS * 20).encode()

    @pytest.mark.timeout(120)
    @pytest.mark.usefixtures("races")
    def test_a_counter_of_many_processes_loses_no_count(self, store: Store, url: str | None, base: str) -> None:
        """Contract 3."""
        key = f"{base}/counter"
        created(store, key, b"0 nobody")
        in_processes(url, count_up, [(key, f"process-{n}", 20) for n in range(PROCESSES)])
        assert read(store, key).body.split()[0] == str(PROCESSES * 20).encode()

    # 4: visible

    def test_what_is_written_is_seen_at_once(self, store: Store, base: str) -> None:
        """Contract 4."""
        for n in range(20):
            version = created(store, f"{base}/{n:02}", b"body %d" % n)
            assert read(store, f"{base}/{n:02}").version == version
            assert names(store, f"{base}/")[-1] == f"{base}/{n:02}"

    def test_what_is_written_is_seen_in_another_process(self, store: Store, url: str | None, base: str) -> None:
        """Contract 4."""
        key = f"{base}/key"
        version = created(store, key, b"written here")
        assert in_processes(url, body_and_version, [(key,)]) == [(b"written here", version)]

    # 5: refused

    def test_a_refused_write_changes_nothing(self, store: Store, base: str) -> None:
        """Contract 5."""
        key = f"{base}/key"
        stale = created(store, key, b"one")
        assert isinstance(store.replace(key, b"two", stale), Written)
        before = read(store, key)
        assert store.create(key, b"three") == Refused()
        assert store.replace(key, b"three", stale) == Refused()
        assert store.replace(f"{base}/other", b"three", stale) == Refused()
        assert read(store, key) == before
        assert names(store, f"{base}/") == [key]

    # 8: versions

    def test_every_state_has_a_version_of_its_own(self, store: Store, base: str) -> None:
        """Contract 8."""
        key = f"{base}/key"
        seen = [created(store, key, b"state 00")]
        for n in range(1, 40):
            written = store.replace(key, b"state %02d" % n, seen[-1])
            assert isinstance(written, Written)
            assert read(store, key).version == written.version
            seen.append(written.version)
        assert len(set(seen)) == len(seen)

    # 9: delete

    def test_deleting_twice_is_fine(self, store: Store, base: str) -> None:
        """Contract 9."""
        created(store, f"{base}/key", b"body")
        store.delete(f"{base}/key")
        store.delete(f"{base}/key")
        store.delete(f"{base}/never/was")
        assert store.get(f"{base}/key") == Missing()
        assert names(store, f"{base}/") == []

    def test_deleting_leaves_the_neighbours(self, store: Store, base: str) -> None:
        """Contract 9."""
        for name in ("a", "ab", "b/c", "b/d"):
            created(store, f"{base}/{name}", b"body")
        store.delete(f"{base}/a")
        store.delete(f"{base}/b")  # a prefix of keys, and no object
        store.delete(f"{base}/b/c")
        assert names(store, f"{base}/") == [f"{base}/ab", f"{base}/b/d"]

    # 10: list

    def test_a_listing_has_key_size_and_time(self, store: Store, base: str) -> None:
        """Contract 10."""
        created(store, f"{base}/key", b"12345")
        page = store.list(f"{base}/", after="", limit=10)
        (entry,) = page.entries
        assert (entry.key, entry.size_bytes, page.more) == (f"{base}/key", 5, False)
        assert abs(entry.stored_at - read(store, f"{base}/key").stored_at) < 2

    def test_a_listing_of_nothing_is_empty(self, store: Store, base: str) -> None:
        """Contract 10."""
        page = store.list(f"{base}/nothing/here/", after="", limit=10)
        assert (page.entries, page.more) == ((), False)

    def test_a_prefix_does_not_match_its_siblings(self, store: Store, base: str) -> None:
        """Contract 10."""
        for name in ("a/b/1", "a/b/c/2", "a/bc/3", "a/b.4", "a/5"):
            created(store, f"{base}/{name}", b"")
        assert names(store, f"{base}/a/b/") == [f"{base}/a/b/1", f"{base}/a/b/c/2"]

    def test_an_empty_prefix_lists_everything(self, store: Store, base: str) -> None:
        """Contract 10."""
        created(store, f"{base}/key", b"")
        assert f"{base}/key" in names(store, "")

    def test_pages_follow_one_another_without_gap_or_repeat(self, store: Store, base: str) -> None:
        """Contract 10."""
        keys = [f"{base}/{n:04}" for n in range(25)]
        for key in reversed(keys):
            created(store, key, b"")
        seen: list[str] = []
        sizes = []
        more = True
        while more:
            page = store.list(f"{base}/", after=seen[-1] if seen else "", limit=10)
            seen += [entry.key for entry in page.entries]
            sizes.append(len(page.entries))
            more = page.more
        assert seen == keys
        assert sizes == [10, 10, 5]

    def test_a_full_page_with_nothing_behind_it_says_so(self, store: Store, base: str) -> None:
        """Contract 10."""
        for n in range(5):
            created(store, f"{base}/{n}", b"")
        assert store.list(f"{base}/", after="", limit=5).more is False
        assert store.list(f"{base}/", after="", limit=4).more is True

    def test_after_need_not_be_a_key_that_exists(self, store: Store, base: str) -> None:
        """Contract 10."""
        for n in (1, 3, 5):
            created(store, f"{base}/{n}", b"")
        assert names(store, f"{base}/", after=f"{base}/2") == [f"{base}/3", f"{base}/5"]
        assert names(store, f"{base}/", after=f"{base}/3") == [f"{base}/5"]
        assert names(store, f"{base}/", after=f"{base}/9") == []
        assert len(names(store, f"{base}/", after=f"{base}/")) == 3

    def test_keys_of_one_level_are_in_byte_order(self, store: Store, base: str) -> None:
        """Contract 10."""
        keys = [f"{base}/{name}" for name in ("10", "2", "A", "Z", "_", "a", "b", "z", "é", "日", "😀")]
        for key in reversed(keys):
            created(store, key, b"")
        assert names(store, f"{base}/") == keys == sorted(keys, key=str.encode)

    def test_keys_of_several_levels_are_in_byte_order(self, store: Store, base: str) -> None:
        """Contract 10."""
        keys = [f"{base}/{name}" for name in ("x!1", "x-1/1", "x.1/1", "x/1", "x/2/3", "x/20", "x0")]
        for key in reversed(keys):
            created(store, key, b"")
        assert names(store, f"{base}/") == keys == sorted(keys, key=str.encode)
        for place, key in enumerate(keys):
            assert names(store, f"{base}/", after=key) == keys[place + 1 :]

    def test_a_listing_of_more_than_a_thousand_is_whole(self, store: Store, base: str) -> None:
        """Contract 10."""
        keys = [f"{base}/{n:05}" for n in range(1100)]
        with ThreadPoolExecutor(THREADS) as pool:
            assert all(isinstance(written, Written) for written in pool.map(lambda key: store.create(key, b""), keys))
        page = store.list(f"{base}/", after="", limit=1099)
        assert ([entry.key for entry in page.entries], page.more) == (keys[:1099], True)
        page = store.list(f"{base}/", after=keys[99], limit=2000)
        assert ([entry.key for entry in page.entries], page.more) == (keys[100:], False)

    @pytest.mark.usefixtures("races")
    def test_the_end_of_a_log_is_found_by_listing_while_it_grows(self, store: Store, base: str) -> None:
        """Contract 4, 10. What was written before a listing is in it; where listings are in order, no key is in it
        without those that were written before it. Keys that are deleted at the front change nothing."""
        keys = [f"{base}/log/{n:020}.ndjson" for n in range(60)]
        written = after = 0
        listed = threading.Semaphore(0)

        def append() -> None:
            nonlocal written
            gone = 0
            for n, key in enumerate(keys):
                created(store, key, b"segment %d" % n)
                written = n + 1
                if n % 10 == 9:
                    assert listed.acquire(timeout=60)  # however fast the store is, some listings fall in between
                while gone < after:
                    store.delete(keys[gone])
                    gone += 1

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(append)
            while not writer.done():
                before = written
                if before < 3:
                    continue
                after = before - 3
                found = names(store, f"{base}/log/", after=keys[after])
                assert set(keys[after + 1 : before]) <= set(found)
                if store.lists_in_order:
                    assert found == keys[after + 1 : after + 1 + len(found)]
                listed.release()
            writer.result()
        assert names(store, f"{base}/log/", after=keys[-2]) == keys[-1:]
        assert keys[0] not in names(store, f"{base}/log/")

    # 11: time

    def test_stored_at_is_the_time_of_the_write(self, store: Store, base: str) -> None:
        """Contract 11."""
        begin = time.time()
        written = store.create(f"{base}/key", b"body")
        found = read(store, f"{base}/key")
        # Servers round to seconds, and a clock may be a little off, but not by an hour or a time zone.
        assert begin - 5 < found.stored_at < time.time() + 5
        assert isinstance(written, Written)
        assert written.stored_at is None or written.stored_at == found.stored_at

    # 12: keys

    @pytest.mark.parametrize("name", ODD_KEYS)
    def test_odd_keys_are_kept_as_they_are(self, store: Store, base: str, name: str) -> None:
        """Contract 12."""
        key = f"{base}/{name}"[:KEY_BYTES_MAX]
        version = created(store, key, b"odd")
        assert store.create(key, b"again") == Refused()
        assert isinstance(store.replace(key, b"odder", version), Written)
        assert read(store, key).body == b"odder"
        assert names(store, f"{base}/") == [key]
        store.delete(key)
        assert names(store, f"{base}/") == []

    @pytest.mark.parametrize("key", BAD_KEYS, ids=[repr(key[:12]) for key in BAD_KEYS])
    def test_bad_keys_are_invalid_for_every_verb(self, store: Store, key: str) -> None:
        """Contract 12."""
        version = Version("any")
        verbs: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.create(key, b""),
            lambda: store.replace(key, b"", version),
            lambda: store.delete(key),
            lambda: store.look(key),
            lambda: store.remove(key, version),
            lambda: store.rename(key, "target", version),
            lambda: store.rename("key", key, version),
            lambda: store.copy(key, "target", Found(0, version, 0.0)),
            lambda: store.copy("key", key, Found(0, version, 0.0)),
        ]
        for verb in verbs:
            with pytest.raises(Invalid):
                verb()

    @pytest.mark.parametrize(
        ("prefix", "after", "limit"), [("a", "", 1), ("../", "", 1), ("a/", "", 0), ("a/", "/b", 1)]
    )
    def test_bad_listings_are_invalid(self, store: Store, prefix: str, after: str, limit: int) -> None:
        """Contract 10, 12."""
        with pytest.raises(Invalid):
            store.list(prefix, after=after, limit=limit)

    # 13: attributes

    @pytest.mark.parametrize("attributes", ATTRIBUTES.values(), ids=ATTRIBUTES)
    def test_attributes_are_kept_as_they_were_given(self, store: Store, base: str, attributes: Attributes) -> None:
        """Contract 13."""
        assert isinstance(store.create(f"{base}/created", b"body", attributes), Written)
        assert has(store, f"{base}/created", attributes)

        version = created(store, f"{base}/replaced", b"first")
        assert isinstance(store.replace(f"{base}/replaced", b"second", version, attributes), Written)
        assert has(store, f"{base}/replaced", attributes)

    def test_a_replace_takes_the_attributes_of_the_state_before_with_it(self, store: Store, base: str) -> None:
        """Contract 13."""
        key = f"{base}/key"
        written = store.create(key, b"one", Attributes("text/x-one", {"state": "one", "only": "here"}))
        assert isinstance(written, Written)
        written = store.replace(key, b"two", written.version, Attributes("text/x-two", {"state": "two"}))
        assert isinstance(written, Written)
        assert read(store, key).attributes == Attributes("text/x-two", {"state": "two"})
        assert isinstance(store.replace(key, b"three", written.version), Written)
        assert read(store, key).attributes.metadata == {}
        assert read(store, key).attributes.content_type != "text/x-two"

    @pytest.mark.parametrize("attributes", BAD_ATTRIBUTES.values(), ids=BAD_ATTRIBUTES)
    def test_bad_attributes_are_invalid_and_nothing_is_written(
        self, store: Store, base: str, attributes: Attributes
    ) -> None:
        """Contract 13."""
        version = created(store, f"{base}/there", b"there")
        with pytest.raises(Invalid):
            store.create(f"{base}/new", b"", attributes)
        with pytest.raises(Invalid):
            store.replace(f"{base}/there", b"", version, attributes)
        assert names(store, f"{base}/") == [f"{base}/there"]
        assert read(store, f"{base}/there").body == b"there"

    # 14: look

    def test_look_answers_what_get_does_without_the_body(self, store: Store, base: str) -> None:
        """Contract 14."""
        key = f"{base}/key.json"
        for body in (b"", b"some bytes", bytes(100_000)):
            store.delete(key)
            assert store.look(key) == Missing()
            assert isinstance(store.create(key, body, Attributes("text/x-odd", {"name": "value"})), Written)
            found = read(store, key)
            assert store.look(key) == Found(len(body), found.version, found.stored_at, found.attributes)
        for missing in (base, f"{base}/no/such/place", f"{key}/below"):
            assert store.look(missing) == Missing()

    def test_a_listing_tells_the_versions_that_get_does(self, store: Store, base: str) -> None:
        """Contract 10, 14."""
        for n in range(5):
            version = created(store, f"{base}/{n}", b"one %d" % n)
            assert isinstance(store.replace(f"{base}/{n}", b"two %d" % n, version), Written)
        entries = store.list(f"{base}/", after="", limit=10).entries
        told = [entry for entry in entries if entry.version is not None]
        assert len(told) in (0, 5)
        assert all(read(store, entry.key).version == entry.version for entry in told)

    # 15: remove

    def test_remove_takes_the_newest_version_only(self, store: Store, base: str) -> None:
        """Contract 15."""
        key = f"{base}/key"
        stale = created(store, key, b"one")
        written = store.replace(key, b"two", stale)
        assert isinstance(written, Written)
        assert store.remove(key, stale) == Refused()
        assert read(store, key).body == b"two"
        assert store.remove(key, written.version) == Removed()
        assert store.get(key) == store.look(key) == Missing()
        assert names(store, f"{base}/") == []

    def test_remove_of_what_is_missing_is_refused(self, store: Store, base: str) -> None:
        """Contract 15."""
        version = created(store, f"{base}/key", b"body")
        assert store.remove(f"{base}/key", version) == Removed()
        for key in (f"{base}/key", f"{base}/never", f"{base}/no/such/place"):
            assert store.remove(key, version) == Refused()

    def test_what_was_removed_can_be_created_again(self, store: Store, base: str) -> None:
        """Contract 2, 15."""
        key = f"{base}/key"
        for n in range(5):
            version = created(store, key, b"body %d" % n)
            assert read(store, key).body == b"body %d" % n
            assert store.remove(key, version) == Removed()
            assert store.replace(key, b"late", version) == Refused()

    def test_a_refused_remove_succeeds_with_the_version_that_a_look_tells(self, store: Store, base: str) -> None:
        """Contract 15: after a refusal, a look tells the newest version, and that one can be removed."""
        key = f"{base}/key"
        first = created(store, key, b"one")
        second = store.replace(key, b"two", first, Attributes("text/plain", {"name": "value"}))
        assert isinstance(second, Written)
        assert store.remove(key, first) == Refused()
        looked = store.look(key)
        assert isinstance(looked, Found)
        assert looked.version == second.version
        assert store.remove(key, looked.version) == Removed()
        assert store.remove(key, looked.version) == Refused()

    @pytest.mark.usefixtures("races")
    def test_of_many_removes_of_one_state_one_succeeds(self, store: Store, base: str) -> None:
        """Contract 15."""
        calls = []
        for n in range(10):
            version = created(store, f"{base}/{n}", b"begin")
            calls += [(n, functools.partial(store.remove, f"{base}/{n}", version)) for _ in range(THREADS)]
        answers = at_once([call for _, call in calls])
        for n in range(10):
            of_key = [answer for (key, _), answer in zip(calls, answers, strict=True) if key == n]
            done = sum(isinstance(answer, Removed) for answer in of_key)
            assert done == 1 or (done == 0 and any(isinstance(answer, Unknown) for answer in of_key))
            assert store.get(f"{base}/{n}") == Missing()

    def test_an_empty_object_is_removed_once(self, store: Store, base: str) -> None:
        """Contract 15."""
        version = created(store, f"{base}/key", b"")
        assert store.remove(f"{base}/key", version) == Removed()
        assert store.remove(f"{base}/key", version) == Refused()

    @pytest.mark.usefixtures("races")
    def test_of_many_replaces_and_removes_of_one_state_one_wins(self, store: Store, base: str) -> None:
        """Contract 15."""
        calls: list[tuple[str, bytes | None, Callable[[], object]]] = []
        for n in range(20):
            key = f"{base}/{n:02}"
            version = created(store, key, b"begin")
            calls += [(key, None, functools.partial(store.remove, key, version)) for _ in range(THREADS // 2)]
            for writer in range(THREADS // 2):
                body = f"{key} from writer {writer}".encode()
                calls.append((key, body, functools.partial(store.replace, key, body, version)))
        answers = at_once([call for _, _, call in calls])
        for key in {key for key, _, _ in calls}:
            of_key = [(body, answer) for (k, body, _), answer in zip(calls, answers, strict=True) if k == key]
            won = [body for body, answer in of_key if isinstance(answer, Written | Removed)]
            unclear = [body for body, answer in of_key if isinstance(answer, Unknown)]
            found = store.get(key)
            assert len(won) <= 1, key
            assert (found.body if isinstance(found, Object) else None) in (won or unclear), key

    # 16: rename

    def test_rename_moves_the_newest_state_to_a_free_key(self, store: Store, base: str) -> None:
        """Contract 16."""
        key, target, taken = f"{base}/key", f"{base}/target/+ %", f"{base}/taken"
        stale = created(store, key, b"one")
        if not store.renames:
            with pytest.raises(Unsupported):
                store.rename(key, target, stale)
            return
        written = store.replace(key, b"two", stale, Attributes("text/x-odd", {"name": "value"}))
        assert isinstance(written, Written)
        created(store, taken, b"taken")
        assert store.rename(key, target, stale) == Refused()
        assert store.rename(key, taken, written.version) == Refused()
        assert store.rename(f"{base}/missing", target, written.version) == Refused()
        assert names(store, f"{base}/") == [key, taken]
        assert store.rename(key, target, written.version) == Removed()
        assert names(store, f"{base}/") == [taken, target]
        assert read(store, target).body == b"two"
        assert has(store, target, Attributes("text/x-odd", {"name": "value"}))

    # 18: copy

    def test_copy_gives_a_free_key_the_bytes_of_one_state_and_attributes_of_its_own(
        self, store: Store, base: str
    ) -> None:
        """Contract 18."""
        key, target, taken = f"{base}/key", f"{base}/target/+ %", f"{base}/taken"
        stale = state(store, key, created(store, key, b"one"))
        own = Attributes("text/x-odd", {"name": "value"})
        if not copies(store, base):
            with pytest.raises(Unsupported):
                store.copy(key, target, stale, own)
            assert isinstance(store.get(target), Missing)
            return
        body = b"two" * 1_000_000
        written = store.replace(key, body, stale.version)
        assert isinstance(written, Written)
        source = state(store, key, written.version)
        created(store, taken, b"taken")
        assert store.copy(key, target, stale, own) == Refused()
        assert store.copy(key, taken, source, own) == Refused()
        assert store.copy(f"{base}/missing", target, source, own) == Refused()
        assert names(store, f"{base}/") == [key, taken]
        copied = store.copy(key, target, source, own)
        assert isinstance(copied, Written)
        assert names(store, f"{base}/") == [key, taken, target]
        assert (read(store, target).body, read(store, target).version) == (body, copied.version)
        assert has(store, target, own)
        assert read(store, key).version == written.version
        # They are two objects: what becomes of one is nothing to the other.
        assert isinstance(store.replace(key, b"three", written.version), Written)
        assert read(store, target).body == body
        assert isinstance(store.remove(target, copied.version), Removed)
        assert read(store, key).body == b"three"

    def test_of_many_copies_to_one_key_one_is_written(self, store: Store, base: str) -> None:
        """Contract 18."""
        if not copies(store, base):
            pytest.skip("this store does not copy")
        keys = [f"{base}/{n}" for n in range(8)]
        sources = {key: state(store, key, created(store, key, key[-1].encode())) for key in keys}
        target = f"{base}/target"
        answers = at_once([partial(store.copy, key, target, source) for key, source in sources.items()])
        won = [key for key, answer in zip(sources, answers, strict=True) if isinstance(answer, Written)]
        assert len(won) == 1
        assert read(store, target).body == won[0].rpartition("/")[2].encode()


def created(store: Store, key: str, body: bytes) -> Version:
    written = store.create(key, body)
    assert isinstance(written, Written)
    return written.version


def state(store: Store, key: str, version: Version) -> Found:
    """The state that was just written, without its body."""
    looked = store.look(key)
    assert isinstance(looked, Found)
    assert looked.version == version
    return looked


def copies(store: Store, base: str) -> bool:
    """Whether the store copies, which it may have to find out: by trying it."""
    if store.copies:
        key = f"{base}/tried"
        source = state(store, key, created(store, key, b"one"))
        with contextlib.suppress(Unsupported):
            store.copy(key, f"{key}-copy", source)
        store.delete(key)
        store.delete(f"{key}-copy")
    return store.copies


def read(store: Store, key: str) -> Object:
    found = store.get(key)
    assert isinstance(found, Object)
    return found


def has(store: Store, key: str, attributes: Attributes) -> bool:
    """A store may make up a content type where none was given."""
    kept = read(store, key).attributes
    return kept.metadata == attributes.metadata and attributes.content_type in ("", kept.content_type)


def names(store: Store, prefix: str, after: str = "") -> list[str]:
    return [entry.key for entry in store.list(prefix, after=after, limit=10_000).entries]


def race(store: Store, writes: Mapping[str, Callable[[bytes], object]]) -> None:
    """For every key, `THREADS` writers with different bodies: at most one wins, and its body is what is there.

    All keys at once, because a server may let the losers of one race wait for seconds.
    """
    runs = [(key, f"{key} from writer {n}".encode()) for key in writes for n in range(THREADS)]
    answers = at_once([functools.partial(writes[key], body) for key, body in runs])
    for key in writes:
        of_key = [(body, answer) for (k, body), answer in zip(runs, answers, strict=True) if k == key]
        won = [body for body, answer in of_key if isinstance(answer, Written)]
        unclear = [body for body, answer in of_key if isinstance(answer, Unknown)]
        assert len(won) <= 1, key
        assert read(store, key).body in (won or unclear), key


def count_up(store: Store, key: str, name: str, times: int) -> None:
    """Add `times` to the counter at `key`. The name makes every state unlike any other, and tells whose it is."""
    for n in range(times):
        while True:
            before = read(store, key)
            body = b"%d %s-%d" % (int(before.body.split()[0]) + 1, name.encode(), n)
            answer = store.replace(key, body, before.version)
            if isinstance(answer, Written) or (isinstance(answer, Unknown) and read(store, key).body == body):
                break


def create_all(store: Store, keys: Sequence[str], name: str) -> list[tuple[str, str]]:
    return [(key, name) for key in keys if isinstance(store.create(key, name.encode()), Written)]


def body_and_version(store: Store, key: str) -> tuple[bytes, Version]:
    found = read(store, key)
    return found.body, found.version


def at_once(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run every call in a thread of its own, all released in the same moment."""
    gate = threading.Barrier(len(calls))

    def go(call: Callable[[], Result]) -> Result:
        gate.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(go, calls))


def in_processes(url: str | None, work: Callable[..., Result], arguments: Sequence[tuple[object, ...]]) -> list[Result]:
    """Run `work(store, *arguments)` in processes of their own, each with its own connection to the store."""
    if url is None:
        pytest.skip("this store cannot be shared between processes")
    with ProcessPoolExecutor(len(arguments), multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_work, [(url, work, one) for one in arguments]))


def _work(task: tuple[str, Callable[..., Result], tuple[object, ...]]) -> Result:
    url, work, arguments = task
    store, _ = open_store(url)
    return work(store, *arguments)
