"""Reads documents in a process of its own, so that none can harm the indexer: one that takes too long, too much memory,
or crashes a library in C is told as unreadable, and the next one gets a new process.

The child is this module run as a program. It is handed a document, says "." after every page and ends with the text or
the reason; it ends when its parent does. What a text is, is `reading`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any

import msgspec

from bucketmq.apps.documents.reading import Text, Unreadable, kind_of, read_text
from bucketmq.errors import Unsupported

SILENT_SECONDS = 60.0
"""The longest that one page may take."""
WHOLE_SECONDS = 1_800.0
HTML_SECONDS = 3.0
HTML_SECONDS_A_MIB = 0.5
"""Of CPU time. A page of 8 MiB takes one second; of nested marks the parser takes time that grows with their square."""
MEMORY_BYTES_MAX = 4 << 30
"""Of address space, which libraries reserve more of than they use."""


class Asked(msgspec.Struct, frozen=True):
    """A document to read; its bytes follow."""

    key: str
    size_bytes: int
    html_seconds: float


class Failed(msgspec.Struct, frozen=True, tag=True):
    reason: str


class Read(msgspec.Struct, frozen=True, tag=True):
    text: Text


class Lacking(msgspec.Struct, frozen=True, tag=True):
    """A package is not installed here, which is not the document's fault."""

    package: str


class Alive(msgspec.Struct, frozen=True, tag=True):
    """A page more is done."""


Said = Read | Failed | Lacking | Alive
_said: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)


class Readers:
    """Reads documents, one at a time. Made once in a process; calls from any thread."""

    def __init__(
        self,
        *,
        silent_seconds: float = SILENT_SECONDS,
        whole_seconds: float = WHOLE_SECONDS,
        html_seconds: float = HTML_SECONDS,
    ) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._silent_seconds = silent_seconds
        self._whole_seconds = whole_seconds
        self._html_seconds = html_seconds

    def read(self, key: str, content: bytes) -> Text:
        """The text of a document, or `Unreadable`; `Unsupported` where a package is missing that its kind needs."""
        with self._lock:
            if self._child is None or self._child.poll() is not None:
                self._end()  # of one that died meanwhile, the pipes
                self._child = _start()
            try:
                said = self._ask(self._child, key, content)
            except BaseException:
                self._end()  # it may be in the middle of something
                raise
        match said:
            case Failed(reason):
                raise Unreadable(reason)
            case Lacking(package):
                raise Unsupported(f"reading {key!r} needs {package}: pip install 'bucketmq[documents]'")
        return said.text

    def _ask(self, child: subprocess.Popen[bytes], key: str, content: bytes) -> Read | Failed | Lacking:
        assert child.stdin is not None and child.stdout is not None
        until = time.monotonic() + self._whole_seconds
        html_seconds = self._html_seconds + HTML_SECONDS_A_MIB * len(content) / (1 << 20)
        try:
            _write(child.stdin, msgspec.msgpack.encode(Asked(key, len(content), html_seconds)))
            child.stdin.write(content)
            child.stdin.flush()
            while True:
                said: Said = _said.decode(self._frame(child.stdout, until))
                if not isinstance(said, Alive):
                    return said
        except (BrokenPipeError, EOFError):
            code = child.wait()
            if code == -signal.SIGPROF:
                raise Unreadable(
                    f"reading it took longer than {html_seconds:.1f} seconds of CPU; it is nested too deeply, or "
                    "made to"
                ) from None
            raise Unreadable(
                f"reading it ended its process (code {code}): it takes more than {MEMORY_BYTES_MAX >> 30} GiB of "
                "memory, or a library crashed on it"
            ) from None

    def _frame(self, pipe: IO[bytes], until: float) -> bytes:
        size = int.from_bytes(self._bytes(pipe, 8, until), "big")
        return self._bytes(pipe, size, until)

    def _bytes(self, pipe: IO[bytes], count: int, until: float) -> bytes:
        parts: list[bytes] = []
        silent = time.monotonic() + self._silent_seconds
        while count:
            left = min(until, silent) - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                seconds = self._silent_seconds if silent <= until else self._whole_seconds
                raise Unreadable(f"reading it took longer than {seconds:g} seconds; it is too large, or made to")
            part = os.read(pipe.fileno(), min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()

    def close(self) -> None:
        with self._lock:
            self._end()


def _start() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    return subprocess.Popen(
        [sys.executable, "-m", "bucketmq.apps.documents.reader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # libraries in C write what they please
        env=environment,
        start_new_session=True,  # Ctrl-C is for the parent
    )


def _write(pipe: IO[bytes], body: bytes) -> None:
    pipe.write(len(body).to_bytes(8, "big") + body)
    pipe.flush()


def main() -> None:
    """The child: documents in, texts out, until the parent is gone."""
    _bound_memory()
    pipe_in, pipe_out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints goes nowhere

    def say(said: Said) -> None:
        _write(pipe_out, msgspec.msgpack.encode(said))

    while len(head := pipe_in.read(8)) == 8:
        asked = msgspec.msgpack.decode(pipe_in.read(int.from_bytes(head, "big")), type=Asked)
        content = pipe_in.read(asked.size_bytes)
        say(_answer(asked, content, lambda: say(Alive())))


def _answer(asked: Asked, content: bytes, progress: Any) -> Said:
    try:
        is_html = kind_of(asked.key, content) == "html"
        signal.setitimer(signal.ITIMER_PROF, asked.html_seconds if is_html else 0)  # its signal ends this process
        return Read(read_text(asked.key, content, progress))
    except Unreadable as error:
        return Failed(str(error))
    except ModuleNotFoundError as error:
        return Lacking(error.name or "a package")
    except MemoryError:
        os._exit(1)  # nothing can be trusted after this
    except RecursionError:
        return Failed("it is nested too deeply to be read")
    except Exception as error:  # a library's own: it is about this document
        return Failed(f"reading it failed: {type(error).__name__}: {error}"[:500])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _bound_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # not every system has it
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


if __name__ == "__main__":
    main()
