"""Benchmarks of the Spark connector: beside Spark's own file streams, on the same rows, in the same run.

`make bench-spark` and `python -m bench.spark` call `command.run`. What is compared takes turns, round
by round, and each round gives a ratio of its own: whatever else the machine does slows all of them alike.

```
command   arguments, which scenarios, output      sizes     how much of everything
reading   the source and Spark's file sources     writing   the sink and Spark's file sinks
fixed     a micro-batch of almost nothing         segments  many tiny segments and a few large ones
requests  counted, without Spark                  plot      a picture of it all
rows      the rows, in every format               queries   running streams and timing them
```
"""
