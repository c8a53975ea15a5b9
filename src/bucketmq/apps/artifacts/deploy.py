"""The deploy agent: obeys the pointers of one environment on one machine.

```
read the pointer     signed, not over, its counter not below what this machine has seen
remember it          before anything is done, so that nothing older is ever obeyed again
fetch                manifest and files from released/..., each verified as it arrives, into a folder that is renamed
activate             current -> releases/..., one rename of a link
hook, health         commands with limits, or HTTP; if they fail, the release before is activated again
report               signed: healthy, failed, or refused and why
```

An agent that dies anywhere goes on when it is started again. What it remembers lies in its own folder, not in the
bucket: a bucket that was put back to last week's state cannot make it go back, too.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.artifacts import environments, keys, machine, places
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.environments import Pointer, Report, State
from bucketmq.apps.artifacts.hooks import HookPlan, Hooks, Release
from bucketmq.apps.artifacts.keys import Trust
from bucketmq.apps.artifacts.manifest import check_name
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.apps.artifacts.verify import Arrived, judge, newest_trust, trusted_manifest, verify
from bucketmq.errors import Denied, Invalid, NotFound
from bucketmq.events.event import time_text
from bucketmq.procedures.requests import Now, Procedure

WHY_CHARS_MAX = 1_000
RELEASES_KEPT = 5

logger = logging.getLogger("bucketmq")


class DeployPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent deploys, where to, and how it sees that it went well."""

    environment: str
    agent: str
    """Its name, another one for each machine."""
    folder: Path
    names: tuple[str, ...] = ()
    """The artifacts that it deploys; empty: all of the environment."""
    hooks: HookPlan = HookPlan()


class Remembered(msgspec.Struct, frozen=True):
    """What this machine has seen of an artifact: nothing below this counter is obeyed again."""

    counter: int = 0
    digest: str = ""
    version: str = ""
    finished: bool = True
    healthy: bool = False
    """Whether it worked when it was activated."""
    said: str = ""
    """The last report, without its time: the same is not told twice."""
    ended: int = 0
    """The counter of a pointer that was over: it stays so, also when the clock is put back."""
    format: int = 1


class Deployer:
    """Deploys what pointers say. Blocking; `run` carries a procedure through, on whatever thread it is called."""

    def __init__(
        self,
        bus: BucketApi,
        run: Callable[[Procedure[Any]], Any],
        plan: DeployPlan,
        *,
        pin: bytes,
        signing: SigningKey,
    ) -> None:
        self._bus = bus
        self._run = run
        self._plan = plan
        self._signing = signing
        check_name(plan.environment)
        check_name(plan.agent)
        self._hooks = Hooks(plan.hooks, run)
        self._memory = plan.folder / ".memory"
        self._memory.mkdir(parents=True, exist_ok=True)
        self._pin = pin

    def check(self) -> Trust:
        """The trust as it is now; `Denied` if this agent's reports would not count."""
        trust = self._trust()
        trust.environment(self._plan.environment)
        keys.require_role(trust, (self._signing,), "reports", self._run(_now()))
        return trust

    def look_at_all(self) -> list[Report]:
        """Deploy every artifact of the environment that has a new pointer; what was reported."""
        bucket = self._run(self._bus.open())
        found = self._run(environments.pointers(bucket))
        wanted = [name for environment, name in found if environment == self._plan.environment]
        reports = [self.deploy(name) for name in wanted]
        return [each for each in reports if each is not None]

    def deploy(self, name: str) -> Report | None:
        """Obey the pointer of an artifact; None if there is nothing new. Never raises for what the bucket holds."""
        if self._plan.names and name not in self._plan.names:
            return None
        with machine.alone(self._memory / ".lock"):  # a timer may start the next look before this one is over
            return self._deploy(name)

    def _deploy(self, name: str) -> Report | None:
        began = time.monotonic()
        remembered = before = self._recall(name)
        try:
            trust = self._trust()
            pointer = self._pointer(trust, name, remembered)
            if pointer is None:
                return None
            if keys.is_over(pointer.expires_at, self._run(_now())):
                remembered = msgspec.structs.replace(remembered, ended=pointer.current.counter)
            if remembered.ended == pointer.current.counter:
                raise environments.ended(pointer)
            remembered = self._seen(name, pointer, remembered)
            if remembered.finished and not remembered.said.startswith("refused"):
                return None
            release = self._fetch(trust, name, pointer.current)
        except (
            Untrusted,
            NotFound,
            Invalid,
            Denied,
            OSError,
        ) as error:  # the last: no room here, or something in the way
            return self._tell(name, remembered, "refused", str(error), began)
        why = self._activate(release, was_healthy=before.healthy and before.digest == pointer.current.digest)
        remembered = msgspec.structs.replace(remembered, finished=True, healthy=not why)
        return self._tell(name, remembered, "failed" if why else "healthy", why, began)

    def _trust(self) -> Trust:
        """The newest trust, from the newest that was ever seen here on."""
        kept = self._memory / ".trust.json"  # no artifact is called so
        pins = [self._pin, *([kept.read_bytes()] if kept.exists() else [])]
        newest = max(pins, key=lambda each: keys.read_trust(each, "a pinned trust document")[0].number)
        trust: Trust
        trust, body = self._run(newest_trust(self._bus, newest))
        if not kept.exists() or kept.read_bytes() != body:
            machine.write(kept, body)
        return trust

    def _pointer(self, trust: Trust, name: str, remembered: Remembered) -> Pointer | None:
        bucket = self._run(self._bus.open())
        pointed = self._run(environments.read_pointer(bucket, trust, self._plan.environment, name))
        if pointed is None and remembered.counter:
            raise Untrusted(
                f"the pointer is gone, and {remembered.version} (counter {remembered.counter}) was seen here before; "
                "what runs here is left as it is: promote it again"
            )
        if pointed is None:
            return None
        pointer: Pointer = pointed.pointer
        current = pointer.current
        if current.counter < remembered.counter:
            raise Untrusted(
                f"the pointer has counter {current.counter} ({current.version}), and {remembered.counter} "
                f"({remembered.version}) was seen here before: somebody put an old one back. It is not obeyed; promote "
                "or refresh, so that it goes on from there"
            )
        if current.counter == remembered.counter and current.digest != remembered.digest:
            raise Untrusted(
                f"two pointers with counter {current.counter} point at {remembered.version} and {current.version}; "
                "neither the second is obeyed, nor can both be right: find out who signed it"
            )
        return pointer

    def _seen(self, name: str, pointer: Pointer, remembered: Remembered) -> Remembered:
        """Remember a pointer before it is obeyed."""
        current = pointer.current
        if current.counter == remembered.counter:
            return remembered
        seen = Remembered(current.counter, current.digest, current.version, False, said=remembered.said)
        self._remember(name, seen)
        return seen

    def _fetch(self, trust: Trust, name: str, current: State) -> Release:
        """The release as a folder of this machine, every file verified."""
        place = places.release(self._plan.environment, name, current.version)
        bucket = self._run(self._bus.open())
        opened, _ = self._run(trusted_manifest(bucket, trust, place, name, current.version))
        if opened.digest != current.digest:
            raise Untrusted(
                f"{place} holds {opened.digest[:12]}, and the pointer says {current.digest[:12]}; it is not deployed"
            )
        releases = self._plan.folder / name / "releases"
        final = releases / f"{current.version}-{current.digest[:12]}"
        release = Release(name, current.version, current.digest, current.counter, self._plan.environment, final)
        if final.is_dir() and machine.is_whole(final, opened.manifest):
            return release
        partial = releases / f".{final.name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)

        def take(arrived: Arrived) -> str | None:
            problem = judge(arrived)
            if problem is None:
                machine.place(partial, arrived)
            return problem

        work = verify(self._bus, trust, name, current.version, environment=self._plan.environment, take=take)
        fetched = self._run(work)
        if fetched.digest != current.digest:  # the manifest was read again
            raise Untrusted(
                f"{place} became {fetched.digest[:12]} while it was fetched, and the pointer says "
                f"{current.digest[:12]}; it is not deployed"
            )
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        machine.sync(releases)
        return release

    def _activate(self, release: Release, *, was_healthy: bool) -> str:
        """Make a release the current one and see that it works; why not, if it does not. The one before is current
        again then. One that is current and was healthy is only looked at."""
        link = self._plan.folder / release.name / "current"
        before = link.resolve() if link.is_symlink() and link.exists() else None
        if before == release.folder.resolve() and was_healthy:
            return self._hooks.wait_until_healthy(release)
        machine.point(link, release.folder)
        why = self._hooks.activated(release) or self._hooks.wait_until_healthy(release)
        if why and before is not None and before != release.folder.resolve():
            machine.point(link, before)
            again = self._hooks.activated(_release_at(before, release))
            why += f"; {before.name} is current again here" + (f", but: {again}" if again else "")
        if not why:
            self._tidy(link)
        return why

    def _tell(self, name: str, remembered: Remembered, state: Any, why: str, began: float) -> Report | None:
        """Report, unless the same was reported last. What cannot be reported now is when the pointer is looked at
        again."""
        said = f"{state} {remembered.counter} {hashlib.sha256(why.encode()).hexdigest()[:16]}"
        if said == remembered.said:
            self._remember(name, remembered)
            return None
        report = Report(
            self._plan.environment,
            name,
            self._plan.agent,
            remembered.version,
            remembered.digest,
            remembered.counter,
            state,
            time_text(self._run(_now())),
            " ".join(why.split())[:WHY_CHARS_MAX],
            round(time.monotonic() - began, 3),
        )
        logger.info("%s in %s: %s %s %s", name, self._plan.environment, report.version, state, report.why)
        if remembered.finished:  # not before it is told; but if this dies now, what works is not activated again
            self._remember(name, msgspec.structs.replace(remembered, finished=False))
        bucket = self._run(self._bus.open())
        self._run(environments.write_report(bucket, report, self._signing))
        self._remember(name, msgspec.structs.replace(remembered, said=said))
        return report

    def _recall(self, name: str) -> Remembered:
        path = self._memory / f"{check_name(name)}.json"
        if not path.exists():
            return Remembered()
        try:
            return msgspec.json.decode(path.read_bytes(), type=Remembered)
        except msgspec.DecodeError:
            raise Invalid(
                f"{path} is damaged: this agent no longer knows which pointers it has seen; write the counter there "
                f'that it had last, as {{"counter": N}}, or delete the file to believe whatever comes'
            ) from None

    def _remember(self, name: str, remembered: Remembered) -> None:
        machine.write(self._memory / f"{name}.json", msgspec.json.encode(remembered))

    def _tidy(self, link: Path) -> None:
        """Keep the newest few releases of this machine."""
        current = link.resolve()
        old = [each for each in current.parent.iterdir() if each != current and not each.is_symlink()]
        old.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        for each in old[RELEASES_KEPT - 1 :]:
            shutil.rmtree(each, ignore_errors=True)


def _now() -> Procedure[float]:
    return (yield from Now())


def _release_at(folder: Path, instead_of: Release) -> Release:
    """A release that was fetched before, by the name of its folder."""
    version, _, digest = folder.name.rpartition("-")
    return msgspec.structs.replace(instead_of, version=version, digest=digest, folder=folder)
