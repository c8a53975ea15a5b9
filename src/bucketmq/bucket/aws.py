"""Where AWS keeps its settings: `AWS_*` variables and the files in `~/.aws`, read as the AWS tools read them.

`bucketmq.bucket.cloud` asks this module for an endpoint, a region and credentials. Keys that lie in a file are read
here; a profile that must log in somewhere first (SSO, an assumed role, a helper program) is left to boto3. Roles of
containers and machines are left to obstore. Nothing here makes a request.
"""

from __future__ import annotations

import configparser
import functools
import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bucketmq.errors import Denied, Invalid, Unsupported

if TYPE_CHECKING:
    from obstore.store import S3Credential

REGION_DEFAULT = "us-east-1"

_LOGS_IN = (
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
    "login_session",
)


class StaticKeys:
    """Credentials that do not change, in the form obstore asks for them. Its `repr` shows nothing."""

    def __init__(self, access_key_id: str, secret_access_key: str, session_token: str | None) -> None:
        self._access_key_id = access_key_id
        self._secret_access_key = secret_access_key
        self._session_token = session_token

    def __call__(self) -> S3Credential:
        return {
            "access_key_id": self._access_key_id,
            "secret_access_key": self._secret_access_key,
            "token": self._session_token,
            "expires_at": None,
        }

    def __repr__(self) -> str:
        return "StaticKeys(***)"


class Profile:
    """One profile of the files, read when something is first asked of it that the environment does not say."""

    def __init__(self, name: str | None, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._asked = name
        self.name = name or environment.get("AWS_PROFILE") or "default"

    def endpoint(self) -> str | None:
        if self._environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
            return None
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
            if self._environment.get(name):
                return self._environment[name]
        return self._services.get("endpoint_url") or self._values.get("endpoint_url")

    def region(self) -> str:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            if self._environment.get(name):
                return self._environment[name]
        return self._values.get("region") or REGION_DEFAULT

    def credentials(self) -> Callable[[], S3Credential] | None:
        """What the profile gives, or None: then obstore looks at the variables and at the role of the machine.

        As in the AWS tools, a profile that was asked for goes before variables, and variables before a default one.
        """
        if not self._asked and self._environment.get("AWS_ACCESS_KEY_ID"):
            return None
        key, secret = self._values.get("aws_access_key_id"), self._values.get("aws_secret_access_key")
        if key and secret:
            return StaticKeys(key, secret, self._values.get("aws_session_token"))
        if any(name in self._values for name in _LOGS_IN):
            return _login(self.name)
        if self.name != "default":
            raise Denied(f"AWS profile {self.name!r} has no credentials; add keys to it, or choose another profile")
        return None

    @functools.cached_property
    def _values(self) -> dict[str, str]:
        section = "default" if self.name == "default" else f"profile {self.name}"
        secrets = _read(self._path("AWS_SHARED_CREDENTIALS_FILE", "credentials"))
        if self.name != "default" and section not in self._config and self.name not in secrets:
            raise Invalid(f"there is no AWS profile {self.name!r}; see ~/.aws/config and ~/.aws/credentials")
        return {**self._config.get(section, {}), **secrets.get(self.name, {})}

    @functools.cached_property
    def _services(self) -> dict[str, str]:
        services = self._config.get(f"services {self._values.get('services', '')}", {})
        return _nested(services.get("s3", ""))

    @functools.cached_property
    def _config(self) -> dict[str, dict[str, str]]:
        return _read(self._path("AWS_CONFIG_FILE", "config"))

    def _path(self, variable: str, name: str) -> Path:
        home = Path(self._environment.get("HOME") or "~")
        return Path(self._environment.get(variable) or home / ".aws" / name).expanduser()


def keys_of(environment: Mapping[str, str]) -> Callable[[], S3Credential]:
    """What signs where obstore finds credentials by itself: the variables, else what boto3 finds at the first call."""
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if key and secret:
        return StaticKeys(key, secret, environment.get("AWS_SESSION_TOKEN"))
    login = functools.cache(lambda: _login(None))

    def found() -> S3Credential:
        return login()()

    return found


def _read(path: Path) -> dict[str, dict[str, str]]:
    # Values may contain '%', and a section named DEFAULT means nothing to AWS.
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error):
        # The parser's own message quotes the line, and the line may be a secret.
        raise Invalid(f"cannot read {path}; it must be an INI file that this user may read") from None
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _nested(text: str) -> dict[str, str]:
    """The lines that stand indented under a name: `s3 =` and below it `endpoint_url = ...`."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _login(profile: str | None) -> Callable[[], S3Credential]:
    try:
        boto3 = importlib.import_module("boto3")  # by name: it has no types, and need not be installed
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise Unsupported(f"AWS profile {profile!r} logs in through boto3; run: pip install boto3") from error
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=profile))
    except Exception as error:  # botocore's errors have no root below Exception that also covers obstore's ValueError
        raise Denied(f"AWS profile {profile!r} gives no credentials: {type(error).__name__}; log in again") from error
