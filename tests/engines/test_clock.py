"""The store's clock: learnt from stamps; on this machine's own disk it follows the machine's clock at once."""

from __future__ import annotations

import time

import pytest

from bucketmq.engines import clock
from bucketmq.engines.clock import StoreClock, monotonic


class Machine:
    """The clocks of a machine, set by hand."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.ticks = 5_000.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.ticks += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "time", lambda: machine.wall)
    monkeypatch.setattr(clock, "monotonic", lambda: machine.ticks)
    return machine


def test_the_monotonic_clock_goes_on() -> None:
    assert monotonic() <= monotonic()


def test_a_remote_store_is_not_followed_by_the_wall_clock(machine: Machine) -> None:
    there = StoreClock(precision_seconds=1.0, local=False)
    there.observe(1_600_000_000.0, there.tick(), there.tick())
    machine.wall += 86_400
    machine.passes(10)
    assert there.now() == pytest.approx(1_600_000_010.5)


def test_a_local_store_steps_with_the_machine_without_a_write(machine: Machine) -> None:
    here = StoreClock(precision_seconds=0.0, local=True)
    machine.wall += 86_400
    assert here.now() == machine.wall
    here.observe(machine.wall, here.tick(), here.tick())
    machine.wall -= 86_400
    assert here.now() == machine.wall
    assert here.skew_seconds == 0.0


def test_a_local_store_with_a_clock_of_its_own_is_learnt(machine: Machine) -> None:
    here = StoreClock(precision_seconds=0.0, local=True)
    here.observe(machine.wall - 3600, here.tick(), here.tick())
    machine.passes(5)
    assert here.now() == machine.wall - 3600
    assert here.skew_seconds == 3600


@pytest.mark.parametrize("step", [86_400, -86_400])
def test_a_step_in_the_middle_of_a_write_teaches_nothing(machine: Machine, step: float) -> None:
    here = StoreClock(precision_seconds=0.0, local=True)
    before = here.tick()
    stamp = machine.wall
    machine.wall += step
    here.observe(stamp, before, here.tick())
    assert here.now() == machine.wall


def test_sights_of_a_remote_clock_narrow_it(machine: Machine) -> None:
    there = StoreClock(precision_seconds=1.0, local=False)
    assert not there.learnt
    at = there.tick()
    there.observe(1_600_000_000.0, at, at)  # between .0 and 1.0
    machine.passes(0.7)
    at = there.tick()
    there.observe(1_600_000_001.0, at, at)  # the second turned: between .3 and 1.0 at first
    assert there.learnt
    assert there.now() == pytest.approx(1_600_000_001.35)
