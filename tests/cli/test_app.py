"""What all verbs share: help, usage errors, JSON errors, completion, the missing extra, the prices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bucketmq import errors
from bucketmq.cli.app import app
from bucketmq.cli.exits import MEANINGS, Code, code_of
from bucketmq.cli.group import EXAMPLES
from bucketmq.engines.meter import Requests
from bucketmq.pricing import PRICES, cost, dollars
from cli.ran import Cli, Shell
from cli.running import running


def verbs(command: Any, path: str = "") -> Iterator[str]:
    """Every verb as it is typed: `send`, `rules add`."""
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from verbs(each, f"{path}{name} ")
        else:
            yield path + name


COMMAND = typer.main.get_command(app)
COMMAND.list_commands(None)  # type: ignore[attr-defined,arg-type]  # now it has the verbs of applications, too
VERBS = sorted(verbs(COMMAND))

WITHOUT_BUCKET = {"demo", "moderation demo", "sim", "token", "version", "watch"}
WITHOUT_BUCKET |= {"apps ls", "apps show", "apps demo"}
WITHOUT_BUCKET |= {"pipeline ls", "pipeline package", "pipeline show"}

WITHOUT_BUCKET |= {"artifacts keygen"}
ARTIFACTS = [
    "keygen",
    "trust",
    "publish",
    "sign",
    "verify",
    "promote",
    "approve",
    "rollback",
    "refresh",
    "deploy",
    "status",
    "history",
    "diff",
]


def test_the_verbs_are_those_of_the_plan() -> None:
    planned = (
        "init send receive ack retry peek tail stats dead redrive purge shards worker doctor sim demo version token"
    )
    bus = "watch listen trigger sweep audit serve dashboard put get mv rm"
    rules = "add ls show rm pause resume rotate test explain dry-run replay dead redrive run"
    groups = [f"rules {verb}" for verb in rules.split()]
    groups += [f"notifications {verb}" for verb in ("set", "show", "reset")]
    groups += [f"moderation {verb}" for verb in ("ingest", "route", "desk", "status", "demo")]
    groups += [f"artifacts {verb}" for verb in ARTIFACTS]
    groups += [f"documents {verb}" for verb in ("search", "why", "graph", "ask", "status", "switch", "lance")]
    groups += [f"research {verb}" for verb in ("start", "status", "report", "check", "stop")]
    groups += [f"images {verb}" for verb in ("show", "ls", "rebuild", "run", "rerun")]
    groups += [f"logs {verb}" for verb in ("tail", "templates", "alerts", "explain", "mute")]
    groups += [f"apps {verb}" for verb in ("ls", "show", "run", "demo", "rerun")]
    groups += [f"pipeline {verb}" for verb in ("ls", "show", "run", "package", "tidy")]
    groups += [f"subscriptions {verb}" for verb in ("ls", "rm")]
    groups += [f"queue {verb}" for verb in ("pause", "resume")]
    groups += [f"tables {verb}" for verb in ("ls", "show", "rm")]
    groups += [f"spark {verb}" for verb in ("forget", "orphans", "restore-checkpoint")]
    assert sorted([*planned.split(), *bus.split(), *groups]) == VERBS
    assert sorted(EXAMPLES) == VERBS


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "bench"])
def test_every_verb_has_help_with_examples(cli: Cli, verb: str) -> None:
    ran = cli(*verb.split(), "--help")
    assert ran.code == 0
    assert "Examples" in ran.out
    assert "--json" in ran.out


def test_the_help_documents_the_exit_codes_and_the_environment(cli: Cli) -> None:
    out = cli("--help").out
    for code, meaning in MEANINGS.items():
        assert f"{code:>3}  {meaning}" in out
    assert "BUCKETMQ_URL" in out


def test_no_verb_at_all_shows_the_help_and_exits_with_2(cli: Cli) -> None:
    ran = cli()
    assert ran.code == 2
    assert "Usage" in ran.out + ran.err


def test_a_mistyped_verb_is_answered_with_the_right_one(cli: Cli) -> None:
    ran = cli("recieve", "jobs")
    assert ran.code == 2
    assert "Did you mean 'receive'" in ran.err
    assert ran.err.startswith("error (usage): ")
    assert ran.err.count("\n") == 1


def test_a_mistyped_option_is_a_usage_error_as_json_too(cli: Cli) -> None:
    ran = cli("send", "jobs", "1", "--dealy", "5", "--json")
    assert ran.code == 2
    assert ran.error["kind"] == "usage"
    assert ran.out == ""


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in WITHOUT_BUCKET])
def test_without_a_url_every_verb_says_how_to_set_one(cli: Cli, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETMQ_URL")
    args = {
        "send": ["jobs", "1"],
        "shards": ["jobs", "2"],
        "doctor": [],
        "dashboard": [],
        "worker": ["os:getpid", "--queue", "jobs"],
    }
    receipt = "WyJqb2JzIiwibWFpbiIsMCwxLFswLDAsMV0sMV0"
    args |= {"ack": [receipt], "retry": [receipt], "mv": ["a", "b"], "sweep": [], "audit": ["--rule", "r"]}
    args |= {"listen": ["--forward-to", "http://localhost:9/"], "rules ls": [], "rules run": [], "serve": ["--no-auth"]}
    args |= {"rules add": ["r", "--to", "queue:q"], "rules test": ["r", "--key", "k"]}
    args |= {"notifications set": ["--url", "https://example.com/"]}
    args |= {"notifications show": [], "notifications reset": [], "tables ls": []}
    args |= {"spark forget": ["jobs", "r"], "spark restore-checkpoint": ["cp", "--queue", "jobs", "--txn", "t"]}
    args |= {f"moderation {name}": [] for name in ("desk", "ingest", "route", "status")}
    args |= {"documents status": []}
    args |= {"research status": []}
    args |= {
        "images ls": [],
        "images rebuild": [],
        "images run": [],
        "images rerun": ["--stage", "alt", "--prefix", ""],
    }
    args |= {"logs alerts": [], "logs mute": ["0" * 20], "logs explain": ["0" * 20]}
    args |= {"pipeline run": ["moderation"], "subscriptions rm": ["jobs", "audit"]}
    args |= {"apps run": ["moderation"], "apps rerun": ["moderation", "--stage", "judge", "--prefix", ""]}
    args |= {f"artifacts {name}": ["shop", "1.0", "2.0"] for name in ("publish", "diff")}
    args |= {f"artifacts {name}": ["shop", "1.0"] for name in ("sign", "verify")}
    args |= {f"artifacts {name}": ["shop", "1.0", "--env", "staging"] for name in ("promote", "approve")}
    args |= {f"artifacts {name}": ["shop", "--env", "staging"] for name in ("rollback", "refresh")}
    args |= {"artifacts deploy": ["--env", "staging"]}
    ran = cli(*verb.split(), *args.get(verb, ["jobs"]))
    assert ran.code == 2
    assert "export BUCKETMQ_URL=file:///" in ran.err


def test_a_bad_url_is_a_usage_error(cli: Cli) -> None:
    for bad in ("bogus://x", "file://relative", "s3://", "s3://b?nonsense=1"):
        ran = cli("stats", "--url", bad)
        assert (ran.code, ran.err.startswith("error (invalid): ")) == (2, True), ran


def test_url_and_json_may_stand_before_the_verb(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETMQ_URL")
    assert cli("--url", url, "--json", "send", "jobs", "1").row["offset"] == 0
    assert cli("--url", "file:///nowhere", "stats", "--url", url, "--json").row["queue"] == "jobs"


def test_version(cli: Cli) -> None:
    assert cli("version").out == cli("--version").out
    assert cli("version", "--json").row["version"] == cli("version").out.strip()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Invalid, Code.USAGE),
        (errors.NotFound, Code.ERROR),
        (errors.LeaseLost, Code.CONTENDED),
        (errors.Contended, Code.CONTENDED),
        (errors.Unavailable, Code.UNAVAILABLE),
        (errors.Denied, Code.ERROR),
        (errors.Unsupported, Code.ERROR),
        (errors.Corrupt, Code.ERROR),
    ],
)
def test_every_kind_of_error_has_an_exit_code(error: type[errors.BucketMQError], code: Code) -> None:
    assert code_of(error("x")) is code


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_the_completion_script_is_printed(shell: Shell, kind: str) -> None:
    ran = shell(f"_BUCKETMQ_COMPLETE=source_{kind} bucketmq")
    assert ran.code == 0
    assert "bucketmq" in ran.out


def test_completion_completes_verbs(shell: Shell) -> None:
    ran = shell("COMP_WORDS='bucketmq re' COMP_CWORD=1 _BUCKETMQ_COMPLETE=complete_bash bucketmq")
    assert ran.out.split() == ["receive", "retry", "redrive", "research"]


def test_completion_completes_the_verbs_of_a_group(shell: Shell) -> None:
    ran = shell("COMP_WORDS='bucketmq rules re' COMP_CWORD=2 _BUCKETMQ_COMPLETE=complete_bash bucketmq")
    assert sorted(ran.out.split()) == ["redrive", "replay", "resume"]


def test_without_the_extra_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from bucketmq.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error (unsupported): the command line needs the package typer; run: pip install 'bucketmq[cli]'"
    ]


def test_a_reader_that_has_seen_enough_is_no_disaster(shell: Shell) -> None:
    shell("seq 5000 | bucketmq send jobs --lines")
    ran = shell("bucketmq tail jobs --from earliest --json | head -n 1")
    assert len(ran.rows) == 1
    assert "Traceback" not in ran.err


def test_ctrl_c_exits_with_130(cli: Cli, environment: dict[str, str], folder: Path) -> None:
    cli("send", "jobs", "1")
    with running(["tail", "jobs", "--follow", "--json"], environment, folder) as following:
        assert following.row()["body"] == 1
        code, _, err = following.stop(signal.SIGINT)
    assert (code, err) == (130, "")


def test_nothing_is_coloured_without_a_terminal(shell: Shell) -> None:
    shell("bucketmq send jobs 1")
    assert "\x1b[" not in shell("env -u NO_COLOR bucketmq stats jobs").out


def test_prices() -> None:
    requests = Requests(get=1000, create=500, replace=500, list=1000, delete=1000, refused=100)
    assert cost(requests, "s3") == pytest.approx(0.005 + 0.0004 + 0.005)
    assert cost(requests, "tigris") == pytest.approx(0.0045 + 0.0005 + 0.005)
    assert cost(requests, "azure") == pytest.approx(0.0055 + 0.00044 + 0.0055)
    assert all(each.source.startswith("https://") for each in PRICES.values())
    assert [dollars(each) for each in (0, 0.0000148, 0.0123, 1234.5)] == ["$0", "$0.0000148", "$0.0123", "$1,234.50"]


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bucketmq.cli", "version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0
