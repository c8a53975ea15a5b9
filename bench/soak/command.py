"""The command: how long, how much, and where."""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench import places
from bench.soak.site import Site
from bucketmq.testing import servers
from bucketmq.testing.proxy import FaultyProxy

CUT_CHANCE = 0.002
"""How likely the proxy is to cut, delay or half-close a connection, for each piece that passes it."""

TICK_SECONDS = 0.1
TELL_SECONDS = 60.0
MESSAGES_AN_HOUR = 1_000_000
CHANGES_AN_HOUR = 100_000


def run(args: list[str]) -> int:
    """Soak; the exit code is 0 if every promise held."""
    options = _parser().parse_args(args)
    seconds = options.minutes * 60
    messages = options.messages or round(MESSAGES_AN_HOUR * seconds / 3600)
    changes = options.changes or round(CHANGES_AN_HOUR * seconds / 3600)
    began = time.monotonic()
    with places.folder() as work, _sites(options.places, work, options.seed) as sites, _ended_by_signal():
        try:
            for site in sites:
                site.begin(messages // len(sites), changes // len(sites), seconds)
            _disturb(sites, seconds)
            found = {site.name: site.finish() for site in sites}
        finally:
            for site in sites:
                site.stage.stop()
    _tell(found, options.json)
    used, took = _cpu_seconds(), time.monotonic() - began
    print(f"{used:.0f} s of CPU in {took:.0f} s, the stores' included: {used / took:.0%} of a core", file=sys.stderr)
    return int(any(problems for problems, _ in found.values()))


def _disturb(sites: list[Site], seconds: float) -> None:
    pause = (0.5, 1.5) if seconds < 300 else (2.0, 12.0)
    began = told_at = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        for site in sites:
            site.tick(pause_seconds=pause)
        if now - told_at >= TELL_SECONDS:
            told_at = now
            for site in sites:
                print(f"{(now - began) / 60:5.1f} min  {site.progress()}", file=sys.stderr, flush=True)
        time.sleep(TICK_SECONDS)


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """SIGTERM ends servers and players, too, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _cpu_seconds() -> float:
    """Of this process and all that it has started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _tell(found: dict[str, tuple[list[str], dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: {**figures, "problems": problems} for name, (problems, figures) in found.items()}))
        return
    for name, (problems, figures) in found.items():
        print(f"{name}:")
        for what, value in figures.items():
            for line in value.items() if what == "samples" else [(what, value)]:
                print(f"  {line[0]:<28}{line[1]}")
        for problem in problems:
            print(f"  BROKEN: {problem}")
        print("  every promise held" if not problems else f"  {len(problems)} promises were broken")


@contextlib.contextmanager
def _sites(chosen: list[str], work: Path, seed: int) -> Iterator[list[Site]]:
    with contextlib.ExitStack() as stack:
        sites = []
        if "folder" in chosen:
            folder = work / "bucket"
            sites.append(Site("folder", folder.as_uri(), work / "folder-ledgers", seed=seed, folder=folder))
        if "seaweedfs" in chosen:
            url = stack.enter_context(servers.seaweedfs()) + "&timeout=5&connect_timeout=2"
            endpoint = parse_qs(urlsplit(url).query)["endpoint"][0]
            port = int(endpoint.rsplit(":", 1)[1])
            proxy = stack.enter_context(FaultyProxy("127.0.0.1", port, seed=seed, chance=CUT_CHANCE))
            through = url.replace(endpoint, f"http://127.0.0.1:{proxy.port}")
            sites.append(Site("SeaweedFS", url, work / "seaweedfs-ledgers", seed=seed + 1, through=through))
            sites[-1].proxy = proxy
        yield sites


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("python -m bench.soak", description=__doc__)
    made.add_argument("--minutes", type=float, default=60.0, help="how long they are disturbed (default: 60)")
    made.add_argument("--messages", type=int, help="sent in that time, about (default: a million an hour)")
    made.add_argument("--changes", type=int, help="of objects, in that time (default: 100,000 an hour)")
    made.add_argument("--places", nargs="+", choices=("folder", "seaweedfs"), default=["folder", "seaweedfs"])
    made.add_argument("--seed", type=int, default=1, help="of kills, freezes and cuts")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made
