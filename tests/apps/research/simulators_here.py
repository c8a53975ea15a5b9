"""Simulators for tests, most of them bad ones. Found by workers as `simulators_here:NAME`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = str(Path(__file__).parent)


def plain(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Something that can be said in advance."""
    return {"cost": parameters["x"] * 10 + seed % 5, "gain": -parameters["x"]}


def slow(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    time.sleep(parameters.get("seconds", 0.05))
    return plain(parameters, seed)


def partly(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Fails at one point."""
    if parameters["x"] == 3:
        raise ValueError(f"x is {parameters['x']}")
    return plain(parameters, seed)


def endless(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    while True:
        pass


def greedy(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    return {"cost": float(len(bytearray(4 << 30)))}


def chatty(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    while True:
        print("y" * 1000)


def talking(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    print("to the runner: {}")
    os.write(1, b"by the number\n")
    print("to nobody", file=sys.stderr)
    return {"cost": 1.0}


def forking(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Leaves a process behind that has left its session."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    return {"cost": float(child.pid)}


def leaving(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    os._exit(7)


def dying(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {"cost": 1.0}


def hanging_up(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Closes everything that is open, and goes on."""
    os.closerange(3, 1024)
    return endless(parameters, seed)


def exiting(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    sys.exit("enough")


def returning(parameters: Mapping[str, Any], seed: int) -> Any:
    """Whatever the parameter says."""
    found: dict[str, Any] = {
        "nothing": None,
        "a list": [1, 2],
        "no metrics": {},
        "text": {"cost": "1"},
        "truth": {"cost": True},
        "nan": {"cost": float("nan")},
        "inf": {"cost": float("-inf")},
        "another": {"price": 1.0},
        "odd names": {1: 1.0},
    }
    return found[parameters["what"]]
