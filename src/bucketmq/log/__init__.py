"""How bytes lie: names of objects, and values as NDJSON and JSON. Pure; `docs/format.md` is its normative text."""
