"""The deploy agent: what it obeys, what it refuses and remembers, hooks with limits, and being killed anywhere."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec
import pytest
from procedures.objects.world import DEATHS, Killed, World

from apps.artifacts.making import ADA, BEN, FILES, MALLORY, TRUST, Shop, make_trust, resealed, trust_bytes, trusted
from bucketmq.apps.artifacts import environments, places, promotion
from bucketmq.apps.artifacts.commands import run_command
from bucketmq.apps.artifacts.deploy import Deployer, DeployPlan, Remembered
from bucketmq.apps.artifacts.environments import Report
from bucketmq.apps.artifacts.hooks import HookPlan
from bucketmq.errors import Denied, Invalid, NotFound
from bucketmq.testing.endpoints import endpoint

POINTER = "env/staging/shop.json"


class Machine:
    """A machine that deploys."""

    def __init__(self, shop: Shop, folder: Path, *, agent: str = "a1", **hooks: Any) -> None:
        self.shop = shop
        self.folder = folder
        self.plan = DeployPlan(environment="staging", agent=agent, folder=folder, hooks=HookPlan(**hooks))

    def deployer(self, **faults: Any) -> Deployer:
        bucket = self.shop.connect(**faults)
        made = Deployer(bucket.api, bucket.run, self.plan, pin=trust_bytes(TRUST), signing=ADA)
        made.bucket = bucket  # type: ignore[attr-defined]  # for the tests
        return made

    def deploy(self) -> Report | None:
        return self.deployer().deploy("shop")

    def reported(self) -> Report:
        bucket = self.shop.connect()
        opened = bucket.run(bucket.api.open())
        (found,) = bucket.run(environments.read_reports(opened, TRUST, "staging", "shop"))
        report: Report = found
        return report

    @property
    def current(self) -> Path:
        return (self.folder / "shop" / "current").resolve()

    def files(self) -> dict[str, bytes]:
        here = self.current
        return {str(each.relative_to(here)): each.read_bytes() for each in here.rglob("*") if each.is_file()}

    def remembered(self) -> Remembered:
        return msgspec.json.decode((self.folder / ".memory" / "shop.json").read_bytes(), type=Remembered)


@pytest.fixture
def machine(shop: Shop, tmp_path: Path) -> Machine:
    shop.publish()
    shop.promote("1.0")
    return Machine(shop, tmp_path / "machine")


def test_what_the_pointer_says_is_deployed_and_reported_once(machine: Machine) -> None:
    report = machine.deploy()
    assert report is not None and (report.state, report.version, report.counter) == ("healthy", "1.0", 1)
    assert machine.files() == FILES
    assert machine.reported() == report
    assert machine.deploy() is None
    assert machine.deployer().look_at_all() == []


def test_executables_stay_so(shop: Shop, tmp_path: Path) -> None:
    here = tmp_path / f"1.0-{abs(hash(tuple({'run.sh': b'#!/bin/sh'}.items())))}"
    here.mkdir()
    (here / "run.sh").touch(mode=0o755)
    shop.publish(files={"run.sh": b"#!/bin/sh"})
    shop.promote("1.0")
    machine = Machine(shop, tmp_path / "machine")
    machine.deploy()
    assert (machine.current / "run.sh").stat().st_mode & 0o111


def test_a_rollback_goes_back_with_a_higher_counter(machine: Machine) -> None:
    machine.deploy()
    machine.shop.publish("1.1", {"a": b"new"})
    machine.shop.promote("1.1")
    assert machine.deploy() is not None and machine.files() == {"a": b"new"}
    machine.shop.rollback()
    report = machine.deploy()
    assert report is not None and (report.version, report.counter, report.state) == ("1.0", 3, "healthy")
    assert machine.files() == FILES


def test_an_old_pointer_that_is_put_back_is_refused_and_remembered(machine: Machine) -> None:
    old = machine.shop.world.objects()[POINTER]
    machine.shop.publish("1.1", {"a": b"new"})
    machine.shop.promote("1.1")
    machine.deploy()
    machine.shop.world.write(POINTER, old)
    report = machine.deploy()
    assert report is not None and report.state == "refused"
    assert "counter 1" in report.why and "somebody put an old one back" in report.why
    assert machine.files() == {"a": b"new"}
    assert machine.remembered().counter == 2
    assert machine.deploy() is None  # the same is not told twice


def test_a_report_becomes_healthy_again_when_the_right_pointer_is_back(machine: Machine) -> None:
    old = machine.shop.world.objects()[POINTER]
    machine.shop.publish("1.1", {"a": b"new"})
    machine.shop.promote("1.1")
    machine.deploy()
    new = machine.shop.world.objects()[POINTER]
    for bad in (old, b"garbage"):
        machine.shop.world.write(POINTER, bad)
        assert machine.deploy() is not None and machine.reported().state == "refused"
        machine.shop.world.write(POINTER, new)
        assert machine.deploy() is not None and machine.reported().state == "healthy"
    machine.shop.world.delete(POINTER)
    assert machine.deploy() is not None and "pointer is gone" in machine.reported().why


def test_two_pointers_with_one_counter_are_not_both_obeyed(machine: Machine) -> None:
    machine.deploy()
    machine.shop.world.delete(POINTER)
    machine.shop.world.delete("deployed/staging/shop/a1.json")
    machine.shop.publish("6.6", {"a": b"other"})
    machine.shop.promote("6.6")
    assert machine.shop.pointer().current.counter == 1
    report = machine.deploy()
    assert report is not None and report.state == "refused" and "two pointers" in report.why
    assert machine.files() == FILES


def test_a_pointer_that_is_over_is_not_obeyed(machine: Machine) -> None:
    machine.shop.world.advance(31 * 86400)
    report = machine.deploy()
    assert report is not None and report.state == "refused" and "refresh" in report.why
    assert not (machine.folder / "shop").exists()


def test_a_pointer_that_was_over_stays_so_when_the_clock_is_put_back(machine: Machine) -> None:
    machine.shop.world.advance(31 * 86400)
    machine.deploy()
    machine.shop.world.advance(-20 * 86400)
    assert machine.deploy() is None and machine.reported().state == "refused"
    assert not (machine.folder / "shop").exists()
    bucket = machine.shop.connect()
    bucket.run(promotion.refresh(bucket.api, TRUST, "shop", "staging", promoter=promotion.Promoter((ADA,))))
    report = machine.deploy()
    assert report is not None and (report.state, report.counter) == ("healthy", 2)


def test_a_pointer_of_a_stranger_is_not_obeyed(machine: Machine) -> None:
    forged = resealed(machine.shop.world.objects()[POINTER], lambda _: None, MALLORY)
    machine.shop.world.write(POINTER, forged)
    report = machine.deploy()
    assert report is not None and report.state == "refused" and "not trusted" in report.why


def test_files_that_were_changed_after_the_promotion_are_not_activated(machine: Machine) -> None:
    machine.deploy()
    machine.shop.publish("1.1", {"a": b"new"})
    machine.shop.promote("1.1")
    machine.shop.world.write("released/staging/shop/1.1/a", b"bad")
    report = machine.deploy()
    assert report is not None and report.state == "refused" and "other bytes" in report.why
    assert machine.files() == FILES
    machine.shop.world.write("released/staging/shop/1.1/a", b"new")
    assert machine.deploy() is not None and machine.files() == {"a": b"new"}


def test_files_that_were_changed_on_the_machine_are_fetched_again(machine: Machine) -> None:
    machine.deploy()
    machine.shop.publish("1.1", {"a": b"new"})
    machine.shop.promote("1.1")
    machine.deploy()
    for each in (machine.folder / "shop" / "releases").glob("1.0-*/README"):
        each.write_bytes(b"Acme sh0p")
    machine.shop.rollback()
    machine.deploy()
    assert machine.files() == FILES


def test_a_removed_key_is_not_trusted_again_when_its_removal_is_hidden(machine: Machine) -> None:
    shop = machine.shop
    second = make_trust(trusted(BEN), trusted(ADA, "environments", "reports"), number=2)
    shop.world.write(places.trust(2), trust_bytes(second, ADA, BEN))
    report = machine.deploy()
    assert report is not None and report.state == "refused" and "may not sign this" in report.why
    shop.world.delete(places.trust(2))
    assert machine.deploy() is None  # still refused, for the same reason


def test_an_agent_whose_reports_would_not_count_does_not_start(machine: Machine) -> None:
    bucket = machine.shop.connect()
    stranger = Deployer(bucket.api, bucket.run, machine.plan, pin=trust_bytes(TRUST), signing=MALLORY)
    with pytest.raises(Denied, match="not trusted"):
        stranger.check()
    elsewhere = msgspec.structs.replace(machine.plan, environment="nowhere")
    with pytest.raises(NotFound, match="nowhere"):
        Deployer(bucket.api, bucket.run, elsewhere, pin=trust_bytes(TRUST), signing=ADA).check()


def test_a_damaged_memory_is_not_taken_for_an_empty_one(machine: Machine) -> None:
    machine.deploy()
    (machine.folder / ".memory" / "shop.json").write_bytes(b"{")
    with pytest.raises(Invalid, match="no longer knows"):
        machine.deploy()


def test_the_hook_is_told_what_was_activated_and_one_that_fails_puts_the_old_one_back(
    machine: Machine, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = f'echo "$ARTIFACT_VERSION $ARTIFACT_ENVIRONMENT $ARTIFACT_COUNTER" >>{log}; test ! -e broken'
    machine = Machine(machine.shop, tmp_path / "m2", hook=f"sh -c '{script}'")
    assert machine.deploy() is not None and machine.files() == FILES
    machine.shop.publish("1.1", {"broken": b""})
    machine.shop.promote("1.1")
    report = machine.deploy()
    assert report is not None and report.state == "failed"
    assert "the hook ended with 1" in report.why and "1.0-" in report.why and "current again" in report.why
    assert machine.files() == FILES
    assert log.read_text().split("\n")[:3] == ["1.0 staging 1", "1.1 staging 2", "1.0 staging 2"]
    assert machine.deploy() is None


def test_an_unhealthy_release_is_reported_and_the_old_one_put_back(machine: Machine, tmp_path: Path) -> None:
    machine = Machine(machine.shop, tmp_path / "m2", health="test ! -e broken", health_seconds=0.1)
    machine.deploy()
    machine.shop.publish("1.1", {"broken": b""})
    machine.shop.promote("1.1")
    report = machine.deploy()
    assert report is not None and report.state == "failed" and "health check" in report.why
    assert machine.files() == FILES


def test_a_refresh_is_reported_without_running_the_hook_again(machine: Machine, tmp_path: Path) -> None:
    from bucketmq.apps.artifacts import promotion

    machine = Machine(machine.shop, tmp_path / "m2", hook=f"sh -c 'echo x >>{tmp_path}/ran'", health="true")
    machine.deploy()
    bucket = machine.shop.connect()
    promoter = promotion.Promoter((ADA,))
    bucket.run(promotion.refresh(bucket.api, TRUST, "shop", "staging", promoter=promoter))
    report = machine.deploy()
    assert report is not None and (report.state, report.counter) == ("healthy", 2)
    assert (tmp_path / "ran").read_text() == "x\n"


def test_a_webhook_is_told_and_a_url_is_asked_whether_it_is_healthy(machine: Machine, tmp_path: Path) -> None:
    with endpoint() as there:
        machine = Machine(machine.shop, tmp_path / "m2", webhook=there.url, health_url=there.url, private=True)
        report = machine.deploy()
        assert report is not None and report.state == "healthy"
        first, *others = there.requests
    told = msgspec.json.decode(first.body)
    assert (told["name"], told["version"], told["environment"]) == ("shop", "1.0", "staging")
    assert others


def test_a_command_is_ended_with_all_its_processes_and_only_its_last_words_are_kept(tmp_path: Path) -> None:
    def run(script: str, seconds: float = 20.0) -> Any:
        words = ["sh", "-c", script]
        return run_command(words, folder=tmp_path, environment={}, timeout_seconds=seconds, name="the hook")

    late = run("sleep 60 & echo started; sleep 60", 0.3)
    assert (late.ok, late.output) == (False, "started") and "longer than 0.3 s" in late.why
    loud = run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert loud.ok and loud.output.endswith("xend") and len(loud.output) <= 4096
    assert run("exit 7").why == "the hook ended with 7"
    gone = run_command(["no-such-command"], folder=tmp_path, environment={}, timeout_seconds=1, name="the hook")
    assert "cannot be started" in gone.why


def test_an_agent_that_dies_at_any_request_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    counting = _two_versions(tmp_path / "count")
    deployer = counting.deployer()
    deployer.deploy("shop")
    for at in range(deployer.bucket.hands.count):  # type: ignore[attr-defined]
        for fault in DEATHS:
            machine = _two_versions(tmp_path / f"{at}{fault}")
            with pytest.raises(Killed):
                machine.deployer(at=at, fault=fault).deploy("shop")
            assert machine.files() in ({"a": b"old"}, {"a": b"new"}), f"{fault} at {at}"
            machine.deploy()
            assert machine.files() == {"a": b"new"}, f"{fault} at {at}"
            assert (machine.reported().state, machine.reported().counter) == ("healthy", 2), f"{fault} at {at}"
            machine.shop.world.close()
    counting.shop.world.close()


def _two_versions(folder: Path) -> Machine:
    """A machine that runs the first, with the second promoted."""
    shop = Shop(World("copying"), folder / "files")
    shop.publish("1.0", {"a": b"old"})
    shop.publish("1.1", {"a": b"new"})
    shop.promote("1.0")
    machine = Machine(shop, folder / "machine")
    machine.deploy()
    shop.promote("1.1")
    return machine


def test_an_artifact_named_like_what_the_agent_remembers_does_not_make_it_forget_whom_to_trust(
    machine: Machine,
) -> None:
    machine.deploy()
    machine.shop.world.write("env/staging/trust.json", b"{}")  # whoever can write to the bucket can do that
    machine.deployer().look_at_all()
    machine.shop.publish("1.1", {"a": b"new"})
    machine.shop.promote("1.1")
    report = machine.deploy()
    assert report is not None and (report.state, report.version) == ("healthy", "1.1"), report


@pytest.mark.parametrize("name", ["!", "-x", "A", "x" * 101, "x.json"])
def test_a_pointer_whose_name_no_artifact_has_stops_nobody(machine: Machine, name: str) -> None:
    machine.shop.world.write(f"env/staging/{name}.json", b"{}")
    assert [each.state for each in machine.deployer().look_at_all()] == ["healthy"]


def test_another_manifest_for_the_version_that_comes_while_files_are_fetched_is_refused(
    machine: Machine, tmp_path: Path
) -> None:
    """A build that ran twice has two signed manifests; whoever writes to the bucket can swap them at any time."""
    place = places.release("staging", "shop", "1.0")
    twin = Shop(World(), tmp_path / "twin")
    twin.publish("1.0", {"app/main.py": b"print('the other')\n"})
    twin.promote("1.0")
    deployer = machine.deployer()
    run = deployer._run

    def swapping(procedure: Any) -> Any:
        if procedure.__name__ == "verify":
            for key in machine.shop.world.objects(place):
                machine.shop.world.delete(key)
            for key, body in twin.world.objects(place).items():
                machine.shop.world.write(key, body)
        return run(procedure)

    deployer._run = swapping
    report = deployer.deploy("shop")
    twin.world.close()
    assert report is not None and report.state == "refused", report
    assert not machine.current.exists()


def test_two_agents_with_one_folder_take_turns(machine: Machine, tmp_path: Path) -> None:
    """As when a timer starts the next look while the last one still fetches."""
    hooks = tmp_path / "hooks"
    machine = Machine(machine.shop, machine.folder, hook=f"sh -c 'echo $ARTIFACT_VERSION >> {hooks}'")
    first, second = machine.deployer(), machine.deployer()
    run = first._run
    with ThreadPoolExecutor(1) as threads:
        others: list[Future[Report | None]] = []

        def meanwhile(procedure: Any) -> Any:
            if procedure.__name__ == "verify":
                others.append(threads.submit(second.deploy, "shop"))
                wait(others, timeout=1.0)  # long enough for it to do everything, if nothing keeps it from that
            return run(procedure)

        first._run = meanwhile
        report = first.deploy("shop")
    assert report is not None and report.state == "healthy", report
    assert [each.result() for each in others] == [None]
    assert hooks.read_text() == "1.0\n"


def test_a_machine_that_cannot_store_a_release_says_so_and_tries_again(machine: Machine) -> None:
    machine.folder.mkdir(parents=True, exist_ok=True)
    (machine.folder / "shop").write_text("in the way")
    (report,) = machine.deployer().look_at_all()
    assert (report.state, report.version) == ("refused", "1.0")
    assert "shop" in report.why
    (machine.folder / "shop").unlink()
    again = machine.deploy()
    assert again is not None and again.state == "healthy"
