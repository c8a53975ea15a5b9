"""Benchmarks: how fast, how many requests, how many bytes, beside the single-JSON queue in the same run.

`make bench` and `python -m bench` call `main_run`. Nothing here is a test: no number decides anything, targets are only
printed beside what was measured. What is deterministic (requests, bytes) is asserted in the tests, not here.

```
command    arguments, which scenarios, output          sizes      how much of everything
throughput one sender, one receiver, on a real store   depth      ours and the peer at growing depth
contention many senders, many workers, S3's latency    upkeep     a million segments, memory, idle polling
tactics    what each tactic against contention is worth, on virtual time: `python -m bench.tactics`
children   what runs in processes of its own           payload    the bodies that are sent
single_json  the peer                                  latency    a store with S3's latency, counted
results table plot machine                             backlog    deep queues, quickly

reception  notifications into the log, over HTTP       serving    the server and a busy client
webhooks   a rule's events to an endpoint              sink       the endpoint
sweeping   the sweep and the bare listing              happenings the events
matching   a hundred rules

spark/     the Spark connector, a command of its own: `make bench-spark`
soak/      an hour of kills, freezes and cuts, and the audit: `make soak`
```
"""

from __future__ import annotations


def main_run(args: list[str]) -> int:
    """Run the benchmarks that `args` name; the exit code is 0 unless a scenario broke. See `--help`."""
    from bench.command import run

    return run(args)
