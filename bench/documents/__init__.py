"""Benchmarks of the documents: a search over many chunks beside bare libraries, and where indexing takes its time.

`python -m bench.documents` calls `command.run`.

```
command   arguments, which scenarios, output      sizes   how much of everything
search    a warm query, loading, a refresh        index   documents through the stages, one after the other
quality   nDCG of a collection with answers: `python -m bench.documents.quality CORPUS QUERIES`, by itself
```
"""
