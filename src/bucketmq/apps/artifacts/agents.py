"""The deploy agent as `bucketmq apps run artifacts` runs it: woken by events of pointers, and looking now and then."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

from bucketmq.apps.app import Agent, Here
from bucketmq.changes import Change
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.procedures.requests import Procedure

logger = logging.getLogger("bucketmq")


async def deploy(here: Here) -> None:
    """Deploy what the pointers of the environment say, until SIGTERM or SIGINT."""
    from bucketmq.apps.artifacts import places
    from bucketmq.apps.artifacts.deploy import Deployer
    from bucketmq.apps.artifacts.keyfiles import load_key
    from bucketmq.apps.artifacts.settings import ArtifactsSettings, plan_of, read_pin

    settings: ArtifactsSettings = here.settings
    if not settings.environment:
        logger.info("no environment was named, so nothing is deployed on this machine")
        here.ready("")
        await here.stopped()
        return
    loop = asyncio.get_running_loop()

    def run(procedure: Procedure[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(here.bucket.run(procedure), loop).result()

    plan = plan_of(settings)
    if not settings.key:
        raise Invalid("the deploy agent signs its reports: name a key with the role reports: --key FILE")
    signing = load_key(Path(settings.key))
    deployer = Deployer(here.bucket.api, run, plan, pin=read_pin(settings.trust), signing=signing)
    await asyncio.to_thread(deployer.check)
    one_at_a_time = threading.Lock()

    @here.bucket.watch(
        f'WHERE `key` LIKE "{places.ENV}{plan.environment}/%"',
        name=f"artifacts-{plan.environment}-{plan.agent}",
        gone="deliver",
        concurrency=1,
    )
    def obey(change: Change) -> None:
        where = places.pointed_at(change.key)
        if where is not None and where[0] == plan.environment:
            with one_at_a_time:
                deployer.deploy(where[1])

    def look() -> None:
        with one_at_a_time:
            deployer.look_at_all()

    async def now_and_then() -> None:
        while True:
            try:
                await asyncio.to_thread(look)
            except (BucketMQError, OSError) as error:
                logger.warning("could not look at the pointers of %s: %s", plan.environment, error)
            await asyncio.sleep(settings.look_seconds)

    looking = asyncio.create_task(now_and_then())
    here.ready("")
    try:
        await here.bucket.run_watchers()
    finally:
        looking.cancel()


DEPLOY = Agent(name="deploy", run=deploy, about="verifies, fetches and activates what the pointers here say")
