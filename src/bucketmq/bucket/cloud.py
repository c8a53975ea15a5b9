"""From settings to an `ObjectStore`: which client, which endpoint, whose credentials.

`bucketmq.bucket.urls` calls one of three functions here. What is not given in the settings is looked for where users of
that cloud expect it. No request is made. Verbs and error texts belong to `bucketmq.bucket.objects`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from bucketmq.bucket import aws
from bucketmq.bucket.copying import BlobCopy, CopyWay, HeaderCopy, S3Copy, S3PartsCopy, SignedRequests
from bucketmq.bucket.objects import ObjectStore
from bucketmq.bucket.removal import HeaderDelete, SignedDelete
from bucketmq.bucket.sending import Sender
from bucketmq.bucket.settings import Settings
from bucketmq.errors import Invalid

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        ClientConfig,
        GCSConfig,
        GCSCredential,
        RetryConfig,
        S3Config,
        S3Credential,
    )

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 5.0
COPY_SECONDS = 120.0
"""Without an option `timeout`: how long a copy may be silent. S3 sends spaces while it copies, others nothing."""

_ONCE: RetryConfig = {"max_retries": 0}

Client = TypeVar("Client", S3Store, GCSStore, AzureStore)


def s3(
    bucket: str, settings: Settings, environment: Mapping[str, str] = os.environ, *, prefix: str = ""
) -> ObjectStore:
    """S3 and what speaks it. Directory buckets (`...--x-s3`) list in no order."""
    profile = aws.Profile(settings.text("profile"), environment)
    endpoint = settings.text("endpoint") or profile.endpoint()
    directory = bucket.endswith("--x-s3")
    config: S3Config = {
        "region": settings.text("region") or profile.region(),
        "disable_bulk_delete": True,  # one key at a time, and not every server has the other request
        "virtual_hosted_style_request": settings.flag("virtual_hosted"),
    }
    if endpoint:
        config["endpoint"] = _endpoint(endpoint)
    if directory:
        config["s3_express"] = True
    credentials = None
    if settings.flag("anonymous"):
        config["skip_signature"] = True
    else:
        credentials = _keys(settings) or profile.credentials()
    ca_file = settings.text("ca_file") or environment.get("AWS_CA_BUNDLE")
    options = _client(settings, endpoint, ca_file)
    client = _built(
        lambda: S3Store(
            bucket, config=config, client_options=options, retry_config=_ONCE, credential_provider=credentials
        )
    )
    renamer = None
    if settings.flag("tigris") or _is_tigris(endpoint):
        renaming: ClientConfig = {**options, "default_headers": {"X-Tigris-Rename": "true"}}
        careful: S3Config = {**config, "copy_if_not_exists": "header:If-None-Match:*"}
        renamer = _built(
            lambda: S3Store(
                bucket, config=careful, client_options=renaming, retry_config=_ONCE, credential_provider=credentials
            )
        )
    ways: list[CopyWay] = []
    # Directory buckets sign with the keys of a session, which obstore keeps to itself.
    if not (directory or settings.flag("anonymous")):
        request = SignedRequests(
            client,
            bucket=bucket,
            region=config["region"],
            credentials=credentials or aws.keys_of(environment),
            send=_sender(settings, COPY_SECONDS, ca_file),
        )
        ways = [S3Copy(request), S3PartsCopy(request)]
    return ObjectStore(
        client,
        place=_place("s3", bucket, endpoint),
        lists_in_order=not directory,
        unquoted_etags=settings.flag("unquoted_etags"),
        # Without credentials nothing can be signed, and obstore would look for some.
        delete_if=None
        if settings.flag("anonymous")
        else SignedDelete(client, _sender(settings, REQUEST_SECONDS, ca_file)),
        copy_ways=ways,
        renamer=renamer,
        scratch=_scratch(prefix),
    )


def gcs(bucket: str, settings: Settings, *, prefix: str = "") -> ObjectStore:
    """Google Cloud Storage. It counts generations and takes about one write a second for each key."""
    endpoint = settings.text("endpoint")
    config: GCSConfig = {}
    if endpoint:
        config["base_url"] = _endpoint(endpoint)
    if path := settings.text("credentials"):
        config["application_credentials"] = path
    credentials = None
    if settings.flag("anonymous"):
        config["skip_signature"] = True
        credentials = _nobody  # obstore signs writes all the same, and would ask the machine for a token

    def client_with(headers: dict[str, str]) -> GCSStore:
        options = _client(settings, endpoint, None)
        if headers:
            options["default_headers"] = headers
        return GCSStore(
            bucket, config=config, client_options=options, retry_config=_ONCE, credential_provider=credentials
        )

    return ObjectStore(
        _built(lambda: client_with({})),
        place=_place("gs", bucket, endpoint),
        lists_in_order=True,
        exact_versions=True,
        by_generation=True,
        delete_if=HeaderDelete(client_with, "x-goog-if-generation-match"),
        copy_ways=[HeaderCopy(client_with)],
        scratch=_scratch(prefix),
    )


def azure(
    container: str, settings: Settings, environment: Mapping[str, str] = os.environ, *, prefix: str = ""
) -> ObjectStore:
    """Azure Blob Storage."""
    given = _connection_string(environment.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    endpoint = settings.text("endpoint") or given.get("endpoint")
    config: AzureConfig = {}
    if account := settings.text("account") or given.get("account"):
        config["account_name"] = account
    if endpoint:
        config["endpoint"] = _endpoint(endpoint)
    if key := settings.text("account_key") or given.get("account_key"):
        config["account_key"] = key
    if token := settings.text("sas_token") or given.get("sas_token"):
        config["sas_key"] = token.removeprefix("?")
    if settings.flag("anonymous"):
        config["skip_signature"] = True
    if settings.flag("emulator"):
        config["use_emulator"] = True
    options = _client(settings, endpoint, None)
    if settings.flag("emulator"):
        options["allow_http"] = True
    client = _built(lambda: AzureStore(container, config=config, client_options=options, retry_config=_ONCE))
    return ObjectStore(
        client,
        place=_place("az", container, endpoint),
        lists_in_order=False,
        exact_versions=True,
        spells_names=True,
        delete_if=None if settings.flag("anonymous") else SignedDelete(client, _sender(settings, REQUEST_SECONDS)),
        copy_ways=[] if settings.flag("anonymous") else [BlobCopy(client, _sender(settings, COPY_SECONDS))],
        scratch=_scratch(prefix),
    )


def _sender(settings: Settings, seconds: float, ca_file: str | None = None) -> Sender:
    return Sender(timeout_seconds=settings.seconds("timeout", seconds), ca_file=ca_file)


def _scratch(prefix: str) -> str:
    """Where the probe of an opened bucket writes too."""
    return f"{prefix}/probe/" if prefix else "probe/"


def _is_tigris(endpoint: str | None) -> bool:
    host = (urlsplit(endpoint).hostname or "") if endpoint else ""
    return any(host == known or host.endswith(f".{known}") for known in _TIGRIS_HOSTS)


_TIGRIS_HOSTS = ("t3.storage.dev", "fly.storage.tigris.dev", "tigris.dev")


def _built(build: Callable[[], Client]) -> Client:
    try:
        return build()
    except (BaseError, ValueError, OSError) as error:
        # The client library may quote a setting in its message, so only the part before any value is shown.
        reason = str(error).partition("\n")[0].partition(":")[2].strip().split(",")[0][:80]
        raise Invalid(f"the store's settings do not fit together ({reason}); check URL, variables and files") from None


def _nobody() -> GCSCredential:
    return {"token": "anonymous", "expires_at": None}


def _keys(settings: Settings) -> Callable[[], S3Credential] | None:
    key, secret = settings.text("access_key_id"), settings.text("secret_access_key")
    if (key is None) != (secret is None):
        raise Invalid("access_key_id and secret_access_key come together; give both or neither")
    if key is None or secret is None:
        return None
    return aws.StaticKeys(key, secret, settings.text("session_token"))


def _client(settings: Settings, endpoint: str | None, ca_file: str | None) -> ClientConfig:
    client: ClientConfig = {
        "timeout": timedelta(seconds=settings.seconds("timeout", REQUEST_SECONDS)),
        "connect_timeout": timedelta(seconds=settings.seconds("connect_timeout", CONNECT_SECONDS)),
        "allow_http": endpoint is not None and endpoint.lower().startswith("http://"),
    }
    if ca_file:
        try:
            client["root_certificate"] = Path(ca_file).expanduser().read_bytes()
        except OSError as error:
            raise Invalid(f"cannot read the certificates in {ca_file}: {error.strerror}") from None
    return client


def _endpoint(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise Invalid(
            "the endpoint must be like https://s3.example.com or http://127.0.0.1:9000, without user or query"
        )
    return endpoint.rstrip("/")


def _place(scheme: str, bucket: str, endpoint: str | None) -> str:
    return f"{scheme}://{bucket}" + (f" at {urlsplit(endpoint).netloc}" if endpoint else "")


def _connection_string(text: str) -> dict[str, str]:
    """The parts of an Azure connection string that matter here, under our names."""
    parts = dict(part.partition("=")[::2] for part in text.split(";") if part)
    found = {
        "account": parts.get("AccountName"),
        "account_key": parts.get("AccountKey"),
        "sas_token": parts.get("SharedAccessSignature"),
        "endpoint": parts.get("BlobEndpoint"),
    }
    if (
        found["endpoint"] is None
        and found["account"]
        and parts.get("EndpointSuffix", "core.windows.net") != "core.windows.net"
    ):
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        found["endpoint"] = f"{protocol}://{found['account']}.blob.{parts['EndpointSuffix']}"
    return {name: value for name, value in found.items() if value}
