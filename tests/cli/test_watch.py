"""watch: the handlers of a module, plain and async, by name, and SIGTERM."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from bucketmq.client import Bucket
from cli.ran import Shell
from cli.running import running

AGENTS = """
import os, pathlib, time
import bucketmq
from bucketmq import Bury

here = pathlib.Path(__file__).parent
bucket = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False)

@bucket.watch('WHERE `key` REGEXP "^pending/[a-z]"', start="beginning")
async def route(change):
    record = await change.json()
    await change.move(("good/" if record["ok"] else "bad/") + change.name)

@bucket.watch('key LIKE "good/%"', start="beginning")
def greet(change):
    change.put("hello/" + change.name, "hello")

@bucket.watch('key LIKE "odd/%"', start="beginning", retry_seconds=())
def odd(change):
    if change.name == "buried":
        return Bury("not [wanted]")
    raise RuntimeError("always")

@bucket.when_all("left/{id}", "right/{id}", name="both", start="beginning")
def both(complete):
    bucket.put(f"both/{complete.values['id']}", "together")
"""

ASYNC = """
import os
import bucketmq.aio

events = bucketmq.aio.connect(os.environ["BUCKETMQ_URL"], probe=False)

@events.watch('key LIKE "pending/%"', start="beginning")
async def first(change):
    await change.move("done/" + change.name)

@events.watch('key LIKE "done/%"', start="beginning")
def second(change):
    change.put("seen/" + change.name, change.kind)
"""

SLOW = """
import os, pathlib, time
import bucketmq

here = pathlib.Path(__file__).parent
bucket = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False)

@bucket.watch("")
def slow(change):
    print("in hand", flush=True)
    while not (here / "finish").exists():
        time.sleep(0.02)
    (here / "finished").write_text(change.key)
"""


@pytest.fixture
def agents(folder: Path) -> Path:
    (folder / "agents.py").write_text(AGENTS)
    (folder / "async_agents.py").write_text(ASYNC)
    (folder / "slow_agents.py").write_text(SLOW)
    (folder / "nothing.py").write_text("import bucketmq\nbucket = None\n")
    return folder


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize("where", ["agents:bucket", "agents"])
def test_all_handlers_of_a_module_run(shell: Shell, bucket: Bucket, where: str) -> None:
    bucket.put("pending/a.json", {"ok": True})
    bucket.put("pending/b.json", {"ok": False})
    bucket.put("left/1", b"")
    bucket.put("right/1", b"")
    ran = shell(f"bucketmq watch {where} route --once && bucketmq watch {where} --once")
    assert ran.code == 0, ran
    assert bucket.get("hello/a.json").body == b"hello"
    assert bucket.look("bad/b.json") is not None
    assert bucket.look("both/1") is not None
    assert bucket.look("pending/a.json") is None
    assert 'route: WHERE `key` REGEXP "^pending/[a-z]"' in ran.err
    assert "route created pending/a.json done in " in ran.out
    assert "both left/1, right/1 done in " in ran.out


@pytest.mark.usefixtures("agents")
def test_each_change_is_a_json_line_with_what_became_of_it(shell: Shell, bucket: Bucket) -> None:
    bucket.put("odd/buried", b"")
    bucket.put("odd/failing", b"")
    ran = shell("bucketmq watch agents odd --once --json")
    rows = {row["key"]: row for row in ran.rows}
    assert (rows["odd/buried"]["outcome"], rows["odd/buried"]["reason"]) == ("bury", "not [wanted]")
    assert (rows["odd/failing"]["outcome"], rows["odd/failing"]["reason"]) == ("failed", "RuntimeError: always")
    assert rows["odd/failing"]["attempt"] == 1
    dead = shell("bucketmq rules dead odd --json")
    assert sorted(row["event"]["key"] for row in dead.rows) == ["odd/buried", "odd/failing"]


@pytest.mark.usefixtures("agents")
def test_an_async_bucket_runs_both_kinds_of_handlers(shell: Shell, bucket: Bucket) -> None:
    bucket.put("pending/a", b"1")
    ran = shell("bucketmq watch async_agents first --once && bucketmq watch async_agents:events second --once")
    assert ran.code == 0, ran
    assert bucket.get("seen/a").body == b"moved"


def test_sigterm_finishes_what_is_in_hand(bucket: Bucket, environment: dict[str, str], agents: Path) -> None:
    with running(["watch", "slow_agents"], environment, agents) as process:
        process.said("watching with 1 handler")
        bucket.put("a", b"1")
        assert process.line() == "in hand\n"
        process.process.send_signal(signal.SIGTERM)
        (agents / "finish").touch()
        out, err = process.process.communicate(timeout=60)
        assert process.process.returncode == 0, err
    assert (agents / "finished").read_text() == "a"
    assert "slow created a done" in out
    assert "1 change handled, 0 failed" in err


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("agents:nothing", "does not exist; buckets in it: bucket"),
        ("agents:route", "is function, no bucket"),
        ("nothing", "has 0 buckets"),
        ("missing", "there is no module 'missing'"),
        ("agents:", "is not module:bucket"),
        ("agents nobody", "there is no watcher 'nobody'"),
    ],
)
def test_what_cannot_be_found_is_a_usage_error(shell: Shell, args: str, told: str) -> None:
    ran = shell(f"bucketmq watch {args} --once")
    assert ran.code == 2, ran
    assert told in ran.err
