"""The benchmarks run and say what they promise to say. No number is judged here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import main_run
from bench.command import SCENARIOS
from bench.results import OURS, PEER, Target, measured, with_ratios

REMOTE = "seaweedfs"  # a server of its own; the throughput scenario is the same code on a folder, and so is the sweep


@pytest.mark.long
@pytest.mark.timeout(300)  # some twenty seconds alone; other tests on the same cores make it wait for the disk
def test_every_scenario_runs_and_the_json_has_its_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [name for name in SCENARIOS if name != REMOTE]
    file = tmp_path / "results" / "bench.json"

    chosen = [word for name in wanted for word in ("--only", name)]
    code = main_run(["--size", "tiny", "--keys-remote", "--json", str(file), *chosen])

    report = json.loads(file.read_text())
    assert code == 0, report["broken"]
    assert report["sizes"] == "tiny"
    assert report["machine"]["cores"] >= 1
    assert {each["scenario"] for each in report["measurements"]} == set(wanted)
    for each in report["measurements"]:
        assert each["unit"]
        assert isinstance(each["value"], int | float)
        assert ("target" in each) == ("reached" in each)
    out = capsys.readouterr().out
    assert "targets reached" in out
    assert all(name in out for name in wanted)


def test_a_scenario_nobody_knows_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main_run(["--only", "warp"])

    assert stopped.value.code == 2
    assert "folder" in capsys.readouterr().err


def test_a_target_is_reached_from_the_right_side() -> None:
    assert Target(at_least=10).reached(10)
    assert not Target(at_least=10).reached(9.9)
    assert Target(at_most=10).reached(10)
    assert not Target(at_most=10).reached(10.1)


def test_a_measurement_is_the_median_of_its_runs() -> None:
    found = measured("folder", "drain", [3.0, 100.0, 5.0], "messages/s", target=Target(at_least=5))

    assert found.value == 5.0
    assert found.reached


def test_ratios_say_how_many_times_better_we_are() -> None:
    rows = [
        measured("depth", "send", [500.0], "messages/s", subject=OURS, depth=10),
        measured("depth", "send", [50.0], "messages/s", subject=PEER, depth=10),
        measured("depth", "send", [200.0], "bytes", subject=OURS, depth=10),
        measured("depth", "send", [5000.0], "bytes", subject=PEER, depth=10),
        measured("depth", "send", [400.0], "messages/s", subject=OURS, depth=99),
    ]

    assert [each.ratio for each in with_ratios(rows)] == [10.0, None, 25.0, None, None]
