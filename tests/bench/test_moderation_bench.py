"""The benchmark of moderation runs and says what it promises to say. No number is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from bench.moderation import cpu
from bench.moderation.command import run
from bench.moderation.lengths import LENGTHS, strung
from bench.moderation.routed import AT_A_TIME
from bench.moderation.running import Case, Took
from bench.moderation.whole import compared_rounds, quantile
from bucketmq.models import minilm


def test_the_classifier_alone_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "bench.json"
    code = run(["--size", "tiny", "--only", "classifier", "--json", str(file)])
    report = json.loads(file.read_text())
    assert code == 0, report["broken"]
    assert [each["unit"] for each in report["measurements"]] == ["s", "texts/s", "ms/text"]
    assert all(each["value"] > 0 for each in report["measurements"])
    assert "embedded model" in capsys.readouterr().out


def test_the_classifier_is_measured_by_length_beside_encoding_everything(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    if minilm.find() is None:
        pytest.skip("the weights of the second stage are not installed")
    file = tmp_path / "bench.json"
    code = run(["--size", "tiny", "--only", "lengths", "--json", str(file)])
    report = json.loads(file.read_text())
    assert code == 0, report["broken"]
    ours = [each for each in report["measurements"] if "ratio" in each]
    assert [each["what"] for each in ours] == [f"posts of {length} characters" for length in LENGTHS]
    assert len(report["measurements"]) == 2 * len(ours)


def test_the_router_alone_is_measured_by_how_many_posts_come_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    code = run(["--size", "tiny", "--only", "router", "--json", str(file)])
    report = json.loads(file.read_text())
    assert code == 0, report["broken"]
    assert len(report["measurements"]) == len(AT_A_TIME)
    assert all(each["value"] > 0 for each in report["measurements"])


def test_texts_are_as_long_as_they_are_said_to_be() -> None:
    assert {len(each) for each in strung(300, 12)} == {300}


def test_what_is_said_of_cases_is_said_of_the_same_round() -> None:
    def took(posts_per_second: float) -> Took:
        return Took(
            posts_per_second, {"router": 0.004}, {"submit until outcome": (0.1, 0.2, 0.9)}, load=posts_per_second
        )

    found = {
        Case("none", 1): [took(10), took(20)],
        Case("none", 2): [took(20), took(30)],
        Case("embedded", 2): [took(10), took(30)],
    }
    measurements = list(compared_rounds(found, per_second=5.0))
    said = {each.what: (each.runs, each.unit) for each in measurements}
    assert measurements[0].load == 20  # of that case, the higher one
    assert said["throughput, none, 2 cores"] == ((20, 30), "posts/s")
    assert said["cores in use, none, 1 core"] == ((0.04, 0.08), "cores")
    assert said["2 cores beside 1, none"] == ((2.0, 1.5), "×")
    assert said["embedded beside none, 2 cores"] == ((0.5, 1.0), "×")
    assert said["CPU of router, none, 1 core"] == ((4.0, 4.0), "ms/post")
    assert said["submit until outcome, p50 at 5 posts/s, none, 1 core"] == ((200.0, 200.0), "ms")
    assert said["submit until outcome, p99 at 5 posts/s, none, 1 core"] == ((900.0, 900.0), "ms")


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.995, 100), (1.0, 100)])
def test_a_quantile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert quantile(range(1, 101), share) == expected


BUSY = """
import subprocess, sys, time
burn = "import os, sys, time\\nwhile time.process_time() < 0.3: pass\\nos.write(1, b'done\\\\n')\\nsys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE)  # lives as long as we do
subprocess.run([sys.executable, "-c", burn], stdin=subprocess.DEVNULL)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_cpu_seconds_are_those_of_a_member_and_of_all_below_it() -> None:
    command: list[Any] = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdin is not None and member.stdout is not None
        before = cpu.spent({"driver": member.pid})
        assert [member.stdout.readline() for _ in range(2)] == ["done\n"] * 2
        used = cpu.between(before, cpu.spent({"driver": member.pid}))
        member.stdin.close()
    # The child that lives is a worker. The other may have been waited for by now, or not.
    assert used[cpu.WORKERS] >= 0.25
    assert used["driver"] + used[cpu.WORKERS] >= 0.5
    assert set(used) == {"driver", cpu.WORKERS, cpu.CLIENTS}
