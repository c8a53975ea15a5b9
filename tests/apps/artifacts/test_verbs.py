"""The verbs of artifacts: every example of their help, one after the other, and errors that say what to do."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.ran import Cli, Ran

from apps.conftest import bucket, cli, environment, folder, url
from bucketmq.apps import registry
from bucketmq.cli.group import EXAMPLES

__all__ = ["bucket", "cli", "environment", "folder", "url"]

TRUST = """
[[keys]]
owner = "ada"
public = "{ada}"
roles = ["builds", "environments", "reports", "trust"]

[[keys]]
owner = "ben"
public = "{ben}"
roles = ["builds", "approves", "environments"]

[[environments]]
name = "staging"

[[environments]]
name = "production"
after = "staging"
approvals = 1
"""


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    for name in ("ARTIFACTS_TRUST", "ARTIFACTS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return folder


def rows(ran: Ran) -> list[Any]:
    assert ran.code == 0, ran
    return [msgspec.json.decode(line) for line in ran.out.splitlines()]


def make_trust(cli: Cli, here: Path) -> None:
    publics = {name: rows(cli("artifacts", "keygen", f"{name}.key", "--json"))[0]["public"] for name in ("ada", "ben")}
    (here / "trust.toml").write_text(TRUST.format(**publics))
    assert cli("artifacts", "trust", "trust.toml", "--key", "ada.key").code == 0


def make_files(here: Path, text: str = "1") -> None:
    (here / "dist" / "app").mkdir(parents=True, exist_ok=True)
    (here / "dist" / "app" / "main.py").write_text(f"print({text})")
    (here / "notes.txt").write_text("news")


def test_every_example_works_after_the_one_before(here: Path, cli: Cli) -> None:
    app = registry.get("artifacts")
    assert app.commands is not None
    app.commands()
    lines = {verb: list(shown) for verb, shown in EXAMPLES.items() if verb.startswith("artifacts ")}
    make_files(here)

    def run(line: str) -> str:
        ran = cli(*shlex.split(line)[1:])
        assert ran.code == 0, (line, ran)
        assert "PRIVATE" not in ran.out + ran.err
        return ran.out

    for line in lines.pop("artifacts keygen"):
        run(line)
    publics = {}
    for name in ("ada", "ben"):
        (here / f"{name}.key").unlink()
        publics[name] = msgspec.json.decode(run(f"bucketmq artifacts keygen {name}.key --json"))["public"]
    (here / "trust.toml").write_text(TRUST.format(**publics))
    order = ["trust", "publish", "sign", "verify", "promote", "approve", "deploy", "rollback", "refresh"]
    for verb in [*order, "status", "history", "diff"]:
        for line in lines.pop(f"artifacts {verb}"):
            run(line)
    assert lines == {}
    current = msgspec.json.decode(run("bucketmq artifacts status shop --trust trust.json --json"))
    assert (current["current"]["version"], current["current"]["counter"]) == ("1.1", 5)


def test_a_version_through_all_environments_as_json(cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trust(cli, here)
    monkeypatch.setenv("ARTIFACTS_TRUST", str(here / "trust.json"))
    monkeypatch.setenv("ARTIFACTS_KEY", str(here / "ada.key"))
    make_files(here)
    (made,) = rows(cli("artifacts", "publish", "shop", "1.0", "dist", "--json"))
    assert made["new"] is True and made["files"] == 1
    (again,) = rows(cli("artifacts", "publish", "shop", "1.0", "dist", "--json"))
    assert (again["new"], again["digest"]) == (False, made["digest"])
    (found,) = rows(cli("artifacts", "verify", "shop", "1.0", "--json"))
    assert (found["digest"], found["signed_by"]) == (made["digest"], ["ada"])
    gated = cli("artifacts", "promote", "shop", "1.0", "--env", "production", "--json")
    assert gated.code == 1 and '"gated"' in gated.err and "artifacts approve shop 1.0" in gated.err
    rows(cli("artifacts", "promote", "shop", "1.0", "--env", "staging", "--json"))
    (report,) = rows(cli("artifacts", "deploy", "--env", "staging", "--folder", "there", "--agent", "one", "--json"))
    assert (report["state"], report["version"]) == ("healthy", "1.0")
    assert (here / "there" / "shop" / "current" / "app" / "main.py").read_text() == "print(1)"
    rows(cli("artifacts", "approve", "shop", "1.0", "--env", "production", "--key", "ben.key", "--json"))
    (done,) = rows(cli("artifacts", "promote", "shop", "1.0", "--env", "production", "--why", "a reason", "--json"))
    assert (done["current"]["digest"], done["current"]["by"]) == (made["digest"], "ada")
    make_files(here, "2")
    rows(cli("artifacts", "publish", "shop", "1.1", "dist", "notes.txt", "--commit", "abc", "--json"))
    (differs,) = rows(cli("artifacts", "diff", "shop", "1.0", "1.1", "--json"))
    assert [each["path"] for each in differs["added"]] == ["notes.txt"]
    assert differs["changed"][0][0]["path"] == "app/main.py"
    lines = rows(cli("artifacts", "history", "shop", "--json"))
    assert [(line["environment"], line["did"], line.get("why")) for line in lines] == [
        ("production", "promoted", "a reason"),
        ("staging", "promoted", None),
    ]
    shown = cli("artifacts", "status").out
    assert "1 healthy" in shown and "no report" in shown


def test_errors_say_what_to_do(cli: Cli, here: Path, bucket: Any) -> None:
    make_files(here)
    for words, said in (
        (("publish", "shop", "1.0", "dist"), "--key FILE"),
        (("publish", "shop", "1.0", "dist", "--key", "none.key"), "keygen none.key"),
        (("verify", "shop", "1.0"), "--trust FILE"),
        (("verify", "shop", "1.0", "--trust", "none.json"), "ask the keeper of the keys"),
        (("trust", "none.toml", "--key", "none.key"), "name a TOML file"),
    ):
        ran = cli("artifacts", *words)
        assert ran.code in (1, 2) and said in ran.err, ran
    make_trust(cli, here)
    trust = ("--trust", "trust.json")
    for words, said in (
        (("publish", "Shop", "1.0", "dist", "--key", "ada.key"), "cannot be a name"),
        (("publish", "shop", "1.0", "missing", "--key", "ada.key"), "not there"),
        (("verify", "shop", "1.0", *trust), "not published"),
        (("promote", "shop", "1.0", "--env", "moon", "--key", "ada.key", *trust), "there are: staging, production"),
        (("rollback", "shop", "--env", "staging", "--key", "ada.key", *trust), "nothing was ever promoted"),
    ):
        ran = cli("artifacts", *words)
        assert ran.code in (1, 2) and said in ran.err, ran
    (here / "ada.key").chmod(0o644)
    assert "chmod 600" in cli("artifacts", "publish", "shop", "1.0", "dist", "--key", "ada.key").err
    (here / "ada.key").chmod(0o600)
    (here / "trust.toml").write_text("keys = 1")
    assert "does not say whom to trust" in cli("artifacts", "trust", "trust.toml", "--key", "ada.key").err
    bucket.put("builds/shop/1.0/manifest.json", "{}")
    bad = cli("artifacts", "verify", "shop", "1.0", *trust)
    assert bad.code == 1 and "error (untrusted)" in bad.err


def test_trust_is_changed_from_the_pin_and_only_by_who_may(cli: Cli, here: Path) -> None:
    make_trust(cli, here)
    text = (here / "trust.toml").read_text()
    (unchanged,) = rows(cli("artifacts", "trust", "trust.toml", "--key", "ada.key", "--json"))
    assert unchanged["number"] == 1
    (here / "trust.toml").write_text(
        text + 'expires_days = 10\n[[environments]]\nname = "moon"\n'.replace("expires", "# ")
    )
    refused = cli("artifacts", "trust", "trust.toml", "--key", "ben.key")
    assert refused.code == 1 and "role trust" in refused.err
    (changed,) = rows(cli("artifacts", "trust", "trust.toml", "--key", "ada.key", "--json"))
    assert (changed["number"], changed["environments"][-1]["name"]) == (2, "moon")
    other = cli("artifacts", "trust", "trust.toml", "--key", "ada.key", "--pin", "another.json")
    assert other.code == 2 and "name the pin that you have" in other.err


@pytest.mark.slow
def test_the_demo_comes_out_as_it_must(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bucketmq.cli", "apps", "demo", "artifacts", "--json"]
    kept = {name: value for name, value in environment.items() if name != "BUCKETMQ_URL"}
    kept["BUCKETMQ_PROBE"] = "off"
    done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    *steps, end = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert end["good"] is True and end["page"].startswith("http://127.0.0.1:")
    assert all(each["good"] for each in steps) and len(steps) > 15


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("approvals = 1", "aprovals = 1"), "environments have no 'aprovals'"),
        (('owner = "ben"', 'owner = "ben"\nexpires = "2027-01-31T00:00:00Z"'), "keys have no 'expires'"),
    ],
)
def test_a_mistyped_word_of_the_trust_file_is_refused_and_not_passed_over(
    cli: Cli, here: Path, wrong: tuple[str, str], said: str
) -> None:
    make_trust(cli, here)
    written = (here / "trust.toml").read_text()
    (here / "trust.toml").write_text(written.replace(*wrong))
    ran = cli("artifacts", "trust", "trust.toml", "--key", "ada.key")
    assert ran.code != 0
    assert said in ran.err


def test_the_first_trust_can_be_published_again_by_who_died_before_the_pin_was_written(cli: Cli, here: Path) -> None:
    make_trust(cli, here)
    pinned = (here / "trust.json").read_bytes()
    (here / "trust.json").unlink()
    assert cli("artifacts", "trust", "trust.toml", "--key", "ada.key").code == 0
    assert (here / "trust.json").read_bytes() == pinned
    (here / "trust.json").unlink()
    written = (here / "trust.toml").read_text()
    (here / "trust.toml").write_text(written.replace("approvals = 1", "approvals = 0"))
    ran = cli("artifacts", "trust", "trust.toml", "--key", "ada.key")
    assert ran.code != 0
    assert "name the pin that you have: --pin FILE" in ran.err
