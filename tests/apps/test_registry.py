"""Which applications there are: built-in ones, and those of packages that are installed for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli.ran import Cli

from apps.wordcount import MODULE, install
from bucketmq.apps import registry
from bucketmq.apps.app import Agent, App, LazyPipeline, watching
from bucketmq.errors import Invalid, NotFound
from bucketmq.pipeline import FromQueue, Pipeline, ToQueue

HEAVY = ("pyspark", "pyarrow", "numpy", "fastapi", "uvicorn", "typer", "rich", "onnxruntime", "anthropic")


def test_importing_applications_is_cheap() -> None:
    program = "import sys; from bucketmq.apps import registry; registry.every(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not set(found.stdout.split()) & set(HEAVY)


@pytest.mark.usefixtures("installed")
def test_a_package_brings_an_application(cli: Cli) -> None:
    assert registry.names() == sorted([*registry.BUILT_IN, "wordcount"])
    listed = registry.look("wordcount")
    assert (listed.brought_by, listed.where, listed.problem) == ("example-wordcount 1.2", "wordcount:WORDCOUNT", "")
    assert "count the words of notes" in cli("apps", "ls").out
    shown = cli("apps", "show", "wordcount", "--json").row
    assert [each["name"] for each in shown["agents"]] == ["long", "page"]
    assert [(each["name"], each["stages"]) for each in shown["pipelines"]] == [("counting", ["count"]), ("listing", [])]
    assert [each["name"] for each in shown["settings"]][:4] == ["url", "long_from", "token", "port_page"]
    assert "WORDCOUNT_LONG_FROM = 3 (default)" in cli("apps", "show", "wordcount").out


@pytest.mark.usefixtures("installed")
def test_its_verbs_and_its_demo_are_verbs_of_ours(cli: Cli) -> None:
    assert "wordcount" in cli("--help").out
    assert cli("wordcount", "hello", "--name", "rosa").out == "hello rosa\n"
    assert cli("wordcount", "twice", "good").out == "good good\n"
    assert cli("apps", "demo", "wordcount", "--count", "7").out == "counted 7\n"
    assert cli("apps", "demo", "wordcount", "--cuont", "7").code == 2
    assert cli("pipeline", "show", "counting", "--json").row["stages"][0]["name"] == "count"


def test_an_application_that_is_not_there_is_told_with_those_that_are(cli: Cli) -> None:
    with pytest.raises(NotFound, match="did you mean moderation"):
        registry.get("moderatoin")
    assert "there is no application 'nothing'" in cli("apps", "run", "nothing").err
    assert cli("nothing").code == 2


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        ("broken_words", {"text": "1 / 0"}, "ZeroDivisionError"),
        ("quitting_words", {"text": "raise SystemExit(3)"}, "SystemExit: 3"),
        ("absent_words", {"attribute": "MISSING"}, "no attribute 'MISSING'"),
        ("odd_words", {"attribute": "NOT_AN_APP"}, "is not an App but int"),
        ("misnamed_words", {"name": "letters"}, "calls itself 'wordcount'"),
    ],
)
def test_one_that_cannot_be_used_is_listed_with_the_reason_and_harms_no_other(
    *,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    options: dict[str, str],
    said: str,
) -> None:
    site = install(tmp_path, module=module, **{"text": MODULE, **options})
    monkeypatch.syspath_prepend(str(site))
    name = options.get("name", "wordcount")
    rows = {row["name"]: row for row in cli("apps", "ls", "--json").rows}
    assert said in rows[name]["problem"]
    assert rows["moderation"]["problem"] is None
    assert cli("--help").code == cli("moderation", "--help").code == 0
    assert said in cli("apps", "show", name).err
    with pytest.raises(Invalid, match=f"application '{name}' of example-wordcount 1.2 cannot be used"):
        registry.get(name)


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("verbless_words", "import no_such_module", "ModuleNotFoundError"),
        ("speechless_words", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_verbs_that_cannot_be_imported_do_not_take_the_help_along(
    *, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, line: str, said: str
) -> None:
    text = MODULE.replace('verbs = typer.Typer(help="Words of notes.")', line)
    monkeypatch.syspath_prepend(str(install(tmp_path, module=module, text=text)))
    helped = cli("--help")
    assert helped.code == 0 and "wordcount" not in helped.out
    ran = cli("wordcount", "hello")
    assert ran.code == 2
    assert f"the verbs of application 'wordcount' cannot be used: {said}" in ran.err
    assert cli("apps", "show", "wordcount").code == 0


def test_an_application_that_makes_no_sense_is_refused_where_it_is_made() -> None:
    agent = Agent(name="same", run=watching(lambda bucket, settings: None))
    pipeline = Pipeline(name="same", source=FromQueue("a"), target=ToQueue(queue="b", body="body"))
    with pytest.raises(Invalid, match="two parts named 'same'"):
        App(name="x", about="", agents=(agent,), pipelines=(pipeline,))
    with pytest.raises(Invalid, match="application name"):
        App(name="no spaces", about="")
    with pytest.raises(Invalid, match="listens on 'prot', which is not a setting"):
        App(name="x", about="", agents=(Agent(name="a", run=agent.run, port="prot"),))
    lazy = App(name="x", about="", pipelines=(LazyPipeline(name="other", make=lambda: pipeline),))
    with pytest.raises(Invalid, match="calls itself 'same'"):
        lazy.pipeline("other")
    with pytest.raises(NotFound, match="has no pipeline 'nothing'; there are: other"):
        lazy.pipeline("nothing")


def test_a_pipeline_that_depends_on_settings_is_shown_as_they_make_it_or_without_stages(
    cli: Cli, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = MODULE.replace("pipelines=(counting, listing)", "pipelines=(LazyPipeline(name='counting', make=made),)")
    text = text.replace("import Agent, App,", "import Agent, App, LazyPipeline,")
    text = text.replace("WORDCOUNT = App(", "def made(*, long_from):\n    return counting\n\n\nWORDCOUNT = App(")
    monkeypatch.syspath_prepend(str(install(tmp_path, module="lazy_words", text=text)))
    monkeypatch.setenv("BUCKETMQ_URL", url)
    assert [each["stages"] for each in cli("apps", "show", "wordcount", "--json").row["pipelines"]] == [["count"]]
    monkeypatch.setenv("WORDCOUNT_LONG_FROM", "many")
    assert [each["stages"] for each in cli("apps", "show", "wordcount", "--json").row["pipelines"]] == [[]]
    with pytest.raises(Invalid, match="needs 'long_from', which no setting says"):
        registry.get("wordcount").pipeline("counting")
