"""Settings of applications: options, environment, file and defaults, in this order; errors that say the cure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from bucketmq.apps.settings import (
    SECRET,
    AppSettings,
    Variable,
    bucket_of,
    explain_settings,
    kept_secret,
    parse_options,
    read_settings,
    variables_of,
    words_of,
)
from bucketmq.errors import Invalid

URL = "file:///inbox"


class Sample(AppSettings, frozen=True, kw_only=True):
    port: Annotated[int, Meta(ge=0, le=65535, description="where to listen"), Variable("SAMPLE_PORT")] = 8080
    names: Annotated[tuple[str, ...], Variable("SAMPLE_NAMES")] = ()
    token: Annotated[str | None, Variable("SAMPLE_TOKEN"), SECRET] = None
    loud: Annotated[bool, Variable("SAMPLE_LOUD")] = False


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "settings.toml"
    found.write_text('[sample]\nport = 1\nnames = ["f"]\nurl = "file:///filed"\n[other]\nport = "no"\n')
    return found


def test_an_option_wins_over_a_variable_and_that_over_the_file_and_that_over_the_default(file: Path) -> None:
    environment = {"SAMPLE_PORT": "2", "BUCKETMQ_URL": URL}
    read = {"app": "sample", "file": file}
    assert read_settings(Sample, environment={"BUCKETMQ_URL": URL}).port == 8080
    assert read_settings(Sample, environment={}, **read) == Sample(url="file:///filed", port=1, names=("f",))
    assert read_settings(Sample, environment=environment, **read).port == 2
    assert read_settings(Sample, environment=environment, options={"port": 3}, **read).port == 3
    assert read_settings(Sample, environment=environment, options={"port": None}, **read).port == 2
    by_name = {"BUCKETMQ_SETTINGS": str(file)}
    assert read_settings(Sample, app="sample", environment=by_name).port == 1
    assert bucket_of(Sample, app="sample", environment=by_name) == "file:///filed"


def test_what_the_environment_says_is_split_and_converted() -> None:
    environment = {"BUCKETMQ_URL": URL, "SAMPLE_NAMES": "a  b", "SAMPLE_LOUD": "true", "SAMPLE_PORT": " "}
    assert read_settings(Sample, environment=environment) == Sample(url=URL, names=("a", "b"), loud=True)


def test_options_are_words_and_words_are_options() -> None:
    words = ["--port", "7", "--names=a", "--names", "b", "--loud", "--url=s3://x"]
    found = parse_options(Sample, words)
    assert found == {"port": "7", "names": ["a", "b"], "loud": "true", "url": "s3://x"}
    assert parse_options(Sample, words_of(found)) == found
    assert read_settings(Sample, environment={}, options=found) == Sample(
        url="s3://x", port=7, names=("a", "b"), loud=True
    )


@pytest.mark.parametrize(
    ("words", "said"), [(["--prot", "7"], "there is no option --prot"), (["--port"], "--port needs a value")]
)
def test_words_that_are_no_options_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        parse_options(Sample, words)


@pytest.mark.parametrize(
    ("environment", "options", "said"),
    [
        ({}, {}, r"url \(the bucket\) is missing: give --url, or export BUCKETMQ_URL=file:///tmp/inbox"),
        ({"BUCKETMQ_URL": URL, "SAMPLE_PORT": "http"}, {}, "--port or SAMPLE_PORT cannot be that, not 'http'"),
        ({"BUCKETMQ_URL": URL, "SAMPLE_PORT": "65536"}, {}, "65536"),
        ({"BUCKETMQ_URL": URL}, {"prot": 1}, "there is no setting 'prot'; there are url, port"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    environment: dict[str, str], options: dict[str, object], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        read_settings(Sample, environment=environment, options=options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sample = 1", "is not a table"),
        ("[sample]\nprot = 1", "sample.prot, which is not a setting"),
        ("[sample", "is not TOML"),
        pytest.param(f"[sample]\nport = {'1' * 5_000}", "is not TOML: Exceeds the limit", id="endless number"),
        pytest.param(f"[sample]\nport = {'[' * 5_000}", "is not TOML: .*recursion", id="endless nesting"),
        ("[sample]\nport = '1'", "--port or SAMPLE_PORT cannot be that"),
    ],
)
def test_a_file_that_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(Invalid, match=said):
        read_settings(Sample, app="sample", environment={"BUCKETMQ_URL": URL}, file=tmp_path / "s.toml")
    with pytest.raises(Invalid, match="cannot read the settings"):
        read_settings(Sample, app="sample", environment={"BUCKETMQ_URL": URL}, file=tmp_path / "none.toml")


def test_no_secret_is_ever_shown() -> None:
    environment = {"BUCKETMQ_URL": "s3://b?secret_access_key=hush", "SAMPLE_TOKEN": "of-rosa"}
    settings = read_settings(Sample, environment=environment)
    assert settings.token == "of-rosa"
    shown = {each.name: each for each in explain_settings(Sample, environment=environment)}
    assert (shown["token"].value, shown["token"].came) == ("(1 given)", "environment")
    assert (shown["port"].value, shown["port"].came, shown["port"].about) == (8080, "default", "where to listen")
    assert "of-rosa" not in f"{settings!r} {shown}" and "hush" not in f"{settings!r} {shown}"
    with pytest.raises(Invalid) as refused:
        read_settings(Sample, environment=environment, options={"token": 7.5})
    assert "7.5" not in str(refused.value)


def test_secrets_are_handed_to_a_child_in_its_environment() -> None:
    options = {"port": "7", "token": "of-rosa", "names": ["a"], "url": "s3://b?secret_access_key=hush"}
    shown, hidden = kept_secret(Sample, options)
    assert shown == {"port": "7", "names": ["a"]}
    assert read_settings(Sample, options=shown, environment=hidden) == read_settings(Sample, options=options)
    assert kept_secret(Sample, {"url": URL}) == ({"url": URL}, {})


def test_of_several_values_secrets_are_counted_and_urls_shown_without_them() -> None:
    class Several(AppSettings, frozen=True, kw_only=True):
        tokens: Annotated[tuple[str, ...], Variable("TOKENS"), SECRET] = ()
        hooks: Annotated[tuple[str, ...], Variable("HOOKS")] = ()

    environment = {"BUCKETMQ_URL": URL, "TOKENS": "hush hush2", "HOOKS": "https://rosa:hush@a.example/x?t=hush b"}
    shown = {each.name: each.value for each in explain_settings(Several, environment=environment)}
    assert shown == {"url": URL, "tokens": "(2 given)", "hooks": ["https://a.example/x", "b"]}
    assert "hush" not in repr(read_settings(Several, environment=environment))


def test_the_variables_of_settings_are_known() -> None:
    assert variables_of(Sample) == ["BUCKETMQ_URL", "SAMPLE_PORT", "SAMPLE_NAMES", "SAMPLE_TOKEN", "SAMPLE_LOUD"]
