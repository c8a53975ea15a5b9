"""AWS Signature Version 4 of one request, in its headers.

obstore signs what it sends itself, and addresses that others may use; neither covers `x-amz-` headers of our own, which
S3 wants signed. Nothing here makes a request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from obstore.store import S3Credential

ALGORITHM = "AWS4-HMAC-SHA256"

_SPACES = re.compile(" +")


def signed(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, keys: S3Credential, region: str, at: datetime
) -> dict[str, str]:
    """`headers`, and those that sign them all. `url` is encoded as it will be sent, its query in order."""
    parts = urlsplit(url)
    digest = hashlib.sha256(body).hexdigest()
    stamp = at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    sent = {name.lower(): value for name, value in headers.items()}
    sent |= {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    if token := keys.get("token"):
        sent["x-amz-security-token"] = token
    names = ";".join(sorted(sent))
    # A server may see several spaces as one, so the signature takes them for one.
    lines = "".join(f"{name}:{_SPACES.sub(' ', sent[name].strip())}\n" for name in sorted(sent))
    request = f"{method}\n{parts.path or '/'}\n{parts.query}\n{lines}\n{names}\n{digest}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys['secret_access_key']}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{keys['access_key_id']}/{scope}"
    sent["authorization"] = f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return sent
