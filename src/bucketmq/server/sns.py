"""Messages of SNS: whether their topic is wanted, whether Amazon signed them, and confirming a subscription.

Every address in a message comes from outside: certificates and confirmations are fetched only from SNS' own hosts, by
the guarded client. What a message says about objects is `events.parse`'s.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bucketmq.errors import Invalid
from bucketmq.events.parse import Confirm
from bucketmq.events.parse.aws import SNS_TYPES
from bucketmq.events.parse.fields import decode
from bucketmq.notify.addresses import SNS_CERTIFICATE, SNS_CONFIRMATION, check_sns_url
from bucketmq.notify.lazy import LazyPoster
from bucketmq.procedures.requests import NoAnswer
from bucketmq.server.settings import ServerSettings
from bucketmq.server.wire import Refusal, loggable

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

FETCH_SECONDS = 5.0
CERTIFICATES_MAX = 16
"""SNS has one or two for each region at a time."""
TOPIC_HEADER = "x-amz-sns-topic-arn"
TYPE_HEADER = "x-amz-sns-message-type"

_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_SUBSCRIPTION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")

logger = logging.getLogger("bucketmq")

Envelope = dict[str, Any]


def envelope_of(source: str, body: bytes) -> Envelope | None:
    """What SNS wraps around a message; None if it is not there: somebody else's message, or one delivered raw."""
    if source not in ("sns", "auto") or (b"TopicArn" not in body and b"\\u" not in body):
        return None  # most bodies, without decoding them twice
    try:
        value = decode(body)
    except Invalid:
        return None  # the parser says what is wrong with it
    is_envelope = isinstance(value, dict) and "TopicArn" in value and value.get("Type") in SNS_TYPES
    return value if is_envelope and isinstance(value, dict) else None


class Sns:
    """What one server knows of SNS. `close` when done."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._poster = LazyPoster()
        self._certificates: OrderedDict[str, Certificate] = OrderedDict()

    async def check(self, source: str, headers: dict[str, str], body: bytes) -> None:
        """403 for a message of SNS whose topic is not wanted, or that Amazon did not sign."""
        envelope = envelope_of(source, body)
        topic = envelope.get("TopicArn") if envelope is not None else headers.get(TOPIC_HEADER)
        if envelope is None and source != "sns" and not {TOPIC_HEADER, TYPE_HEADER} & headers.keys():
            return
        topics = self._settings.sns_topics
        if topics and topic not in topics:
            logger.warning("action=topic_refused topic=%s", loggable(topic))
            raise Refusal(403, "this topic is not among those that may send here", "name it with --sns-topic")
        if self._settings.sns_verify:
            why = "it was delivered raw, without a signature" if envelope is None else await self._unsigned(envelope)
            if why is not None:
                logger.warning("action=sns_signature_refused topic=%s why=%s", loggable(topic), loggable(why))
                raise Refusal(
                    403, "the message is not signed by SNS", "--no-sns-verify is for servers that do not sign"
                )

    async def confirm(self, confirm: Confirm) -> None:
        """403 for a URL that is not one of SNS, 503 when SNS does not agree. The topic was checked before."""
        url = confirm.url or ""
        if (why := check_sns_url(url, SNS_CONFIRMATION, allowed_prefix=self._settings.sns_prefix)) is not None:
            logger.warning("action=confirmation_refused why=%s", loggable(why))
            raise Refusal(403, "the SubscribeURL is not one of SNS", why)
        if isinstance(found := await self._fetch(url, SNS_CONFIRMATION), str):
            logger.warning("action=confirmation_failed topic=%s why=%s", loggable(confirm.topic), loggable(found))
            raise Refusal(503, "SNS did not confirm the subscription", headers={"retry-after": "20"})

    def close(self) -> None:
        self._poster.close()

    async def _unsigned(self, envelope: Envelope) -> str | None:
        """Why a message is not to be believed; None if its signature fits."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding, rsa

        algorithm = {"1": hashes.SHA1(), "2": hashes.SHA256()}.get(str(envelope.get("SignatureVersion")))
        if algorithm is None:
            return "its SignatureVersion is neither 1 nor 2"
        try:
            signature = base64.b64decode(str(envelope.get("Signature")), validate=True)
        except (binascii.Error, ValueError):
            return "its Signature is not base64"
        certificate = await self._certificate(str(envelope.get("SigningCertURL")))
        if isinstance(certificate, str):
            return certificate
        if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
            return "its certificate is not valid now"
        key = certificate.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            return "its certificate has no RSA key"
        try:
            key.verify(signature, signed_text(envelope), padding.PKCS1v15(), algorithm)
        except InvalidSignature:
            return "its signature does not fit"
        return None

    async def _certificate(self, url: str) -> Certificate | str:
        """From one of SNS' hosts, or why not."""
        from cryptography.x509 import load_pem_x509_certificate

        if (why := check_sns_url(url, SNS_CERTIFICATE, allowed_prefix=self._settings.sns_prefix)) is not None:
            return f"its SigningCertURL is not one of SNS: {why}"
        if url in self._certificates:
            self._certificates.move_to_end(url)
            return self._certificates[url]
        found = await self._fetch(url, SNS_CERTIFICATE)
        if isinstance(found, str):
            return f"its certificate could not be fetched: {found}"
        try:
            certificate = load_pem_x509_certificate(found)
        except ValueError:
            return "its SigningCertURL leads to something that is not a certificate"
        self._certificates[url] = certificate
        while len(self._certificates) > CERTIFICATES_MAX:
            self._certificates.popitem(last=False)
        return certificate

    async def _fetch(self, url: str, path: re.Pattern[str]) -> bytes | str:
        """The body at a URL that was checked, or why there is none."""
        prefix = self._settings.sns_prefix
        # Amazon's is at a public address; only the server that was named for tests may be on this machine.
        private = prefix is not None and check_sns_url(url, path) is not None
        answer = await asyncio.to_thread(self._poster.get, url, timeout_seconds=FETCH_SECONDS, private=private)
        if isinstance(answer, NoAnswer):
            return answer.reason
        return answer.body if 200 <= answer.status < 300 else f"HTTP {answer.status}"


def signed_text(envelope: Envelope) -> bytes:
    """What SNS signs: some of the fields, each name and value on a line; those that are not there are left out."""
    names = _NOTIFICATION if envelope.get("Type") == "Notification" else _SUBSCRIPTION
    return "".join(f"{name}\n{envelope[name]}\n" for name in names if envelope.get(name) is not None).encode(
        "utf-8", "surrogatepass"
    )
