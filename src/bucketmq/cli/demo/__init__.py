"""The verb demo: producers and workers in processes of their own, one killed, one frozen, and an honest account.

`plan` has the numbers, `process` is what each child runs, `crew` starts and ends them, `records` is what they leave
behind, `view` shows it while it happens on a screen, `account` adds up what became of
every message, `verb` ties them together.
"""

from bucketmq.cli.demo.verb import demo

__all__ = ["demo"]
