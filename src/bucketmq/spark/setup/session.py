"""A Spark session with settings that fit where it runs: a laptop's for local masters, a cluster's own elsewhere.

A session that is there already, and whatever `spark-submit` set up, is taken as it is. Spark's JVM prints a lot, some
of it to standard output; one that is started here prints into a log file, or to standard error where that is asked
for. What runs in the session belongs elsewhere.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from platformdirs import user_cache_path, user_state_path

from bucketmq.errors import Invalid, Unavailable, Unsupported
from bucketmq.spark.setup import APP, java, private
from bucketmq.spark.setup.interpreter import VARIABLE, is_local, use_this_python
from bucketmq.spark.setup.package import package_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores; a task is tried four times, as on a cluster. Plain local[*] gives a query up at the first failure."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by `spark-submit` for the Python program that it starts."""

LEVELS = ("ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF")

MEMORY_BYTES_MIN, MEMORY_BYTES_MAX = 1 << 30, 4 << 30

SOCKET_PATH_MAX = 103
"""What every Unix takes for the path of a socket; Linux takes four bytes more."""

REMOTE = "sc://"
REMOTE_PORT = 15002
"""Where a Spark Connect server listens if its address does not say."""
REMOTE_SECONDS_MAX = 10.0

NEEDED = ("pyspark", "pyarrow", "pandas", "xxhash")

_SAYS_NOTHING = re.compile(r"spark-class|^Error: (Could not create the Java|A fatal exception)")
"""Spark's script stumbles over what Java did not print, and Java ends with two lines that are always the same."""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def session(
    master: str | None = None,
    conf: Mapping[str, str] = NO_SETTINGS,
    *,
    name: str = "bucketmq",
    log_level: str | None = None,
) -> SparkSession:
    """The session that is there, or a new one on `master`: this machine, a cluster, or a Spark Connect server.

    `conf` wins over the settings chosen here. A cluster is sent this package (as by `--py-files`). With `log_level`
    ("WARN", "INFO", ...) Spark's log goes to standard error, otherwise to the file `log_file(name)`. Starting one
    takes seconds, and half a minute on a cluster.
    """
    for needed in NEEDED:  # PySpark itself misses the others only when a query runs
        if importlib.util.find_spec(needed) is None:
            raise Unsupported(f"Spark needs the package {needed}; run: pip install 'bucketmq[spark]'")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if log_level is not None and log_level.upper() not in LEVELS:
        raise Invalid(f"{log_level!r} is not a level of Spark's log; there are {', '.join(LEVELS)}")
    made: SparkSession
    there = SparkContext._active_spark_context
    if there is not None:
        _check_master(master, there.master, "there is a Spark session already")
        made = _apply(SparkSession.builder, conf).getOrCreate()
    elif SUBMITTED in os.environ:
        _check_master(master, None, "spark-submit started this program")
        made = _apply(SparkSession.builder.appName(name), conf).getOrCreate()
    elif (master or os.environ.get("SPARK_REMOTE") or "").startswith(REMOTE):
        remote = master or os.environ["SPARK_REMOTE"]
        _check_remote(remote)
        made = _apply(SparkSession.builder.remote(remote), conf).getOrCreate()
        return made
    else:
        made = _start(SparkSession, master or LOCAL, conf, name, log_level)
    use_this_python(made)
    if log_level is not None:
        made.sparkContext.setLogLevel(log_level.upper())
    return made


def is_there() -> bool:
    """Whether this process has a session already. Imports no PySpark."""
    module = sys.modules.get("pyspark")
    return module is not None and module.SparkContext._active_spark_context is not None


def log_file(name: str) -> Path:
    """Where a session of this name that was started here writes Spark's log; emptied when it starts."""
    return private(user_state_path(APP) / "logs") / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}.log"


def local_settings() -> dict[str, str]:
    """What suits one machine. Measured: the fixed cost of a small batch falls from 170 to 105 ms, and what Spark itself
    takes to get rows from Python by a fifth."""
    return {
        **_socket_settings(),
        "spark.driver.memory": f"{_memory_bytes() >> 20}m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        # The other one forks a process for every link it looks at, where Hadoop's native library is missing.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


def _socket_settings() -> dict[str, str]:
    """Let rows go between the JVM and Python through sockets that are files, not through the network."""
    folder = _socket_folder() if hasattr(socket, "AF_UNIX") else None
    if folder is None:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


@functools.cache
def _socket_folder() -> str | None:
    """A folder that is closed to others, and goes with this process: Spark leaves its sockets lying there. None where
    their names would be too long."""
    folder = tempfile.mkdtemp(prefix="bmq-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    spark_names_them = f"/.{'0' * 36}.sock"
    return folder if len(os.fsencode(folder + spark_names_them)) <= SOCKET_PATH_MAX else None


def _memory_bytes() -> int:
    """A quarter of the machine's for the JVM: Python's workers need as much again."""
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return MEMORY_BYTES_MIN
    return max(MEMORY_BYTES_MIN, min(there // 4, MEMORY_BYTES_MAX))


def _start(session_class: Any, master: str, conf: Mapping[str, str], name: str, log_level: str | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext

    settings = {"spark.ui.showConsoleProgress": "false"}
    if is_local(master):
        settings |= local_settings()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark listens on the network
        os.environ.setdefault(VARIABLE, sys.executable)  # the JVM looks there for data sources it does not know
    if "spark.pyspark.python" in conf:  # only spark-submit reads this setting
        os.environ[VARIABLE] = conf["spark.pyspark.python"]
    settings |= {"spark.log.level": (log_level or "WARN").upper(), **conf}
    if not is_local(master):
        settings["spark.submit.pyFiles"] = _shipped(conf.get("spark.submit.pyFiles", ""))
    made = SparkConf().setMaster(master).setAppName(name).setAll(list(settings.items()))
    # Where a session was there and stopped, its JVM is used again.
    gateway = _launch(made, name, log_level) if SparkContext._gateway is None else None
    try:
        SparkContext(conf=made, gateway=gateway)
        found: SparkSession = session_class.builder.config(conf=made).getOrCreate()
    except Exception as error:
        if "stopped SparkContext" in str(error):
            raise Unavailable(_stopped(name, master)) from error
        raise
    return found


def _check_remote(remote: str) -> None:
    """`Unavailable` if nothing listens there: Spark's client retries for ten minutes, and cannot be interrupted."""
    if urllib.request.getproxies():
        return  # the client goes through the proxy, and what is behind it cannot be seen from here
    try:
        server = urlsplit(remote.partition(";")[0])
        host, port = server.hostname, server.port or REMOTE_PORT
    except ValueError as error:
        raise Invalid(f"{remote!r} is not an address of a Spark Connect server: {error}") from None
    if not host:
        raise Invalid(f"{remote!r} is not an address of a Spark Connect server; write sc://host:{REMOTE_PORT}")
    try:
        socket.create_connection((host, port), REMOTE_SECONDS_MAX).close()
    except OSError as error:
        raise Unavailable(f"no Spark Connect server at {host}:{port}: {error.strerror or error}") from error


def _shipped(given: str) -> str:
    """What executors are sent: this package, in the version that the driver has, and what the user adds.

    Streams are planned in a process beside the driver with the executors' Python, to which Spark sends nothing.
    """
    files = [str(package_once(private(user_cache_path(APP) / "shipped"))), *(each for each in given.split(",") if each)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*files, *filter(None, [os.environ.get("PYTHONPATH")])])
    return ",".join(files)


def _launch(conf: Any, name: str, log_level: str | None) -> Any:
    """Start the JVM. Nothing of what it prints may get into standard output, which is for data."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway
    java.find().use(os.environ)
    if log_level is not None:
        return launch(conf, {"stdout": sys.stderr.fileno()})
    path = log_file(name)
    with path.open("wb") as output:
        try:
            return launch(conf, {"stdout": output, "stderr": output})
        except PySparkRuntimeError as error:
            raise Unsupported(f"Spark's JVM did not start: {_last_words(path)} (all it said is in {path})") from error


def _last_words(path: Path) -> str:
    """Why a JVM ended: its exception, or the last line that says more than that it ended."""
    lines = path.read_text(errors="replace").strip().splitlines()
    for line in lines:
        thrown = re.match(r'Exception in thread "main" (?:[\w.$]+: )?(.+)', line)
        if thrown:
            return thrown[1][:500]
    own = [line for line in lines if not _SAYS_NOTHING.search(line)]
    return own[-1][:500] if own else "it said nothing"


def _stopped(name: str, master: str) -> str:
    """Why Spark gave up while it was started, which only its log tells: a master that is not there, for instance."""
    path = log_file(name)
    told = path.read_text(errors="replace") if path.exists() else ""
    reasons = re.findall(r" ERROR .*Reason: (.+)", told)
    return f"Spark stopped while it was started on {master}: {reasons[-1] if reasons else 'see its log'} ({path})"


def _apply(builder: Any, conf: Mapping[str, str]) -> Any:
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def _check_master(wanted: str | None, there: str | None, why: str) -> None:
    if wanted is not None and wanted != there:
        on = f" on {there}" if there else ""
        raise Invalid(f"{why}{on}, so its master cannot be {wanted}: leave the master out")
