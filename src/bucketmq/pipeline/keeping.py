"""What a stage with a key keeps while a pipeline runs without Spark: its registers, and the keys that time out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bucketmq.errors import BucketMQError
from bucketmq.pipeline.chain import RAISED, Chain, error_text
from bucketmq.pipeline.intake import Bucket
from bucketmq.pipeline.registers import Memory, Registers, TimeoutFailed

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("bucketmq")


class Keeping:
    """The registers of the stage that keeps state, if there is one."""

    def __init__(self, name: str, here: Bucket, chain: Chain, write: Callable[[pa.RecordBatch], None]) -> None:
        self._here = here
        self._write = write
        keyed = [place for place, stage in enumerate(chain.stages) if stage.keyed is not None]
        self._registers = Registers(here.open, name, chain.stages[keyed[0]]) if keyed else None
        self._rest = Chain(chain.stages[keyed[0] + 1 :] if keyed else ())

    @property
    def keeps(self) -> bool:
        return self._registers is not None

    def memory(self, message: str) -> Memory | None:
        """What keeps the state while this message is handled."""
        registers = self._registers
        if registers is None:
            return None
        return lambda stage, name, key, batch: self._here.run(registers.apply(message, name, key, batch))

    def expire(self) -> None:
        """Write what comes of keys that timed out. One that cannot be written stays, and is tried again later."""
        registers = self._registers
        if registers is None:
            return
        while True:
            try:
                found = self._here.run(registers.next_expired())
            except TimeoutFailed as failed:  # no fault of the message that is handled
                if isinstance(failed.error, RAISED):
                    raise failed.error from None
                logger.error("action=timeout_failed key=%s %s", failed.key, error_text(registers.stage, failed.error))
                continue
            if found is None:
                return
            name, batch = found
            ran = self._rest.run(batch)
            lost = [*ran.failed, *(each.failed("comes back") for each in ran.put_off)]
            if lost:
                logger.error("action=timeout_failed register=%s %s", name, lost[0].error)
                self._here.run(registers.put_back(name))
                continue
            try:
                for passed in ran.passed:
                    self._write(passed.batch)
                self._here.run(registers.forget_expired(name))
            except BucketMQError:
                self._here.run(registers.put_back(name))
                raise
