"""What may not be inside an archive: members that would leave the folder it is unpacked into, links, devices. Pure.

An artifact is files, and those who deploy it often unpack one of them. A member named `../../etc/passwd`, or a link
that a later member is written through, is refused when it is published and again when it is verified.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib

from bucketmq.bucket.port import check_key
from bucketmq.errors import Invalid

TAR = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
ZIP = (".zip", ".whl", ".jar")
MEMBERS_MAX = 200_000
UNPACKED_BYTES_MAX = 64 << 30

_SYMLINK = 0o120000
_KIND = 0o170000


def problem_of(path: str, body: bytes) -> str | None:
    """What is wrong with a file, if it is an archive by its name; None if nothing is."""
    lower = path.lower()
    try:
        if lower.endswith(TAR):
            return _tar(path, body)
        if lower.endswith(ZIP):
            return _zip(path, body)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, zlib.error, ValueError) as error:
        return f"{path!r} is named like an archive and is not one ({error}); pack it again, or rename it"
    return None


def _tar(path: str, body: bytes) -> str | None:
    size = count = 0
    with tarfile.open(fileobj=io.BytesIO(body), mode="r:*") as archive:
        for member in archive:
            count, size = count + 1, size + member.size
            if not (member.isfile() or member.isdir()):
                return (
                    f"{path!r} holds {member.name[:120]!r}, which is a link or a device; pack files alone "
                    "(tar --dereference --hard-dereference)"
                )
            found = _member(path, member.name, count, size)
            if found:
                return found
    return None


def _zip(path: str, body: bytes) -> str | None:
    size = count = 0
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        for member in archive.infolist():
            count, size = count + 1, size + member.file_size
            if (member.external_attr >> 16) & _KIND == _SYMLINK:
                return f"{path!r} holds {member.filename[:120]!r}, which is a link; pack files alone"
            found = _member(path, member.filename, count, size)
            if found:
                return found
    return None


def _member(path: str, name: str, count: int, size: int) -> str | None:
    plain = name.removeprefix("./").rstrip("/")
    if plain not in ("", "."):
        try:
            check_key(plain)
        except Invalid:
            return f"{path!r} holds {name[:120]!r}, which would leave the folder it is unpacked into; pack it again"
    if count > MEMBERS_MAX or size > UNPACKED_BYTES_MAX:
        return f"{path!r} unpacks to more than {MEMBERS_MAX:,} files or {UNPACKED_BYTES_MAX >> 30} GiB; pack less"
    return None
