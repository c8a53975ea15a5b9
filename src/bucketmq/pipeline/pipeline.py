"""A pipeline: stages joined between a source and its targets. A value; importing it needs neither PySpark nor a JVM.

`spark.running.run.start` runs it as a stream on Spark; `watcher` makes it a handler of changes or messages, one or
some at a time, with the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.pipeline.chain import Chain
from bucketmq.pipeline.ends import (
    FromEvents,
    FromTable,
    Source,
    Target,
    ToQueue,
    ToTable,
    dead_letters_of,
    is_following,
)
from bucketmq.pipeline.shape import CheckKeys, shape_stage
from bucketmq.pipeline.stages import Stage
from bucketmq.queue.settings import check_name


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """What is read, what is done to it, where it goes: to one `target`, or to several `targets`, each with a `where`.

    Exactly once into queues; at least once and idempotent into objects and tables. A row that fails becomes a dead
    letter of the queue it came from, with the pipeline's name as the subscription it died in: `bucketmq dead` shows
    it, and `bucketmq redrive` sends it to this pipeline again. The rest of its batch goes on.

    `Invalid` if a stage cannot take what comes before it: the columns are compared when the pipeline is made.
    """

    name: str
    source: Source
    stages: tuple[Stage, ...] = ()
    target: Target | None = None
    targets: tuple[Target, ...] = ()
    about: str = ""
    """One line for people: what it is for."""
    task_rows: int | None = None
    """So many rows are worth a task of their own, where a row takes long. Otherwise tasks are cut by bytes. Without
    Spark so many go through the stages at a time."""

    def __post_init__(self) -> None:
        check_name(self.name, "pipeline name")
        if self.task_rows is not None and self.task_rows < 1:
            raise Invalid(f"pipeline {self.name!r}: task_rows must be 1 or more, not {self.task_rows}")
        if not isinstance(self.stages, tuple) or not all(isinstance(each, Stage) for each in self.stages):
            raise Invalid(f"pipeline {self.name!r}: stages must be a tuple of stages; decorate functions with @stage")
        if sum(each.keyed is not None or each.is_frame for each in self.stages) > 1:
            raise Invalid(
                f"pipeline {self.name!r} has several stages with a key or of a DataFrame; one is the most: make it two "
                "pipelines"
            )
        columns, before = self.source.columns, "the source"
        for each in self.stages:
            each.check_follows(before, columns)
            columns, before = each.after(columns), f"stage {each.name!r}"
        if (self.target is None) == (not self.targets):
            raise Invalid(f"pipeline {self.name!r} needs a target, or a tuple of targets, and not both")
        if not isinstance(self.targets, tuple) or not all(isinstance(each, Target) for each in self.outputs):
            raise Invalid(f"pipeline {self.name!r}: targets must be a tuple of ToQueue, ToObjects, ToTable, ...")
        if any(self._feeds_itself(each) for each in self.outputs):
            raise Invalid(
                f"pipeline {self.name!r} writes into the queue that it reads, so it would never end; choose "
                "another queue"
            )
        if self.follows and not isinstance(self.source, FromEvents):
            raise Invalid(f"pipeline {self.name!r}: a target follows objects, so the source must be FromEvents")
        if self.follows and any(each.keyed is not None or each.is_frame for each in self.stages):
            raise Invalid(
                f"pipeline {self.name!r}: what a stage with a key or of a DataFrame makes is of many objects; leave "
                "follows out"
            )

    @property
    def outputs(self) -> tuple[Target, ...]:
        """Where rows go: all targets, however they were given."""
        return self.targets if self.target is None else (self.target,)

    def _feeds_itself(self, target: Target) -> bool:
        if not isinstance(target, ToQueue) or target.bucket is not None or target.where is not None:
            return False  # with a condition it may well end
        return not isinstance(self.source, FromTable) and target.queue == self.source.log

    @property
    def follows(self) -> bool:
        """Whether a target follows the source objects."""
        return any(map(is_following, self.outputs))

    @property
    def gives(self) -> str:
        """The columns that come out of the last stage: what it gives, or what came in and what stages added."""
        columns = self.source.columns
        for each in self.stages:
            columns = each.after(columns)
        return columns

    @property
    def dead_letters(self) -> str:
        """The queue whose dead letters the failing rows become: `<queue>.dead`."""
        return self.name if isinstance(self.source, FromTable) else dead_letters_of(self.source.log)

    def chain(self, check_keys: CheckKeys | None = None) -> Chain:
        """All that is done to rows, as one: the stages, and their results brought into the shape of all targets.

        `check_keys` asks the store about keys of objects, where there is one, so that a row of which no object can be
        made fails here and not when it is written.

        `Invalid` if the target cannot take what the last stage gives.
        """
        return Chain((*self.stages, shape_stage(self.outputs, self.gives, check_keys)))

    def watcher(self, bucket: Any) -> Callable[[Any], Any]:
        """A handler that runs the pipeline without Spark, on changes (a source of events) or messages (a queue).

        ```python
        bucket.watch(pipeline.source.filter, name=pipeline.name, batch=100)(pipeline.watcher(bucket))
        bucket.queue("posts").run(pipeline.watcher(bucket))
        ```

        Given one it returns what becomes of it; given a list, as with `batch=`, what becomes of each. Those are written
        together: one commit for each table, one send for each queue. Where a stage keeps state, and where time is up
        after some seconds, it gives back what it has not begun.

        For a source of sets, it is run on the queue that `source.gather(bucket)` has them sent to.
        """
        from bucketmq.pipeline.watcher import Handler

        if isinstance(self.source, FromTable) or any(isinstance(each, ToTable) for each in self.outputs):
            raise Invalid(f"pipeline {self.name!r} reads or writes a table, which needs Spark; start it there")
        if any(each.is_frame for each in self.stages):
            raise Invalid(f"pipeline {self.name!r} has a stage of a DataFrame, which needs Spark; start it there")
        return Handler(self.name, self.source, self.chain, self.outputs, bucket, task_rows=self.task_rows)
