"""Keys, trust and artifacts of made-up people, on the worlds of `procedures.objects.world`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from procedures.objects.world import World

from bucketmq.apps.artifacts import envelope, environments, keys, places, promotion, publish, verify
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.environments import Report
from bucketmq.apps.artifacts.keyfiles import public_text
from bucketmq.apps.artifacts.keys import Environment, Role, Trust, TrustedKey
from bucketmq.apps.artifacts.promotion import Promoter
from bucketmq.events.event import time_text


def key(number: int) -> SigningKey:
    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32))


ADA, BEN, CYD, MALLORY = key(1), key(2), key(3), key(9)
OWNERS = {ADA.id: "ada", BEN.id: "ben", CYD.id: "cyd", MALLORY.id: "mallory"}
ALL: tuple[Role, ...] = ("builds", "environments", "approves", "reports", "trust")
LATE = "2099-01-01T00:00:00Z"


def trusted(one: SigningKey, *roles: Role, expires_at: str = "") -> TrustedKey:
    return TrustedKey(OWNERS[one.id], public_text(one), roles or ALL, expires_at)


def make_trust(*given: TrustedKey, number: int = 1, expires_at: str = LATE, **more: Any) -> Trust:
    environments_ = (Environment("staging"), Environment("production", after="staging", approvals=1))
    return Trust(
        number, expires_at, given or (trusted(ADA), trusted(BEN)), more.pop("environments", environments_), **more
    )


TRUST = make_trust()
FILES = {"app/main.py": b"print('hello')\n", "data.bin": bytes(range(256)) * 40, "README": b"Acme shop"}


def sources(folder: Path, files: dict[str, bytes]) -> list[publish.Source]:
    for path, body in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(body)
    return publish.sources_of([folder])


class Shop:
    """One bucket with artifacts named `shop`."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder

    def connect(self, **faults: Any) -> Any:
        return self.world.connect(**faults)

    def publish(
        self,
        version: str = "1.0",
        files: dict[str, bytes] | None = None,
        *,
        by: tuple[SigningKey, ...] = (ADA,),
        bucket: Any = None,
    ) -> publish.Published:
        bucket = bucket or self.connect()
        wanted = FILES if files is None else files
        here = self.folder / f"{version}-{abs(hash(tuple(wanted.items())))}"
        return bucket.run(publish.publish(bucket.api, "shop", version, sources(here, wanted), by))

    def verify(self, version: str = "1.0", *, trust: Trust = TRUST, environment: str = "", bucket: Any = None) -> Any:
        bucket = bucket or self.connect()
        return bucket.run(verify.verify(bucket.api, trust, "shop", version, environment=environment))

    def promote(
        self,
        version: str,
        environment: str = "staging",
        *,
        trust: Trust = TRUST,
        by: SigningKey = ADA,
        bucket: Any = None,
    ) -> promotion.Promoted:
        bucket = bucket or self.connect()
        promoter = Promoter((by,))
        return bucket.run(promotion.promote(bucket.api, trust, "shop", version, environment, promoter=promoter))

    def rollback(self, environment: str = "staging", *, to: str = "", trust: Trust = TRUST) -> promotion.Promoted:
        bucket = self.connect()
        promoter = Promoter((ADA,), why="it was bad")
        return bucket.run(promotion.rollback(bucket.api, trust, "shop", environment, promoter=promoter, to=to))

    def approve(
        self, version: str, environment: str = "production", *, by: SigningKey = BEN, trust: Trust = TRUST
    ) -> None:
        bucket = self.connect()
        bucket.run(promotion.approve(bucket.api, trust, "shop", version, environment, signing=by))

    def report(
        self,
        environment: str = "staging",
        *,
        state: str = "healthy",
        agent: str = "a1",
        by: SigningKey = ADA,
        **other: Any,
    ) -> None:
        """What an agent would say of what is current."""
        bucket = self.connect()
        now = self.pointer(environment).current
        said = {"version": now.version, "digest": now.digest, "counter": now.counter} | other
        report = Report(environment, "shop", agent, state=state, at=time_text(self.world.time.now()), **said)  # type: ignore[arg-type]
        opened = bucket.run(bucket.api.open())
        bucket.run(environments.write_report(opened, report, by))

    def pointer(self, environment: str = "staging", trust: Trust = TRUST) -> environments.Pointer:
        bucket = self.connect()
        opened = bucket.run(bucket.api.open())
        found = bucket.run(environments.read_pointer(opened, trust, environment, "shop"))
        assert found is not None
        return found.pointer

    def in_production(self, version: str) -> None:
        self.promote(version)
        self.report()
        self.approve(version)
        self.promote(version, "production")


def trust_bytes(trust: Trust, *by: SigningKey) -> bytes:
    return envelope.encode(keys.seal_trust(trust, by or (ADA,)))


def resealed(body: bytes, change: Any, *by: SigningKey) -> bytes:
    """A signed document with another payload, signed by these: what a forger with keys of their own would write."""
    document = msgspec.json.decode(body)
    inner = document.get("envelope", document)
    payload = msgspec.json.decode(envelope.decode64(inner["payload"], ""))
    change(payload)
    made = envelope.seal(inner["payloadType"], msgspec.json.encode(payload), by)
    if "envelope" in document:
        return msgspec.json.encode({**document, "envelope": made})
    return envelope.encode(made)


def counted(bucket: Any) -> Counter[str]:
    """Requests of a bucket from now on, by kind."""
    counts: Counter[str] = Counter()

    def note(_number: int, request: Any) -> None:
        counts[type(request).__name__] += 1

    bucket.hands.meddle = note
    return counts


MANIFEST_KEY = f"{places.build('shop', '1.0')}manifest.json"
