"""From a URL to a store: the one place where URLs, options and environment variables are read.

`bucketmq.connect` calls `open_store` and never looks at the URL again. What a store does with its settings belongs to
the store; how AWS spreads its settings over files and variables belongs to `bucketmq.bucket.aws`.
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Store, check_key
from bucketmq.bucket.settings import OPTIONS, PLACE_OPTIONS, SECRET_OPTIONS, Settings
from bucketmq.errors import Invalid, Unsupported

EXAMPLES = "memory://, file:///var/lib/orders, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"


def open_store(url: str, **options: object) -> tuple[Store, str]:
    """The store that `url` names, and the prefix of all keys in it, without a '/' at either end.

    Options come from the query of the URL and from `options`, which win. No request is made.

    - `memory://`: a new store in memory.
    - `file:///path` or a plain path: a folder. `timeout`: seconds to wait for a lock.
    - `s3://bucket/prefix`: S3 and what speaks it. `endpoint` (plain http only if it says so), `region`, `profile`,
      `access_key_id` with `secret_access_key` and `session_token`, `anonymous`, `virtual_hosted` (bucket in the host
      name), `ca_file`, `unquoted_etags` (for radosgw up to 16), `tigris` (for Tigris under a name of your own: it can
      rename), `timeout` and `connect_timeout` in seconds. What is not given comes from where AWS keeps it: `AWS_*`
      variables, `~/.aws`, the role of the container or machine.
    - `gs://bucket/prefix`: `credentials` (a JSON file; else `GOOGLE_APPLICATION_CREDENTIALS`, else the machine's
      account), `endpoint`, `anonymous`, the timeouts.
    - `az://container/prefix`: `account`, `account_key` or `sas_token` (else `AZURE_STORAGE_CONNECTION_STRING`, else
      the other `AZURE_*` variables), `endpoint`, `emulator`, `anonymous`, the timeouts.
    """
    scheme, place, path, query = _split(url)
    settings = Settings(scheme, {**query, **{name: _text(name, value) for name, value in options.items()}})
    match scheme:
        case "memory":
            return MemoryStore(), _prefix(place + path, url)
        case "file":
            return _folder(path, settings), ""
        case _:
            if not place:
                raise Invalid(f"{without_secrets(url)!r} names no bucket; write it like {scheme}://bucket/prefix")
            prefix = _prefix(path, url)
            return _objects(scheme, place, settings, prefix), prefix


def check_url(url: str) -> str:
    """The scheme of a URL: `Invalid` unless it can be one of a store. No request is made, and no folder looked at."""
    return _split(url)[0]


def without_secrets(url: str) -> str:
    """`url` as it may be logged: no user, no password, no value of a secret option."""
    return _SECRET.sub(r"\1***", _USER.sub("//", url))


def location_of(url: str) -> str:
    """What tells a bucket from every other: scheme, name and prefix, and the server or account where the URL names one.
    The same for every way to show who is asking."""
    plain, _, query = url.partition("?")
    told = "&".join(f"{name}={value}" for name, value in sorted(parse_qsl(query)) if name in PLACE_OPTIONS)
    return _USER.sub("//", plain).rstrip("/") + (f"?{told}" if told else "")


_USER = re.compile(r"//[^/?#&@]*@")
_SECRET = re.compile(rf"((?:{'|'.join(sorted(SECRET_OPTIONS))})=)[^&#]*", re.IGNORECASE)


def _split(url: str) -> tuple[str, str, str, dict[str, str]]:
    """Scheme, host, path and options. A text without '://' is a path, whatever characters it has."""
    if not url or "\0" in url:
        raise Invalid(f"the URL is empty or has a zero byte; use {EXAMPLES}")
    if "://" not in url:
        if url.partition(":")[0].lower() in OPTIONS:
            raise Invalid(f"a URL needs '://' after {url.partition(':')[0]!r}; use {EXAMPLES}")
        return "file", "", url, {}
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise Invalid(f"{without_secrets(url)!r} cannot be read; use {EXAMPLES}") from None
    if parts.scheme not in OPTIONS:
        raise Invalid(f"{without_secrets(url)!r} begins with no known scheme; use {EXAMPLES}")
    if "@" in parts.netloc or ":" in parts.netloc or parts.fragment:
        raise Invalid(
            f"{without_secrets(url)!r} may have no user, port or '#'; give them as options, "
            "like s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1"
        )
    path = unquote(parts.path)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or len(path) < 2:
            raise Invalid(f"{url!r} names no absolute path; write three slashes, like file:///var/lib/orders")
        return "file", "", path, query
    return parts.scheme, unquote(parts.netloc), path, query


def _prefix(path: str, url: str) -> str:
    prefix = path.strip("/")
    if prefix:
        try:
            check_key(prefix)
        except Invalid as error:
            raise Invalid(f"{without_secrets(url)!r} has a bad prefix: {error}") from None
    return prefix


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float | os.PathLike):
        return str(value)
    raise Invalid(f"option {name!r} must be text, a number, true or false; leave it out for the default")


def _folder(path: str, settings: Settings) -> Store:
    try:
        from bucketmq.bucket.folder import LOCK_WAIT_SECONDS, FolderStore
    except ImportError as error:
        raise Unsupported("the folder store needs Linux or macOS; use memory:// or an object store") from error
    return FolderStore(path, lock_wait_seconds=settings.seconds("timeout", LOCK_WAIT_SECONDS))


def _objects(scheme: str, place: str, settings: Settings, prefix: str) -> Store:
    try:
        from bucketmq.bucket import cloud
    except ImportError as error:
        raise Unsupported(f"{scheme}:// needs the package obstore; run: pip install obstore") from error
    match scheme:
        case "s3":
            return cloud.s3(place, settings, prefix=prefix)
        case "gs":
            return cloud.gcs(place, settings, prefix=prefix)
        case _:
            return cloud.azure(place, settings, prefix=prefix)
