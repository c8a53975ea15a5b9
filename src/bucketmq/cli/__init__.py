"""The command line, `bucketmq`: the verbs of queues and of the event bus, for people and for shell scripts.

One file for each group of verbs; a verb is a thin function that calls the blocking client and prints. Data goes to
standard output, everything else to standard error. What a verb does belongs in the library, not here.
"""

from __future__ import annotations

import sys

NEEDED = ("rich", "typer")


def main() -> None:
    """The entry point. Says so in one line when the extra that it needs is not installed."""
    try:
        from bucketmq.cli.app import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        sys.stderr.write(
            f"error (unsupported): the command line needs the package {error.name}; run: pip install 'bucketmq[cli]'\n"
        )
        sys.exit(1)
