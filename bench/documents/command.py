"""The command: which scenarios, at which size, and where the results go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench import suite
from bench.documents import index, search, sizes
from bench.documents.sizes import Sizes
from bench.results import Measurement

Scenario = Callable[[Sizes], Iterator[Measurement]]

SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "search": (search.beside_the_libraries, "a warm query over many chunks, beside bare NumPy and bm25s"),
    "lance": (search.in_lance, "the same chunks as a copy in Lance, beside the exact search"),
    "index": (index.by_stage, "documents through the stages: where the time goes; pages of PDF a second"),
}


def run(args: list[str]) -> int:
    """Run what `args` name; the exit code is 0 unless a scenario broke."""
    made = suite.parser(
        "python -m bench.documents",
        "Measure searching and indexing documents.",
        {name: text for name, (_, text) in SCENARIOS.items()},
        sizes.ALL,
        note=".",
        quick="about a minute",
    )
    options = made.parse_args(args)
    return suite.run(options, SCENARIOS, suite.amounts_of(options, sizes.ALL), "documents")
