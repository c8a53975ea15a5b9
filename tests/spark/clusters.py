"""A real standalone cluster on this machine, from the pip package, and drivers as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bucketmq.spark.setup import java

DAEMON = "org.apache.spark.deploy"
START_SECONDS_MAX = 120.0

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live a minute: compiling well costs more than it brings, on two cores most of all."""

LIGHT = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
}
"""Settings for several JVMs on a small machine."""
DRIVER_SECONDS_MAX = 400.0


def conf_options(conf: Mapping[str, str]) -> list[str]:
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


class Cluster(msgspec.Struct, frozen=True):
    """A master with two workers of one core each."""

    master: str
    folder: Path


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def environment(**more: str) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    java.find().use(found)
    # Daemons and drivers are small here; without a limit each JVM would plan with a quarter of the machine.
    return {**found, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_NO_DAEMONIZE": "1", **more}


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """The two workers have different names for the same machine: Spark speculates on other hosts only."""
    with contextlib.ExitStack() as daemons:
        said = daemons.enter_context(_daemon("master.Master", ["--host", "127.0.0.1", *PORTS], folder / "master"))
        master = said.wait_for(r"Starting Spark master at (spark://\S+)")
        workers = []
        for host in ("127.0.0.1", "localhost"):
            work = folder / host
            work.mkdir(parents=True)
            options = ["--host", host, *PORTS, "--cores", "1", "--memory", "1g", "--work-dir", str(work), master]
            workers.append(daemons.enter_context(_daemon("worker.Worker", options, folder / f"worker-{host}")))
        for worker in workers:
            worker.wait_for("Successfully registered with master")
        yield Cluster(master, folder)


PORTS = ("--port", "0", "--webui-port", "0")


class _Said:
    """What a daemon writes into its log, waited for by reading it as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._drain = threading.Thread(target=self._read_on, daemon=True)

    def wait_for(self, pattern: str) -> str:
        """The first group of the pattern, or all of it; once."""
        assert self._process.stderr is not None
        timer = threading.Timer(START_SECONDS_MAX, self._process.kill)
        timer.start()
        try:
            for line in self._process.stderr:
                self._lines.append(line)
                found = re.search(pattern, line)
                if found:
                    self._drain.start()
                    return found[found.re.groups]
        finally:
            timer.cancel()
        raise AssertionError(f"{pattern!r} was not said, but:\n{''.join(self._lines)}")

    def _read_on(self) -> None:
        """Let the daemon go on talking: a full pipe would stop it."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)

    def close(self) -> None:
        """When the process has ended: its end of the pipe is closed, and reading ends."""
        if self._drain.ident is not None:
            self._drain.join(timeout=START_SECONDS_MAX)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextlib.contextmanager
def _daemon(kind: str, arguments: Sequence[str], local: Path) -> Iterator[_Said]:
    local.mkdir(parents=True)
    process = subprocess.Popen(
        [spark_home() / "bin" / "spark-class", f"{DAEMON}.{kind}", *arguments],
        env=environment(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=str(local)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # and its executors with it
    )
    said = _Said(process)
    try:
        yield said
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=START_SECONDS_MAX)
        said.close()


def bare_python(folder: Path) -> Path:
    """A Python with everything that bucketmq needs, and without bucketmq."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    import pyspark

    for each in Path(pyspark.__file__).parents[1].iterdir():
        if "bucketmq" not in each.name and not (packages / each.name).exists():
            (packages / each.name).symlink_to(each)
    python = folder / "bin" / "python"
    absent = subprocess.run([python, "-c", "import bucketmq"], capture_output=True, text=True, check=False, cwd=folder)
    assert "No module named 'bucketmq'" in absent.stderr
    return python


def run_driver(
    command: Sequence[str | Path], folder: Path, *, code: int = 0, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a driver to its end; what it wrote into `result.json`."""
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    done = subprocess.run(
        [*command],
        cwd=folder,
        env=environment(SPARK_LOCAL_IP="127.0.0.1", **(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=DRIVER_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    return found


PYTHON = sys.executable
