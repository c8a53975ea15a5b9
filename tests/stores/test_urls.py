"""From URLs, options, variables and files to a store; and that no secret shows on the way."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.objects import ObjectStore
from bucketmq.bucket.port import Missing
from bucketmq.bucket.settings import Settings
from bucketmq.bucket.urls import location_of, open_store, without_secrets
from bucketmq.errors import BucketMQError, Denied, Invalid, Unsupported
from stores.faults import FaultServer, fault_server, s3_error

SECRET = "TOPSECRET%TOP/SECRET+"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of our own, and no setting from outside."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as running:
        running.behaviour = s3_error(404, "NoSuchKey")
        yield running


# which store


def test_memory_is_a_new_store_each_time() -> None:
    one, prefix = open_store("memory://")
    other, _ = open_store("memory://")
    assert isinstance(one, MemoryStore)
    assert prefix == ""
    one.create("key", b"")
    assert other.get("key") == Missing()


@pytest.mark.parametrize("form", ["file://{}", "file://localhost{}", "{}", "{}/"])
def test_a_folder_is_a_file_url_or_a_path(tmp_path: Path, form: str) -> None:
    store, prefix = open_store(
        form.format(tmp_path / "my folder?#%25" if "://" not in form else tmp_path / "my%20folder")
    )
    assert isinstance(store, FolderStore)
    assert prefix == ""
    store.create("key", b"")
    folder = tmp_path / ("my folder?#%25" if "://" not in form else "my folder")
    assert (folder / "key").is_file()


def test_a_relative_path_and_a_home_are_understood(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert repr(open_store("data")[0]) == repr(open_store("~/data")[0]) == f"FolderStore('{home}/data')"


@pytest.mark.parametrize(
    ("url", "prefix"),
    [
        ("s3://bucket", ""),
        ("s3://bucket/", ""),
        ("s3://bucket/a/b/", "a/b"),
        ("s3://bucket/with%20space", "with space"),
        ("gs://bucket/a", "a"),
        ("az://container/a?account=name", "a"),
        ("memory://a/b", "a/b"),
    ],
)
def test_the_rest_of_the_path_is_the_prefix(url: str, prefix: str) -> None:
    assert open_store(url)[1] == prefix


@pytest.mark.parametrize(
    ("url", "in_order"),
    [
        ("s3://bucket", True),
        ("gs://bucket", True),
        ("az://container?account=name", False),
        ("s3://bucket--use1-az4--x-s3", False),
    ],
)
def test_which_stores_list_in_order(url: str, in_order: bool) -> None:
    store, _ = open_store(url)
    assert isinstance(store, ObjectStore)
    assert store.lists_in_order is in_order


# bad URLs


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", r"the URL is empty .*; use memory://, file:///"),
        ("/tmp/\0", r"zero byte"),
        ("http://bucket", r"no known scheme; use .*s3://bucket/prefix"),
        ("s3a://bucket", r"no known scheme"),
        ("s3:bucket", r"needs '://' after 's3'"),
        ("s3:/bucket", r"needs '://' after 's3'"),
        ("s3://", r"names no bucket; write it like s3://bucket/prefix"),
        ("s3:///prefix", r"names no bucket"),
        ("file://relative/path", r"three slashes, like file:///var/lib/orders"),
        ("file://", r"three slashes"),
        ("s3://bucket/a//b", r"bad prefix"),
        ("s3://bucket/../other", r"bad prefix"),
        ("s3://bucket:9000/a", r"no user, port or '#'.*endpoint=http://127\.0\.0\.1:9000"),
        ("s3://bucket/a#b", r"no user, port or '#'"),
        ("s3://bucket?endpiont=x", r"no option 'endpiont'; it has: access_key_id, "),
        ("memory://?endpoint=x", r"it has: none"),
        ("s3://bucket?endpoint=127.0.0.1:9000", r"must be like https://"),
        ("s3://bucket?endpoint=ftp://x", r"must be like https://"),
        ("s3://bucket?timeout=soon", r"'timeout' must be seconds"),
        ("s3://bucket?timeout=-1", r"'timeout' must be seconds"),
        ("s3://bucket?timeout=nan", r"'timeout' must be seconds"),
        ("s3://bucket?anonymous=perhaps", r"'anonymous' must be true or false"),
        ("s3://bucket?access_key_id=a", r"come together"),
        ("s3://bucket?profile=nobody", r"no AWS profile 'nobody'"),
        ("s3://bucket?ca_file=/no/such/file", r"cannot read the certificates"),
        ("s3://[bucket", r"cannot be read"),
        ("az://container", r"do not fit together \(Account must be specified\)"),
        ("gs://bucket?credentials=/no/such/file", r"do not fit together"),
    ],
)
def test_a_bad_url_says_what_a_good_one_looks_like(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        open_store(url)


def test_options_can_be_arguments_and_win(server: FaultServer) -> None:
    store, _ = open_store(
        "s3://bucket?endpoint=http://127.0.0.1:1&timeout=1", endpoint=_endpoint(server), anonymous=True
    )
    assert repr(store) == f"ObjectStore('s3://bucket at 127.0.0.1:{server.port}')"
    assert store.get("key") == Missing()
    assert "authorization" not in server.requests[0].lower()


def test_an_option_that_is_none_is_invalid() -> None:
    with pytest.raises(Invalid, match="leave it out for the default"):
        open_store("s3://bucket", region=None)


# AWS: endpoints and regions


def test_the_endpoint_for_s3_goes_before_the_endpoint_for_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".aws" / "config").write_text(
        "[default]\nendpoint_url = http://profile:1\nservices = mine\n"
        "[services mine]\ndynamodb =\n  endpoint_url = http://wrong:1\ns3 =\n  endpoint_url = http://services:1\n"
    )
    assert "at services:1" in repr(open_store("s3://bucket")[0])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    assert "at all:1" in repr(open_store("s3://bucket")[0])
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:1")
    assert "at s3:1" in repr(open_store("s3://bucket")[0])
    assert "at option:1" in repr(open_store("s3://bucket?endpoint=http://option:1")[0])
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert repr(open_store("s3://bucket")[0]) == "ObjectStore('s3://bucket')"


def test_plain_http_needs_an_endpoint_that_says_so() -> None:
    for url, allowed in [
        ("s3://bucket", "false"),
        ("s3://bucket?endpoint=https://host", "false"),
        ("s3://bucket?endpoint=http://host", "true"),
    ]:
        store, _ = open_store(url)
        assert isinstance(store, ObjectStore)
        assert store._client.client_options is not None
        assert str(store._client.client_options["allow_http"]).lower() == allowed


def test_the_region_comes_from_option_variable_or_profile(
    home: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"access_key_id": "AKID", "secret_access_key": SECRET}
    assert _signed(server, **keys)["region"] == "us-east-1"
    (home / ".aws" / "config").write_text("[default]\nregion = eu-north-1\n")
    assert _signed(server, **keys)["region"] == "eu-north-1"
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    assert _signed(server, **keys)["region"] == "eu-west-2"
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    assert _signed(server, **keys)["region"] == "eu-west-3"
    assert _signed(server, region="ca-west-1", **keys)["region"] == "ca-west-1"


# AWS: credentials


def _profiles(home: Path) -> None:
    (home / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = {SECRET}\n\n"
        f"[work]\naws_access_key_id=WORK\naws_secret_access_key={SECRET}\naws_session_token=WORKTOKEN\n\n"
        f"[plain]\naws_access_key_id=PLAIN\naws_secret_access_key={SECRET}\n"
    )
    (home / ".aws" / "config").write_text(
        "[default]\nregion = us-west-1\n\n[profile work]\nregion = us-west-2\n\n"
        f"[profile both]\naws_access_key_id=BOTH\naws_secret_access_key={SECRET}\n\n[profile empty]\nregion = x\n"
    )


def test_without_anything_said_the_default_profile_signs(home: Path, server: FaultServer) -> None:
    _profiles(home)
    assert _signed(server) == {"key": "DEFAULT", "region": "us-west-1", "token": None}


@pytest.mark.parametrize(
    ("profile", "signed"),
    [
        ("work", {"key": "WORK", "region": "us-west-2", "token": "WORKTOKEN"}),
        ("plain", {"key": "PLAIN", "region": "us-east-1", "token": None}),
        ("both", {"key": "BOTH", "region": "us-east-1", "token": None}),
        ("default", {"key": "DEFAULT", "region": "us-west-1", "token": None}),
    ],
)
def test_a_profile_signs_when_it_is_asked_for(
    home: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch, profile: str, signed: dict[str, str | None]
) -> None:
    _profiles(home)
    assert _signed(server, profile=profile) == signed
    monkeypatch.setenv("AWS_PROFILE", profile)
    assert _signed(server) == signed


def test_variables_go_before_files_but_not_before_a_profile_in_the_url(
    home: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _profiles(home)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "VARIABLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "VARIABLETOKEN")
    assert _signed(server) == {"key": "VARIABLE", "region": "us-west-1", "token": "VARIABLETOKEN"}
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert _signed(server)["key"] == "VARIABLE"
    # Nor may the token of one set of keys go with another.
    assert _signed(server, profile="plain") == {"key": "PLAIN", "region": "us-east-1", "token": None}
    assert _signed(server, access_key_id="OPTION", secret_access_key=SECRET)["token"] is None


def test_the_files_can_lie_elsewhere(home: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _profiles(home)
    (home / ".aws").rename(home / "elsewhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "elsewhere" / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", "~/elsewhere/config")
    assert _signed(server) == {"key": "DEFAULT", "region": "us-west-1", "token": None}


def test_a_profile_that_runs_a_program_signs_through_boto3(home: Path, server: FaultServer) -> None:
    pytest.importorskip("boto3")
    program = home / "login.py"
    program.write_text(
        'print(\'{"Version": 1, "AccessKeyId": "PROGRAM", "SecretAccessKey": "secret", "SessionToken": "T"}\')'
    )
    (home / ".aws" / "config").write_text(f"[profile helper]\ncredential_process = {sys.executable} {program}\n")
    assert _signed(server, profile="helper") == {"key": "PROGRAM", "region": "us-east-1", "token": "T"}


def test_a_profile_that_logs_in_needs_boto3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".aws" / "config").write_text("[profile sso]\nsso_start_url = https://example.com/start\n")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Unsupported, match="pip install boto3"):
        open_store("s3://bucket?profile=sso")


def test_a_profile_that_cannot_log_in_is_denied(home: Path) -> None:
    pytest.importorskip("boto3")
    (home / ".aws" / "config").write_text("[profile role]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = gone\n")
    with pytest.raises(Denied, match="'role' gives no credentials"):
        open_store("s3://bucket?profile=role")


def test_a_profile_without_keys_is_denied(home: Path) -> None:
    _profiles(home)
    with pytest.raises(Denied, match="'empty' has no credentials"):
        open_store("s3://bucket?profile=empty")


# Google and Azure


def test_google_credentials_that_cannot_be_read_are_invalid(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "key.json").write_text(f'{{"private_key": "{SECRET}"')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "key.json"))
    with pytest.raises(Invalid) as caught:
        open_store("gs://bucket")
    assert SECRET not in str(caught.value)


def test_an_azure_connection_string_is_understood(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AZURE_STORAGE_CONNECTION_STRING",
        f"DefaultEndpointsProtocol=http;AccountName=name;AccountKey=a2V5a2V5;BlobEndpoint={_endpoint(server)};",
    )
    store, _ = open_store("az://container")
    assert store.get("key") == Missing()
    assert "SharedKey name:" in server.requests[0]
    assert "a2V5a2V5" not in repr(store) + repr(vars(store))


# secrets


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://b/p?secret_access_key=hush&region=x", "s3://b/p?secret_access_key=***&region=x"),
        ("s3://b?session_token=hush", "s3://b?session_token=***"),
        ("az://c?account_key=hush&sas_token=hush", "az://c?account_key=***&sas_token=***"),
        ("s3://user:hush@b/p", "s3://b/p"),
        ("s3://b/p?endpoint=http://127.0.0.1:9000", "s3://b/p?endpoint=http://127.0.0.1:9000"),
        ("s3://b?endpoint=https://user:hush@host", "s3://b?endpoint=https://host"),
        ("file:///a/b", "file:///a/b"),
        ("some/path", "some/path"),
    ],
)
def test_a_url_can_be_shown_without_its_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket?secret_access_key=HUSH",
        "s3://bucket?access_key_id=a&secret_access_key=HUSH&timeout=never",
        "s3://bucket?access_key_id=a&secret_access_key=HUSH&nonsense=1",
        "s3://bucket/a//b?access_key_id=a&secret_access_key=HUSH",
        "s3://user:HUSH@bucket/a",
        "s3://bucket?endpoint=https://user:HUSH@host",
        "s4://bucket?secret_access_key=HUSH",
        "s3://[x?secret_access_key=HUSH",
        "s3:bucket?secret_access_key=HUSH",
        "s3://bucket?secret_access_key=HUSH#x",
        "az://container?account=a&account_key=HUSH!",
        "az://container?account=a&sas_token=HUSH",
        "az://container?account=a&account_key=HUSH&timeout=0",
    ],
)
def test_no_secret_shows_in_an_error(url: str) -> None:
    with pytest.raises(BucketMQError) as caught:
        open_store(url)
    assert "HUSH" not in str(caught.value) + repr(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_no_secret_shows_in_a_broken_file(home: Path) -> None:
    (home / ".aws" / "credentials").write_text(f"[default\naws_secret_access_key {SECRET}\n")
    with pytest.raises(Invalid, match="must be an INI file") as caught:
        open_store("s3://bucket")
    assert SECRET not in str(caught.value)


def test_no_secret_shows_in_a_store(home: Path) -> None:
    _profiles(home)
    for url in ("s3://bucket", f"s3://bucket?access_key_id=a&secret_access_key={SECRET}", "s3://bucket?profile=work"):
        store, _ = open_store(url)
        shown = f"{store} {store!r} {vars(store)} {store._client.config}"  # type: ignore[attr-defined]
        assert SECRET not in shown
        assert "WORKTOKEN" not in shown
    assert repr(Settings("s3", {"secret_access_key": SECRET})) == "Settings(secret_access_key)"


def _endpoint(server: FaultServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def _signed(server: FaultServer, **options: str) -> dict[str, str | None]:
    """Who signed a request, as the server sees it."""
    store, _ = open_store("s3://bucket", endpoint=_endpoint(server), **options)
    assert store.get("key") == Missing()
    head = server.requests[-1]
    signature = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", head)
    token = re.search(r"x-amz-security-token: (\S+)", head, re.IGNORECASE)
    assert signature is not None
    return {"key": signature[1], "region": signature[2], "token": token[1] if token else None}


def test_a_bucket_is_the_same_whoever_asks_and_another_on_another_server() -> None:
    here = "s3://bucket/a?endpoint=http://127.0.0.1:9000"
    assert location_of(here) == location_of(f"{here}&access_key_id=k&secret_access_key=HUSH&region=r")
    assert location_of(here) != location_of("s3://bucket/a?endpoint=http://127.0.0.1:9001")
    assert location_of("az://box?account=mia") != location_of("az://box?account=ada")
    assert location_of("s3://bucket/a/") == location_of("s3://bucket/a") == "s3://bucket/a"
    assert "HUSH" not in location_of("s3://bucket?session_token=HUSH")
