"""The soak sees what it is there to see, and holds at a small scale."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from server.running import until

from bench.soak import command
from bench.soak.audit import audit
from bench.soak.player import Pace
from bench.soak.samples import Samples
from bucketmq.errors import Unsupported
from bucketmq.testing.servers import skip_or_fail
from bucketmq.testing.tormented import Stage

WELL = ["try a,b,c", "sent a,b,c", "got a,b,c", "bury c", "buried c", "ack a,b", "ok a,b", "put e1", "seen e1"]


def found(folder: Path, *lines: str, dead: list[str]) -> list[str]:
    (folder / "all.ledger").write_text("".join(f"{line}\n" for line in lines))
    return audit(folder, dead)[0]


def test_ledgers_that_agree_are_in_order(tmp_path: Path) -> None:
    assert found(tmp_path, *WELL, dead=["c"]) == []


@pytest.mark.parametrize(
    ("more", "dead", "seen"),
    [
        (["try d", "sent d"], ["c"], "LOST"),
        (["try d", "sent d", "got d"], ["c"], "LOST"),
        (["got d", "ack d"], ["c"], "PHANTOM"),
        (["ok a"], ["c"], "SETTLED TWICE"),
        ([], ["c", "c"], "DEAD TWICE"),
        ([], ["a", "c"], "ACKNOWLEDGED AND DEAD"),
        ([], [], "BURIED"),
        (["try d", "sent d", "got d"], ["c", "d"], "DEAD though"),
        (["put e2"], ["c"], "CHANGE LOST"),
    ],
)
def test_a_broken_promise_is_seen_in_the_ledgers(tmp_path: Path, more: list[str], dead: list[str], seen: str) -> None:
    problems = found(tmp_path, *WELL, *more, dead=dead)

    assert any(problem.startswith(seen) for problem in problems), problems


def test_what_grows_is_seen_and_what_is_level_is_not() -> None:
    samples = Samples()
    for number in range(40):
        samples.add("objects", 1_000 + 100 * number)
        samples.add("rss_mb worker", 60 + number % 3)
        samples.add("rss_mb watcher", 60 + 5 * number)

    assert [problem.split(" grows")[0] for problem in samples.growing()] == ["objects"]
    samples.add("rss_mb watcher", 1_000)
    assert [problem.split(" grows")[0] for problem in samples.growing()] == ["rss_mb watcher", "objects"]


def test_who_takes_over_makes_up_for_what_was_missed_at_twice_the_rate() -> None:
    behind, in_time = Pace(100.0, behind=1_000.0), Pace(100.0, behind=0.0)

    assert behind.pause_seconds(50) == 0.25
    assert 0.25 < in_time.pause_seconds(50) <= 0.5


def test_one_process_of_each_role_lives_through_all_strikes(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1, lambda *_: ["sleep", "60"])
    old, young = stage.start("worker", spared=True), stage.start("worker")
    try:
        for _ in range(20):
            stage.strike()
            stage.wake()
        assert old.is_alive and not young.is_alive
        assert stage.did["killed worker"] and stage.did["froze"]
    finally:
        stage.stop()


def test_players_end_when_their_director_is_killed(tmp_path: Path) -> None:
    ledger = tmp_path / "worker1.ledger"
    player = [sys.executable, "-m", "bench.soak", "play", "worker", f"file://{tmp_path}/b", str(ledger), "0", "0"]
    program = f"import subprocess; print(subprocess.Popen({player!r}).pid, flush=True); input()"
    director = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(command.__file__).parents[2],
    )
    assert director.stdout is not None
    pid = int(director.stdout.readline())
    descriptor = os.pidfd_open(pid)
    try:
        until(ledger.exists)
        director.kill()
        director.communicate()
        assert select.select([descriptor], [], [], 20)[0], "it has ended"
    finally:
        os.close(descriptor)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("processes")
def test_half_a_minute_of_kills_freezes_and_cuts_breaks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = command.run(["--minutes", "0.5", "--json"])
    except Unsupported as error:
        skip_or_fail(error)
    told = json.loads(capsys.readouterr().out)

    assert code == 0, told
    for place in ("folder", "SeaweedFS"):
        assert told[place]["sent"] > 500 and told[place]["changes"] > 20
        assert told[place]["disturbed"]["froze"]
