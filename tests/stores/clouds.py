"""Google's, Azure's and Tigris' answers in miniature: enough of each protocol to run the contract through the adapter.

These show that the adapter speaks each dialect. That the clouds themselves keep the contract, they cannot show.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from email.utils import formatdate, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
PARTS_HASH = "x-parts-hash"


class Kept(NamedTuple):
    generation: int
    body: bytes
    date: str
    headers: dict[str, str]


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]


class Cloud(BaseHTTPRequestHandler):
    """One bucket in memory. A subclass says which conditions hold and what a listing looks like."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet, or the client waits for the second
    bucket = "/bucket"
    vendor: str
    """How the names of its own headers begin."""
    server: CloudServer

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.command, self.path, headers))
        fault = self.server.faults.get(self.command)
        if fault is None:
            return True
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if fault == 0:
            self.server.stopped.wait(30)
            self.close_connection = True
        else:
            self.answer(fault)
            self.wfile.flush()
        return False

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            refusal = self.refusal(self.server.objects.get(self.key))
            if refusal is not None:
                return self.answer(refusal)
            named = self.headers[f"{self.vendor}copy-source"]
            if named is not None and (told := self.server.copies_answer) is not None:
                return self.answer(told) if isinstance(told, int) else self.answer(200, told.encode())
            if named is not None:
                source = self.server.objects.get(unquote(urlsplit(named).path.partition("bucket/")[2]))
                if source is None:
                    return self.answer(404)
                if not self.may_copy(source):
                    return self.answer(412)
                body = source.body
            self.server.objects[self.key] = kept = Kept(
                next(self.server.generations), body, formatdate(usegmt=True), self.attributes()
            )
            return self.answer(200, self.copied(kept) if named else b"", self.marks(kept))

    def attributes(self) -> dict[str, str]:
        prefix = f"{self.vendor}meta-"
        kept = {name.lower(): value for name, value in self.headers.items() if name.lower().startswith(prefix)}
        kind = self.headers["Content-Type"] or self.headers["x-ms-blob-content-type"]
        return {**kept, "Content-Type": kind} if kind else kept

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith(self.bucket + "?"):
            return self.list_keys()
        with self.server.lock:
            found = self.server.objects.get(self.key)
        if found is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self.answer(200, found.body, headers={**found.headers, **self.marks(found)})

    def do_DELETE(self) -> None:
        with self.server.lock:
            found = self.server.objects.get(self.key)
            if found is not None and not self.may_delete(found):
                return self.answer(412)
            self.server.objects.pop(self.key, None)
        return self.answer(204 if found else 404)

    def list_keys(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        after = query.get(self.after_name, "")
        token = query.get(self.token_name, "")
        with self.server.lock:
            keys = sorted(
                key
                for key in self.server.objects
                if key.startswith(query.get("prefix", "")) and self.begins(key, after) and key > token
            )
            entries = "".join(self.entry(key, *self.server.objects[key]) for key in keys[:PAGE])
        following = keys[PAGE - 1] if len(keys) > PAGE else ""
        self.answer(200, self.listing(entries, escape(following)).encode())

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path.removeprefix(self.bucket + "/"))

    def log_message(self, format: str, *args: object) -> None: ...

    after_name: str
    token_name: str

    def refusal(self, found: Kept | None) -> int | None:
        raise NotImplementedError

    def may_delete(self, found: Kept) -> bool:
        return self.headers["If-Match"] in (None, self.marks(found)["ETag"])

    def may_copy(self, source: Kept) -> bool:
        raise NotImplementedError

    def copied(self, kept: Kept) -> bytes:
        return b""

    def marks(self, found: Kept) -> dict[str, str]:
        return {"ETag": f'"{found.generation}"', "Last-Modified": found.date}

    def begins(self, key: str, after: str) -> bool:
        return key > after

    def entry(self, key: str, generation: int, body: bytes, date: str, headers: dict[str, str]) -> str:
        raise NotImplementedError

    def listing(self, entries: str, following: str) -> str:
        raise NotImplementedError


class Google(Cloud):
    after_name, token_name = "start-after", "continuation-token"
    vendor = "x-goog-"

    def may_copy(self, source: Kept) -> bool:
        assert self.headers["x-goog-metadata-directive"] == "REPLACE"
        return self.headers["x-goog-copy-source-if-generation-match"] == str(source.generation)

    def refusal(self, found: Kept | None) -> int | None:
        wanted = self.headers["x-goog-if-generation-match"]
        return None if wanted == str(found.generation if found else 0) else 412

    def may_delete(self, found: Kept) -> bool:
        return self.headers["x-goog-if-generation-match"] in (None, str(found.generation))

    def marks(self, found: Kept) -> dict[str, str]:
        # The hash is the same for all, so that only the generation can tell two states apart.
        return {"ETag": '"hash"', "x-goog-generation": str(found.generation), "Last-Modified": found.date}

    def entry(self, key: str, generation: int, body: bytes, date: str, headers: dict[str, str]) -> str:
        return (
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><ETag>hash</ETag>"
            f"<LastModified>{iso(date)}</LastModified></Contents>"
        )

    def listing(self, entries: str, following: str) -> str:
        token = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
        return f"<ListBucketResult>{entries}{token}</ListBucketResult>"


class S3(Cloud):
    """Versions are hashes of the body. Tigris' rename is a copy with a header."""

    after_name, token_name = "start-after", "continuation-token"
    vendor = "x-amz-"

    def may_copy(self, source: Kept) -> bool:
        assert self.headers["x-amz-metadata-directive"] == "REPLACE"
        return self.headers["x-amz-copy-source-if-match"] == self.marks(source)["ETag"]

    def copied(self, kept: Kept) -> bytes:
        return f"<CopyObjectResult><ETag>{escape(self.marks(kept)['ETag'])}</ETag></CopyObjectResult>".encode()

    def do_PUT(self) -> None:
        if self.headers["X-Tigris-Rename"] is None:
            return super().do_PUT()
        source = unquote(self.headers["x-amz-copy-source"]).removeprefix("/").removeprefix("bucket/")
        with self.server.lock:
            found = self.server.objects.get(source)
            if self.headers["If-None-Match"] == "*" and self.key in self.server.objects:
                return self.answer(412)
            if found is None:
                return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            self.server.objects[self.key] = found
            del self.server.objects[source]
        return self.answer(200, b"<CopyObjectResult></CopyObjectResult>")

    def refusal(self, found: Kept | None) -> int | None:
        if self.headers["If-None-Match"] == "*":
            return 412 if found else None
        if found is None:
            return 404
        return None if self.headers["If-Match"] == self.marks(found)["ETag"] else 412

    def marks(self, found: Kept) -> dict[str, str]:
        # What was written in parts has another hash.
        hashed = found.headers.get(PARTS_HASH, f'"{hashlib.md5(found.body).hexdigest()}"')
        return {"ETag": hashed, "Last-Modified": found.date}

    def entry(self, key: str, generation: int, body: bytes, date: str, headers: dict[str, str]) -> str:
        return (
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size>"
            f"<ETag>&quot;{hashlib.md5(body).hexdigest()}&quot;</ETag>"
            f"<LastModified>{iso(date)}</LastModified></Contents>"
        )

    def listing(self, entries: str, following: str) -> str:
        token = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
        return f"<ListBucketResult>{entries}{token}</ListBucketResult>"


class CarelessS3(S3):
    """Deletes whatever the condition says, as gateways do that never heard of it, and copies over what is there."""

    def may_delete(self, found: Kept) -> bool:
        return True

    def refusal(self, found: Kept | None) -> int | None:
        return None if self.headers["x-amz-copy-source"] else super().refusal(found)


class PoliteS3(S3):
    """Honours the condition on what is there, and thanks for the delete of what is not: two could win."""

    def do_DELETE(self) -> None:
        with self.server.lock:
            found = self.server.objects.get(self.key)
            if found is not None and not self.may_delete(found):
                return self.answer(412)
            self.server.objects.pop(self.key, None)
        return self.answer(204)


class Azure(Cloud):
    after_name, token_name = "startFrom", "marker"
    vendor = "x-ms-"

    def may_copy(self, source: Kept) -> bool:
        assert "sig=" in self.headers["x-ms-copy-source"]
        assert self.headers["x-ms-copy-source-blob-properties"] == "false"
        return self.headers["x-ms-source-if-match"] == self.marks(source)["ETag"]

    def refusal(self, found: Kept | None) -> int | None:
        if not all(name.removeprefix("x-ms-meta-").isidentifier() for name in self.attributes() if name.islower()):
            return 400
        if self.headers["If-None-Match"] == "*":
            return 409 if found else None
        if found is None:
            return 404
        return None if self.headers["If-Match"] == f'"{found.generation}"' else 412

    def begins(self, key: str, after: str) -> bool:
        return key >= after  # Azure's startFrom includes the name itself

    def entry(self, key: str, generation: int, body: bytes, date: str, headers: dict[str, str]) -> str:
        return (
            f"<Blob><Name>{escape(key)}</Name><Properties><Content-Length>{len(body)}</Content-Length>"
            f"<Content-Type>application/octet-stream</Content-Type><Etag>{generation}</Etag>"
            f"<Last-Modified>{date}</Last-Modified></Properties></Blob>"
        )

    def listing(self, entries: str, following: str) -> str:
        return f"<EnumerationResults><Blobs>{entries}</Blobs><NextMarker>{following}</NextMarker></EnumerationResults>"

    def do_POST(self) -> None:
        """A batch of deletes: requests inside a request."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        parts = []
        for number, path in enumerate(re.findall(r"^DELETE (\S+)", text, re.MULTILINE)):
            key = unquote(urlsplit(path).path.removeprefix(self.bucket + "/"))
            with self.server.lock:
                status = (
                    "202 Accepted" if self.server.objects.pop(key, None) else "404 The specified blob does not exist."
                )
            code = "" if status.startswith("202") else "x-ms-error-code: BlobNotFound\r\n"
            parts.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
                f"HTTP/1.1 {status}\r\n{code}x-ms-request-id: 1\r\n\r\n"
            )
        body = ("".join(parts) + "--batch--\r\n").encode()
        self.answer(202, body, {"Content-Type": "multipart/mixed; boundary=batch"})


class CloudServer(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True

    def __init__(self, dialect: type[Cloud]) -> None:
        super().__init__(("127.0.0.1", 0), dialect)
        self.lock = threading.Lock()
        self.objects: dict[str, Kept] = {}
        self.generations = itertools.count(1)
        self.requests: list[Request] = []
        self.faults: dict[str, int] = {}
        """Method -> the status to answer it with, or 0 for no answer."""
        self.copies_answer: int | str | None = None
        """What is answered to every copy instead of making it: a status, or what a 200 says."""
        self.stopped = threading.Event()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def iso(date: str) -> str:
    return parsedate_to_datetime(date).isoformat().replace("+00:00", "Z")


@contextlib.contextmanager
def cloud(dialect: type[Cloud]) -> Iterator[CloudServer]:
    """A running server."""
    server = CloudServer(dialect)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
