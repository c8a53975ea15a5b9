"""Control characters of bodies, keys, headers and errors are shown and never obeyed, by whichever verb prints them."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pty
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.apps.moderation.cli import _teller
from bucketmq.apps.moderation.posts import RoutedPost
from bucketmq.cli import output
from bucketmq.cli.app import run
from bucketmq.cli.exits import tell
from bucketmq.cli.output import LogLines, printable
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.events.filters import parse
from cli.ran import Cli, Ran
from cli.running import running

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
CLEAR = "\x1b[2J\x1b[H"
C1 = "\x9b2J\x9d0;title\x9c"
OTHERS = "\x00\x08\x0b\x0c\x7f\x85\xad"
BIDI = "\u202etxt.exe\u202c\u2066\u2069\u200f\u061c\u2028\u2029"
FORGED = "\nreceipt  forged\r\nerror (invalid): forged"
EVIL = f"a{CLIPBOARD}b{CLEAR}c{C1}d{OTHERS}e{BIDI}f{FORGED}"
RAW = ["\x1b]", "\x07", "\x1b[2J", "\x9b", "\x9d", "\x00", "\x08", "\x7f", "\x85", *"\u202e\u202c\u2066\u2069\u200f"]
RAW += ["\u2028", "\u2029", "\u061c", "\nreceipt  forged", "\nerror (invalid): forged"]

Terminal = Callable[..., Ran]


@pytest.fixture
def terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Run a command with standard output and standard error on one terminal."""

    def call(*args: object) -> Ran:
        master, slave = pty.openpty()
        chunks: list[bytes] = []

        def read() -> None:
            while True:
                try:
                    chunks.append(os.read(master, 65536))
                except OSError:  # every writer is gone
                    return

        reader = threading.Thread(target=read)
        reader.start()
        with os.fdopen(slave, "w", encoding="utf-8") as screen, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", screen)
            patched.setattr(sys, "stderr", screen)
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            code = run([str(each) for each in args])
            screen.flush()
        reader.join()
        os.close(master)
        return Ran(code, b"".join(chunks).decode().replace("\r\n", "\n"), "")

    return call


@pytest.fixture
def evil(bucket: Bucket, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A queue and a bus where everything that anybody may choose is evil."""
    queue = bucket.queue("jobs")
    queue.send(EVIL, key=EVIL, headers={"h": EVIL})
    queue.receive(1)[0].bury(EVIL, wait=True)
    queue.send(EVIL, key=EVIL, headers={"h": EVIL})
    queue.send({EVIL: [EVIL]}, key=EVIL, headers={"h": EVIL})
    bucket.rules.add("inbox", to="queue:inbox", gone="bury")
    key = f"posts/{C1}{BIDI}"
    bucket.put(key, EVIL.encode(), metadata={"note": "x"})
    bucket.trigger(f"gone/{C1}{BIDI}")
    bucket.notify(only=["inbox"], stop_when_empty=True)
    (folder / "evil_agents.py").write_text(
        f"""
import os, bucketmq
bucket = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False)

@bucket.watch(start="beginning")
def route(change):
    raise ValueError({EVIL!r})
"""
    )
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, "evil_agents", raising=False)
    return bucket


VERBS = [
    "stats jobs",
    "peek jobs",
    "tail jobs",
    "tail events",
    "tail deliveries",
    "receive jobs -n 9",
    "dead jobs",
    "dead jobs --full",
    "rules ls",
    "rules show inbox",
    "rules dead inbox",
    "rules dead inbox --full",
    "rules dry-run inbox",
    "audit --rule inbox",
    "watch evil_agents --once",
    "redrive jobs --dry-run",
]


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize("verb", [*VERBS, *(f"{verb} --json" for verb in VERBS)])
def test_nothing_evil_reaches_the_terminal(terminal: Terminal, verb: str) -> None:
    ran = terminal(*verb.split())
    assert ran.code in (0, 3, 6), ran
    assert [raw for raw in RAW if raw in ran.out] == []
    if verb.split(maxsplit=1)[0] in ("peek", "tail", "receive", "dead", "watch"):
        assert "\\u202e" in ran.out  # shown, not dropped


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb.split()[0] != "watch"])
def test_nothing_evil_reaches_a_pipe(cli: Cli, verb: str) -> None:
    for ran in (cli(*verb.split()), cli(*verb.split(), "--json")):
        assert [raw for raw in RAW if raw in ran.out + ran.err] == []
        assert "\x1b" not in ran.out + ran.err


@pytest.mark.usefixtures("evil")
def test_json_still_says_what_was_sent(cli: Cli) -> None:
    first, second = cli("peek", "jobs", "--json").rows
    assert (first["body"], first["key"], first["headers"]) == (EVIL, EVIL, {"h": EVIL})
    assert second["body"] == {EVIL: [EVIL]}


@pytest.mark.parametrize("mode", [[], ["--json"]])
def test_listen_shows_keys_printably(
    bucket: Bucket, environment: dict[str, str], folder: Path, mode: list[str]
) -> None:
    with running(["listen", "--forward-to", "http://127.0.0.1:9/", *mode], environment, folder) as listening:
        listening.said("forwarding to") if not mode else listening.row()
        bucket.trigger(f"a/{C1}{BIDI}")
        line = listening.line()
    assert "\\u202e" in line
    assert [raw for raw in RAW if raw in line] == []


@pytest.mark.parametrize("as_json", [False, True])
def test_route_shows_reasons_printably(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    post = RoutedPost(id=EVIL, revision=1, outcome="flagged/", placed="moved", reason=EVIL)
    _teller(as_json=as_json)(post)
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "\\u202e" in out
    assert [raw for raw in RAW if raw in out] == []


@pytest.mark.parametrize("as_json", [False, True])
def test_errors_are_printable(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    tell("invalid", EVIL, as_json=as_json)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert [raw for raw in RAW if raw in err] == []


@pytest.mark.parametrize(
    "evil",
    [
        "no such key a\n  b\n  ^\nreceipt  forged",
        "filter, line 1\n  a\n  ^\nreceipt  forged\nreceipt  forged",
        "filter, line 1\nreceipt  forged\n  ^\nhint",
        "x\n^",
        "x\r^\rreceipt  forged",
        "x\v^\freceipt  forged\x85^\u2028receipt",
    ],
)
def test_a_caret_in_somebody_elses_text_makes_no_lines(capsys: pytest.CaptureFixture[str], evil: str) -> None:
    for as_json in (False, True):
        tell("invalid", evil, as_json=as_json)
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and len(err.splitlines()) == 1, err


def test_an_error_in_a_filter_keeps_its_caret_under_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid) as wrong:
        parse('size LIKE "a"\x1b[2J')
    tell("invalid", str(wrong.value), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and lines[2].strip() == "^" and "\x1b" not in "".join(lines)


def test_a_usage_error_is_printable(cli: Cli) -> None:
    ran = cli("peek", f"jobs{CLIPBOARD}{C1}", f"--limit={CLEAR}")
    assert ran.code == 2 and "\x1b" not in ran.err and "\x9b" not in ran.err


def test_log_lines_are_printable_and_cannot_be_forged() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("bucketmq", logging.WARNING, "", 1, "topic %s", (EVIL,), sys.exc_info())
    first, *rest = LogLines().format(record).splitlines()
    assert first.endswith("forged") and "WARNING topic a\\u001b]52" in first
    assert rest[0].startswith("Traceback")
    assert [raw for raw in RAW[:-2] if raw in "\n".join((first, *rest))] == []


def test_an_object_is_raw_on_a_pipe_and_printable_on_a_terminal(terminal: Terminal, cli: Cli, bucket: Bucket) -> None:
    bucket.put("text", EVIL.encode())
    bucket.put("bytes", b"\xff\xfe\x1b]52;c;x\x07")
    assert cli("get", "text").out.encode() == EVIL.encode()
    shown = terminal("get", "text")
    assert "\\u001b]52" in shown.out and "\nreceipt  forged" in shown.out  # the object's own lines stay lines
    assert [raw for raw in RAW[:-2] if raw in shown.out] == []
    refused = terminal("get", "bytes")
    assert (refused.code, "--output FILE" in refused.out, "\x1b]" in refused.out) == (2, True, False)


@pytest.mark.parametrize("code_point", [*range(0x20), 0x7F, *range(0x80, 0xA0)])
def test_every_control_character_is_escaped_and_json_reads_it_back(code_point: int) -> None:
    character = chr(code_point)
    if character != "\t":
        assert printable(f"a{character}b").isprintable()
    assert json.loads(printable(json.dumps(f"a{character}b", ensure_ascii=False))) == f"a{character}b"


def test_what_people_write_stays_as_it_is() -> None:
    text = 'größer 日本語 עברית العربية 👩‍💻 \\n "quoted"\ttab'
    assert printable(text) == text


PACKAGE = Path(str(bucketmq.__file__)).parent
WRITERS = {"cli/output.py", "cli/exits.py", "cli/__init__.py"}
"""Where the streams are written to. `__init__` prints one line of its own when a package is missing."""


def test_everything_is_printed_in_one_place() -> None:
    """No other module writes to a stream by itself: neither a verb nor what an application's verb calls."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).as_posix() not in WRITERS]
    assert len(paths) > 300
    for path in paths:
        nothing_is_printed_by(path)


def nothing_is_printed_by(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Name(id="print" | "Console")):
                raise AssertionError(f"{path.name}:{node.lineno} prints by itself; use bucketmq.cli.output")
            case ast.Call(func=ast.Attribute(attr="write" | "writelines", value=target)):
                assert not {"stdout", "stderr"} & {*ast.unparse(target).split(".")}, (
                    f"{path.name}:{node.lineno}: use bucketmq.cli.output"
                )
            case ast.Call(func=ast.Attribute(attr="echo" | "secho")):
                raise AssertionError(f"{path.name}:{node.lineno} prints by itself; use bucketmq.cli.output")


def test_the_test_above_would_notice(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("import sys\nsys.stdout.buffer.write(b'x')\n")
    with pytest.raises(AssertionError, match=r"x\.py:2"):
        nothing_is_printed_by(tmp_path / "x.py")


def test_progress_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen: Any = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    output.errors().print(EVIL, markup=False)
    assert [raw for raw in RAW[:-2] if raw in screen.getvalue()] == []
