"""The verbs of research, with and without --json, and what they say when something is wrong."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli.ran import Cli

import bucketmq
from bucketmq.apps.research import study
from bucketmq.apps.research.cli import GROUP
from bucketmq.apps.research.plan import read_plan, with_version
from bucketmq.cli.group import EXAMPLES

from .studies import work_off
from .test_study import RANGE

WAITS: dict[str, Any] = {
    "study": "waits",
    "simulator": "mmc",
    "parameters": [{"name": "load", "values": [0.5, 0.8]}],
    "fixed": {"customers": 100},
    "metrics": [{"name": "wait"}],
    "seeds": 2,
    "budget": 4,
}
TOML = """
study = "waits"
simulator = "mmc"
seeds = 2
budget = 4
fixed = { customers = 100 }
parameters = [{ name = "load", values = [0.5, 0.8] }]
metrics = [{ name = "wait" }]
"""


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with two plans, which are the same."""
    monkeypatch.chdir(folder)
    (folder / "plan.json").write_text(json.dumps(WAITS))
    (folder / "plan.toml").write_text(TOML)
    return folder


def test_a_study_from_its_plan_to_its_report(cli: Cli, here: Path) -> None:
    started = cli("research", "start", "plan.json", "--json")
    assert (started.code, started.row["new"], started.row["planned"], started.row["state"]) == (0, True, 4, "running")
    assert cli("research", "report", "waits").code != 0
    assert "still runs" in cli("research", "check", "waits").err
    again = cli("research", "start", "plan.toml", "--run", "--slots", "2", "--json")
    assert (again.row["new"], again.row["state"], again.row["best"]) == (False, "finished", "load=0.5")
    assert "1 result" in again.err
    assert [row["study"] for row in cli("research", "status", "--json").rows] == ["waits"]
    assert "# Study `waits`" in cli("research", "report", "waits").out
    assert cli("research", "report", "waits", "--html").out.startswith("<!DOCTYPE html>")
    assert cli("research", "check", "waits", "--json").row == {"study": "waits", "good": True, "problems": []}
    cli("research", "report", "waits", "--output", "out")
    assert {each.name for each in (here / "out").rglob("*.*")} == {"report.md", "report.html", "wait.svg"}


def test_a_report_that_was_changed_is_refused_with_exit_code_1(cli: Cli, here: Path, url: str) -> None:
    cli("research", "start", "plan.json", "--run")
    with bucketmq.connect(url) as bucket:
        text = bucket.get("studies/waits/report.html").body.decode()
        bucket.put("studies/waits/report.html", text.replace("</main>", "<p>99 % better</p></main>"))
    ran = cli("research", "check", "waits")
    assert ran.code == 1
    assert "'99' is a number without evidence" in ran.out
    assert "REFUSED" in ran.out
    assert cli("research", "check", "waits", "--json").row["good"] is False


def test_stopping_writes_the_report_of_what_is_there(cli: Cli, here: Path) -> None:
    cli("research", "start", "plan.json")
    ran = cli("research", "stop", "waits", "--json")
    assert (ran.row["state"], ran.row["why"], ran.row["results"]) == ("finished", "stopped", 0)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.toml", "= 1", "is not TOML"),
        ("a.json", "[]", "a plan is an object"),
        ("a.json", json.dumps(WAITS | {"simulator": "nowhere:f"}), "no module 'nowhere'"),
        ("a.json", json.dumps(WAITS | {"simulator": "json:nothing"}), "is not there"),
        ("a.json", json.dumps(WAITS | {"simulator": "json:__doc__"}), "not a function"),
        ("a.json", json.dumps(WAITS | {"version": "9"}), "version '1' is installed here"),
        ("a.json", json.dumps(WAITS | {"budget": 0}), "budget must be"),
        ("a.toml", TOML.replace("[0.5, 0.8]", "[nan]"), "not nan"),
        ("a.json", json.dumps(WAITS).replace("0.5", "NaN"), "is not JSON"),
    ],
)
def test_a_plan_that_cannot_be_is_a_usage_error(cli: Cli, here: Path, name: str, text: str, why: str) -> None:
    (here / name).write_text(text)
    ran = cli("research", "start", name)
    assert ran.code != 0
    assert why in ran.err
    assert "Traceback" not in ran.err
    assert cli("research", "status", "--json").out == ""


def test_a_plan_that_is_not_there_and_a_study_that_is_not(cli: Cli, here: Path) -> None:
    assert "cannot read the plan nowhere.json" in cli("research", "start", "nowhere.json").err
    for verb in ("status", "report", "check", "stop"):
        assert "there is no study 'nobody'" in cli("research", verb, "nobody").err


def test_a_dry_run_starts_nothing(cli: Cli, here: Path) -> None:
    assert "up to 4 trials of mmc" in cli("research", "start", "plan.json", "--dry-run").out
    assert "there are no studies" in cli("research", "status").err


def test_a_plan_with_another_simulator_in_the_folder_runs_with_run(cli: Cli, here: Path) -> None:
    (here / "mine.py").write_text("def simulate(parameters, seed):\n    return {'cost': parameters['x'] + seed % 3}\n")
    raw = {**WAITS, "study": "mine", "simulator": "mine:simulate", "fixed": {}, "metrics": [{"name": "cost"}]}
    (here / "mine.json").write_text(json.dumps({**raw, "parameters": [RANGE], "search": {"steps": 2}}))
    ran = cli("research", "start", "mine.json", "--run", "--json")
    assert (ran.row["state"], ran.row["best"], ran.row["version"]) == ("finished", "x=0", "0")


@pytest.mark.parametrize(
    "line", [line for verb, lines in EXAMPLES.items() if verb.startswith("research ") for line in lines]
)
def test_examples_of_the_help_run_as_they_are_printed(cli: Cli, here: Path, url: str, line: str) -> None:
    assert GROUP.name == "research"
    if "start" not in line:
        plan = with_version(read_plan(WAITS | {"simulator": "simulators_here:plain", "version": "1", "fixed": {}} | {
            "parameters": [{"name": "x", "values": [1, 2]}], "metrics": [{"name": "cost"}]}), "")  # fmt: skip
        with bucketmq.connect(url) as bucket:
            bucket.run(study.start(bucket.api, plan))
            work_off(bucket, plan)
            bucket.run(study.advance(bucket.api, "waits", study.Memory()))
    words = shlex.split(line)
    assert words[0] == "bucketmq"
    ran = cli(*words[1:])
    assert ran.code == 0, ran


def test_a_plan_that_cannot_be_read_does_not_hide_the_other_studies(cli: Cli, url: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(TOML)
    assert cli("research", "start", tmp_path / "plan.toml").code == 0
    with bucketmq.connect(url) as bucket:
        bucket.put("research/studies/a-spoiled.json", b"{}")
        bucket.put("studies/a-spoiled/plan.json", b"{")
    ran = cli("research", "status", "--json")
    assert (ran.code, json.loads(ran.out)["study"]) == (0, "waits")
    assert "studies/a-spoiled/plan.json cannot be read" in ran.err
    assert cli("research", "status", "a-spoiled").code != 0


@pytest.mark.timeout(30)
def test_a_mistyped_command_is_refused_before_anything_is_started(cli: Cli, here: Path) -> None:
    raw = {key: value for key, value in WAITS.items() if key != "simulator"}
    (here / "mine.json").write_text(json.dumps({**raw, "command": ["./modell", "--n={load}"], "version": "1"}))
    ran = cli("research", "start", "mine.json", "--run")
    assert ran.code != 0
    assert "there is no command './modell' here" in ran.err
    assert cli("research", "status", "--json").out == ""
