"""How bytes lie: names of objects, and values as NDJSON and JSON. Pure; `docs/format` is its normative text."""
