"""The filter language of rules and watchers: ``WHERE `key` REGEXP "^pending/" AND size < 1000000``.

A superset of Tigris' language for notifications. `parse` makes a `Filter` of a text, or says where it is wrong;
`Filter.decide` says whether an event matches, or what has to be fetched to tell; `explain` and `why` are for people.

The language is described in `grammar` and its fields in `fields`. The way of a text: `lexer`, `parser` (a tree),
`normal` (a tree without NOT), `evaluate` (a function). Nothing here fetches anything.
"""

from bucketmq.events.filters.explain import Explanation, Outcome, Why, explain, why
from bucketmq.events.filters.fields import NO_JSON, UNFETCHED, Known, NoJson, Unfetched
from bucketmq.events.filters.filter import Decision, Filter, Needs, parse

__all__ = [
    "NO_JSON",
    "UNFETCHED",
    "Decision",
    "Explanation",
    "Filter",
    "Known",
    "Needs",
    "NoJson",
    "Outcome",
    "Unfetched",
    "Why",
    "explain",
    "parse",
    "why",
]
