"""Chores are tested on the same session as the connector."""

from spark.conftest import failing, inbox, java_here, plain_inbox, spark

__all__ = ["failing", "inbox", "java_here", "plain_inbox", "spark"]
