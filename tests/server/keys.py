"""Keys and certificates of our own, in place of Amazon's and Google's."""

from __future__ import annotations

import base64
import datetime
import functools
import json
import time
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@functools.cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """One for each name, made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(key: rsa.RSAPrivateKey, *, expired: bool = False) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    until = datetime.datetime.now(datetime.UTC) + (-DAY if expired else DAY)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - 5 * DAY)
        .not_valid_after(until)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
SUBSCRIPTION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


def signed_by_sns(key: rsa.RSAPrivateKey, message: dict[str, Any], certificate_url: str, version: str = "2") -> bytes:
    """A message as SNS signs it, by its documentation."""
    names = NOTIFICATION if message["Type"] == "Notification" else SUBSCRIPTION
    text = "".join(f"{name}\n{message[name]}\n" for name in names if name in message).encode()
    made = key.sign(text, padding.PKCS1v15(), hashes.SHA1() if version == "1" else hashes.SHA256())
    envelope = {
        **message,
        "SignatureVersion": version,
        "Signature": base64.b64encode(made).decode(),
        "SigningCertURL": certificate_url,
    }
    return json.dumps(envelope).encode()


def google_keys(**keys: rsa.RSAPrivateKey) -> bytes:
    """What Google publishes: its keys by their names."""
    rows = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": name, "alg": "RS256", "use": "sig"}
        for name, key in keys.items()
    ]
    return json.dumps({"keys": rows}).encode()


def push_token(key: rsa.RSAPrivateKey, name: str = "one", **changed: Any) -> str:
    """What Pub/Sub shows."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": "https://accounts.google.com",
        "aud": "https://events.example.com/events/gcs",
        "email": "pusher@project.iam.gserviceaccount.com",
        "email_verified": True,
        "sub": "113774264463038321964",
        "iat": now,
        "exp": now + 3600,
        **changed,
    }
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, key, algorithm="RS256", headers={"kid": name})
