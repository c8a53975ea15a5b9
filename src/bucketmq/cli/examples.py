"""Examples in help texts, kept as data: a test runs each of them as it is printed."""

from __future__ import annotations

from rich.markup import escape

EXAMPLES: dict[str, tuple[str, ...]] = {}
"""Verb -> shell lines."""


def examples(verb: str, *lines: str) -> str:
    """The epilog of a verb's help."""
    EXAMPLES[verb] = lines
    return "[bold]Examples[/bold]\n\n" + "\n\n".join(f"  [cyan]{escape(line)}[/cyan]" for line in lines)
