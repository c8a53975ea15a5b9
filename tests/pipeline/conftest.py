"""Pipelines are tested with and without Spark."""

from spark.conftest import failing, inbox, java_here, plain_inbox, spark

__all__ = ["failing", "inbox", "java_here", "plain_inbox", "spark"]
