"""Private keys in files: made once, readable by their owner alone, never printed."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.errors import Denied, Invalid, NotFound

KEY_BYTES_MAX = 16 << 10


def make_key(path: Path) -> SigningKey:
    """A new Ed25519 key in a new file (PKCS #8, PEM) that only its owner can read. Never writes over a file."""
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Invalid(f"{path} is there already and was not touched; name another file") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be made: {error.strerror}; name another file") from None
    with os.fdopen(fd, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return SigningKey(private)


def load_key(path: Path) -> SigningKey:
    """The key in a file. One that others can read is refused: it may not be a secret any more."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            text = file.read(KEY_BYTES_MAX)
    except FileNotFoundError:
        raise NotFound(f"there is no key file {path}; make one: bucketmq artifacts keygen {path}") from None
    except OSError as error:
        raise Denied(f"the key file {path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Denied(
            f"others may read the key file {path} (mode {stat.S_IMODE(found.st_mode):04o}); if nobody has: "
            f"chmod 600 {path}; otherwise make a new key and remove this one from the trust"
        )
    try:
        private = load_pem_private_key(text, password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise Invalid(f"{path} is not an Ed25519 private key in PEM without a password; make one with keygen")
    return SigningKey(private)


def public_text(key: SigningKey) -> str:
    """The public half, as trust documents have it."""
    return base64.b64encode(key.public).decode()
