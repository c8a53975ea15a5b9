"""Running an agent from the command line: its bucket opened and closed, its log on standard error."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from bucketmq import aio
from bucketmq.cli.options import PROBE_VARIABLE
from bucketmq.cli.serve import NEEDED
from bucketmq.cli.worker import log_to_stderr
from bucketmq.errors import Unsupported


def run_agent(url: str, work: Callable[[aio.Bucket], Awaitable[None]]) -> None:
    """Do it on the bucket, and close that in the end."""
    log_to_stderr()
    logging.getLogger("bucketmq").setLevel(logging.INFO)

    async def main() -> None:
        probe = os.environ.get(PROBE_VARIABLE, "on").lower() not in ("off", "0", "false", "no")
        async with aio.connect(url, probe=probe) as bucket:
            await work(bucket)

    try:
        asyncio.run(main())
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise Unsupported(f"this needs the package {error.name}; run: pip install 'bucketmq[server]'") from None
