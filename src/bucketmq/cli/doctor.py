"""The verb doctor: checks what BucketMQ needs of a store, one thing after the other, and says how to fix what fails."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import msgspec
import typer

from bucketmq.bucket.port import Missing, Object, Refused, Store, Unknown, Written
from bucketmq.bucket.urls import open_store, without_secrets
from bucketmq.cli.exits import Code
from bucketmq.cli.options import Json, Url, Yes, the_url
from bucketmq.cli.output import diagnose, emit, plural, say
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.errors import BucketMQError, Denied, Invalid, NotFound, Unavailable, Unsupported
from bucketmq.log.layout import join
from bucketmq.procedures.probe import probe

RACERS = 8
CREATE_ROUNDS = 10
INCREMENTS = 5
SKEW_SECONDS_MAX = 5.0
ATTEMPTS_MAX = 500
CHECK_WIDTH = 19
"""Of the longest name of a check."""

URL_CHECK = "url and credentials"
OTHER_STORE = "use a store that honours conditional writes: S3, GCS, Azure, R2, Tigris, current MinIO, Ceph, SeaweedFS"


class Check(msgspec.Struct, frozen=True):
    """What came of one check of the store."""

    check: str
    status: str
    """ok, warn or FAIL."""
    detail: str
    fix: str = ""
    kind: str = ""
    """The kind of the error, if there was one."""


class Wrong(Exception):
    """The store answered, and not as its contract says."""


def doctor(
    place: Annotated[
        str | None,
        typer.Argument(metavar="[URL | QUEUE]", help="The bucket, else --url. With --deep: a queue, else all."),
    ] = None,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Look for damage in every object of the queues.")] = False,
    mend: Annotated[bool, typer.Option("--mend", help="With --deep: repair what can be repaired.")] = False,
    url: Url = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Check a bucket: credentials, permissions, conditional writes also in a race, the clock; with the fix for each.

    Writes a few small objects under a name of their own and deletes them. A check that fails for a reason that all
    others would share is the last one. Exits with 1 if a check fails, 5 if the store does not answer.

    --deep instead reads every segment, head, register and hint of a queue, or of all, and says what does not fit, by
    shard and offset. Exits with 1 while anything is damaged. --mend shows the same, asks, and repairs what can be:
    nothing is deleted, and what is replaced is kept below damaged/.
    """
    if mend and not deep:
        raise Invalid("--mend goes with --deep: it repairs what an inspection of the queues finds")
    if deep:
        from bucketmq.cli.doctor_deep import deep as inspect_queues

        inspect_queues(url, place, mending=mend, yes=yes, as_json=as_json)
        return
    wanted = the_url(place or url)
    checks = []
    for check in examine(wanted):
        checks.append(check)
        if as_json:
            emit(check)
        else:
            diagnose(check.status, f"{check.check:<{CHECK_WIDTH}}  {check.detail}", check.fix)
    failed = [each for each in checks if each.status == "FAIL"]
    say(f"{plural(len(failed), 'check')} failed" if failed else "all checks passed: this bucket can hold queues")
    if failed:
        raise typer.Exit(Code.UNAVAILABLE if failed[0].kind == Unavailable.kind else Code.ERROR)


def examine(url: str) -> Iterator[Check]:
    """Every check in turn, up to a failure that all others would share, such as missing credentials."""
    try:
        store, prefix = open_store(url)
    except BucketMQError as error:
        yield _failed(URL_CHECK, error, url)
        return
    yield Check(URL_CHECK, "ok", f"{without_secrets(url)} can be opened")
    patient = Patient(store, prefix)
    try:
        for name, check in patient.checks():
            try:
                status, detail, fix = check()
                yield Check(name, status, detail, fix)
            except Wrong as error:
                yield Check(name, "FAIL", str(error), OTHER_STORE, Unsupported.kind)
            except BucketMQError as error:
                yield _failed(name, error, url)
                if not isinstance(error, Unsupported):
                    return
    finally:
        patient.clean_up()


def _failed(check: str, error: BucketMQError, url: str) -> Check:
    return Check(check, "FAIL", " ".join(str(error).split()), _fix(error, url, check), error.kind)


def _fix(error: BucketMQError, url: str, check: str) -> str:
    scheme = url.partition("://")[0] if "://" in url else "file"
    match error:
        case Denied() if scheme == "file":
            return "give this user the right to read and write the folder (chmod, chown), or use another folder"
        case Denied():
            return f"allow this account {PERMISSIONS[scheme]}; {WHO[scheme]}"
        case NotFound():
            return "create the bucket, or correct its name in the URL"
        case Unavailable() | Invalid() if scheme == "file" and check != URL_CHECK:
            return (
                "use a folder that this user may create or write to, on a disk that is mounted and that nothing clears"
            )
        case Unavailable():
            return f"check the network, the endpoint and the region, then try again; {WHO.get(scheme, '')}".rstrip("; ")
        case Unsupported():
            return OTHER_STORE
        case Invalid():
            return "write the URL like file:///tmp/inbox or s3://name/prefix"
        case _:
            return f"do what the message says, then run doctor again; {check} must pass"


PERMISSIONS = {
    "s3": "s3:GetObject, s3:PutObject and s3:DeleteObject on the prefix, and s3:ListBucket on the bucket",
    "gs": "the role roles/storage.objectUser on the bucket",
    "az": "the role Storage Blob Data Contributor on the container",
}
WHO = {
    "s3": "credentials come from AWS_ACCESS_KEY_ID, AWS_PROFILE, ~/.aws or the machine's role",
    "gs": "credentials come from GOOGLE_APPLICATION_CREDENTIALS or the machine's account",
    "az": "credentials come from AZURE_STORAGE_CONNECTION_STRING or the AZURE_STORAGE_* variables",
}

Verdict = tuple[str, str, str]
"""Status, detail, fix."""


class Patient:
    """The store under examination. Everything it writes lies below one key and is deleted at the end."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.hands = Hands(store)
        self.engine = Blocking(self.hands)
        self.store = store
        self.prefix = prefix
        self.root = join(prefix, "doctor", self.hands.new_id())
        self._keys: set[str] = set()

    def checks(self) -> list[tuple[str, Callable[[], Verdict]]]:
        return [
            ("list objects", self.lists),
            ("write an object", self.writes),
            ("read it back", self.reads),
            ("delete it", self.deletes),
            ("conditional writes", self.probes),
            ("racing creates", self.create_race),
            ("racing replaces", self.replace_race),
            ("clock", self.clock),
            ("speed", self.speed),
        ]

    def key(self, name: str) -> str:
        key = f"{self.root}/{name}.json"
        self._keys.add(key)
        return key

    def clean_up(self) -> None:
        for key in self._keys:
            try:
                self.store.delete(key)
            except BucketMQError:
                pass

    def lists(self) -> Verdict:
        page = self.store.list(join(self.prefix, "queues") + "/", after="", limit=1)
        return "ok", "there are queues in it" if page.entries else "there are no queues in it yet", ""

    def writes(self) -> Verdict:
        reply = self.store.create(self.key("small"), b'{"doctor":1}\n')
        if isinstance(reply, Unknown):
            raise Unavailable(f"whether the write landed is unknown: {reply.reason}")
        if isinstance(reply, Refused):
            raise Wrong("a create under an unused name was refused")
        return "ok", f"wrote {self.key('small')}", ""

    def reads(self) -> Verdict:
        found = self.store.get(self.key("small"))
        if isinstance(found, Missing) or found.body != b'{"doctor":1}\n':
            raise Wrong("what was written cannot be read back")
        keys = [entry.key for entry in self.store.list(self.root + "/", after="", limit=10).entries]
        if keys != [self.key("small")]:
            raise Wrong(f"what was written is not in the listing, which has {len(keys)} keys")
        return "ok", "the same bytes, and the key is in the listing", ""

    def deletes(self) -> Verdict:
        self.store.delete(self.key("small"))
        if isinstance(self.store.get(self.key("small")), Object):
            raise Wrong("what was deleted can still be read")
        return "ok", "the key is gone", ""

    def probes(self) -> Verdict:
        found = self.engine.run(probe(self.prefix))
        return "ok", "; ".join(found.checks), ""

    def create_race(self) -> Verdict:
        """Many threads create the same key at once, several times: each time at most one may win."""
        with ThreadPoolExecutor(RACERS) as pool:
            for number in range(CREATE_ROUNDS):
                key, start = self.key(f"create-{number}"), threading.Barrier(RACERS)
                bodies = [b'{"racer":%d}\n' % racer for racer in range(RACERS)]
                replies = list(pool.map(lambda body, k=key, s=start: self._create(k, body, s), bodies))
                winners = [body for body, reply in zip(bodies, replies, strict=True) if isinstance(reply, Written)]
                found = self.store.get(key)
                if len(winners) > 1:
                    raise Wrong(f"{len(winners)} of {RACERS} racing creates of one key won: it ignores If-None-Match")
                if isinstance(found, Missing) or (winners and found.body != winners[0]):
                    raise Wrong("after a race of creates the object is not what the winner wrote")
        return "ok", f"{RACERS} writers created one key at once, {CREATE_ROUNDS} times: one won each time", ""

    def _create(self, key: str, body: bytes, start: threading.Barrier) -> Written | Refused | Unknown:
        start.wait()
        return self.store.create(key, body)

    def replace_race(self) -> Verdict:
        """Many threads count up one number in one object: every accepted replace must count, and no other."""
        key = self.key("counter")
        self.store.create(key, b"0\n")
        with ThreadPoolExecutor(RACERS) as pool:
            start = threading.Barrier(RACERS)
            counts = list(pool.map(lambda _: self._count_up(key, start), range(RACERS)))
        written, unknown = sum(each[0] for each in counts), sum(each[1] for each in counts)
        found = self.store.get(key)
        value = -1 if isinstance(found, Missing) else int(found.body.split()[0])
        if not written <= value <= written + unknown:
            raise Wrong(f"{written} replaces were accepted and the counter is {value}: it ignores If-Match in a race")
        return "ok", f"{RACERS} writers counted to {value} in one object, and no update was lost", ""

    def _count_up(self, key: str, start: threading.Barrier) -> tuple[int, int]:
        written = unknown = 0
        for attempt in range(ATTEMPTS_MAX):
            found = self.store.get(key)
            if attempt == 0:
                start.wait()  # all have read the same state: however fast the store is, the first round is a race
            if isinstance(found, Missing):
                raise Wrong("an object that was being replaced is gone")
            nonce = self.hands.new_id().encode()  # no two states may have equal bytes: S3's mark is a checksum
            reply = self.store.replace(key, b"%d %s\n" % (int(found.body.split()[0]) + 1, nonce), found.version)
            written += isinstance(reply, Written)
            unknown += isinstance(reply, Unknown)
            if written == INCREMENTS:
                break
            if isinstance(reply, Refused):
                time.sleep(self.hands.chance() * 0.02)
        return written, unknown

    def clock(self) -> Verdict:
        """How far this machine's clock is off, from the time the store stamped on the probe's writes."""
        if not self.hands.clock.learnt:
            return "warn", "the store does not say when it wrote an object, so its clock is not known", ""
        skew = self.hands.clock.skew_seconds
        detail = f"this machine is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the store"
        if abs(skew) < SKEW_SECONDS_MAX:
            return "ok", detail, ""
        return (
            "warn",
            f"{detail}; leases go by the store's clock, so they are safe",
            "turn on NTP (timedatectl set-ntp on)",
        )

    def speed(self) -> Verdict:
        """For information: how long a request takes from here."""
        writes, reads = [], []
        for number in range(5):
            key, before = self.key(f"speed-{number}"), time.monotonic()
            self.store.create(key, b"{}\n")
            between = time.monotonic()
            self.store.get(key)
            writes.append(between - before)
            reads.append(time.monotonic() - between)
        put, get = (statistics.median(each) * 1000 for each in (writes, reads))
        return "ok", f"a write takes {put:.1f} ms, a read {get:.1f} ms (median of 5)", ""
