"""`python -m bench.soak`: the command, or one of its players."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        from bench.soak.player import play

        play(*sys.argv[2:])
    else:
        from bench.soak.command import run

        sys.exit(run(sys.argv[1:]))
