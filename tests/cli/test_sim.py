"""The verb sim: a thin call, tested with a stand-in for what it calls."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from cli.ran import Cli


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A simulator that only notes how it was called."""
    seen: dict[str, Any] = {"result": {"seeds": 5, "failures": []}}

    def simulate(**how: Any) -> dict[str, Any]:
        how["progress"]("step by step")
        seen["sim"] = how
        result: dict[str, Any] = seen["result"]
        return result

    module = ModuleType("bucketmq.testing.simulation")
    module.main_run = simulate  # type: ignore[attr-defined]
    module.QUEUES, module.BUS = "queues", "bus"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bucketmq.testing.simulation", module)
    return seen


def test_sim_passes_its_options_on(cli: Cli, called: dict[str, Any]) -> None:
    ran = cli("sim", "--seeds", 5, "--first-seed", 3, "--jobs", 2, "--json")
    assert ran.code == 0
    assert ran.row == {"seeds": 5, "failures": []}
    assert callable(called["sim"].pop("progress"))
    assert called["sim"] == {
        "seed": None,
        "seeds": 5,
        "first_seed": 3,
        "jobs": 2,
        "trace": False,
        "mutants": False,
        "kit": "queues",
    }


def test_sim_runs_the_event_bus_when_asked(cli: Cli, called: dict[str, Any]) -> None:
    cli("sim", "--bus", "--seeds", 5)
    assert called["sim"]["kit"] == "bus"


def test_sim_runs_tables_when_asked(cli: Cli) -> None:
    """The command that a failure of this simulator names, as it is."""
    ran = cli("sim", "--tables", "--seed", 13, "--trace")
    assert ran.code == 0
    assert "tables/t/head.json" in ran.out


def test_sim_exits_with_1_when_a_seed_fails(cli: Cli, called: dict[str, Any]) -> None:
    called["result"] = {"seeds": 1, "failures": [{"seed": 7, "problem": "lost a message"}]}
    ran = cli("sim", "--seed", 7, "--trace")
    assert ran.code == 1
    assert "lost a message" in ran.out
    assert "step by step" in ran.out


def test_without_a_trace_progress_is_no_data(cli: Cli, called: dict[str, Any]) -> None:
    ran = cli("sim", "--seeds", 5)
    assert ("step by step" in ran.err, "step by step" in ran.out) == (True, False)
