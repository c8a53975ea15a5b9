"""What is true of a table: its head, and what a commit makes of it. Pure: no clock, no chance, no I/O, no Arrow.

```python
from bucketmq.tables import Delete, Replace, Upsert

bucket.table("chunks").commit(Replace(rows, group="a.pdf"), Delete(["b.pdf"]))
```
"""

from bucketmq.tables.changes import Change, Delete, Replace, Upsert
from bucketmq.tables.head import Shape

__all__ = ["Change", "Delete", "Replace", "Shape", "Upsert"]
