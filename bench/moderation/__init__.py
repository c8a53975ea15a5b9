"""Benchmarks of the moderation pipeline: all its processes on a folder, from the submission of a post to its notice.

`make bench-moderation` and `python -m bench.moderation` call `command.run`. Cases (which classifier,
on how many cores) take turns, round by round, and each round gives a ratio of its own: whatever else the machine does
slows all of them alike.

```
command     arguments, which scenarios, output     sizes    how much of everything
classifier  the embedded model alone               whole    the cases, and what is said of them
routed      the router alone
running     one case: its processes, its posts     clients  posts over HTTP, at a rate or as fast as it goes
cpu         whose CPU seconds they were
```
"""
