"""Templates of lines: our own Drain (He et al., 2017) over masked lines, as values that can be stored and merged.

A template is a tuple of words, some of them `<*>`. Learning has three rules:

1. **Similar lines are one.** Lines of the same length whose first two words agree, and of whose words three quarters
   agree, become one template with `<*>` where they differ.
2. **A place with many words is a variable.** Ten templates that differ in one place only become one.
3. **So is one of the first two words** if it has fifty neighbours of one other, whatever follows: identifiers there
   would keep lines apart for ever.

All are repeated until nothing changes. So

- what is learnt depends on the *set* of lines alone, not on their order or number;
- `learn(learn(x)) == learn(x)`: merging a model with itself, or with a part of itself, changes nothing;
- `merge(a, b) == merge(b, a)`;
- every line that was learnt is matched by a template of the result, also after any number of merges.

What cannot be promised is that learning in two parts and merging gives the same templates as learning all at once: a
part may see too little to know that a word varies. Then a template is more special than it could be, until another
line of its kind comes. A template's id is a hash of its words, so that learners who never met agree on it.

Pure: no clock, no requests. Masks are `masks`', where models are kept is `models`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from bucketmq.apps.logs.masks import WILD

SIMILAR = 0.75
"""The part of the words that must agree."""
PREFIX_WORDS = 2
"""The first words, which must agree."""
WORDS_OF_A_VARIABLE = 10
"""So many words in one place, everything else being equal, and the place is a variable."""
WORDS_MAX = 120
"""A line of more words is cut here: its beginning tells its kind."""
NEIGHBOURS_OF_A_VARIABLE = 50
"""So many first words before the same second one, or second words behind the same first one, are a variable."""
CANDIDATES_MAX = 200
"""A line is compared with so many templates of its length and first words; more are noise, not kinds of lines."""
ROUNDS_MAX = 64

Words = tuple[str, ...]


def words_of(masked: str) -> Words:
    """The words of a masked line. An empty line is a word of its own, so that it has a template too."""
    words = masked.split(None, WORDS_MAX)
    if len(words) > WORDS_MAX:
        words[WORDS_MAX:] = ["..."]
    return tuple(words) or ("",)


def id_of(words: Words) -> str:
    """The same for everybody who learnt this template."""
    return hashlib.sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def covers(template: Words, line: Words) -> bool:
    """Whether each word of the line is the template's, or the template leaves it open."""
    return len(template) == len(line) and all(mine in (WILD, its) for mine, its in zip(template, line, strict=True))


class Index:
    """Templates by their length and first words, to match lines with."""

    def __init__(self, templates: Iterable[Words]) -> None:
        self._exact: set[Words] = set()
        self._by_head: defaultdict[tuple[int, str, str], list[Words]] = defaultdict(list)
        for words in sorted(templates, key=_special_first):
            self._exact.add(words)
            self._by_head[_head(words)].append(words)

    def match(self, line: Words) -> Words | None:
        """The most special template that covers the line."""
        if line in self._exact:
            return line
        found = [
            next((each for each in self._by_head.get(head, ()) if covers(each, line)), None) for head in _heads(line)
        ]
        return min((each for each in found if each is not None), key=_special_first, default=None)


def learn(lines: Iterable[Words]) -> dict[Words, Words]:
    """The template of each line. Templates are lines too: what was learnt before may be among them."""
    found = {line: line for line in lines}
    for _ in range(ROUNDS_MAX):
        before = sorted(set(found.values()))
        opened = _opened(before)
        merged = _variables(_similar(sorted(set(opened.values()))))
        after = _covered({words: merged[its] for words, its in opened.items()})
        if all(words == after[words] for words in before):
            break
        found = {line: after[words] for line, words in found.items()}
    return found


def merge(one: Iterable[Words], other: Iterable[Words]) -> dict[Words, Words]:
    """What became of each template of two models, when they are one."""
    return learn([*one, *other])


def _opened(templates: Sequence[Words]) -> dict[Words, Words]:
    """Rule 3."""
    firsts: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    seconds: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    for words in templates:
        if len(words) > PREFIX_WORDS:
            firsts[len(words), words[1]].add(words[0])
            seconds[len(words), words[0]].add(words[1])
    found = {}
    for words in templates:
        first, second = words[0], words[1] if len(words) > 1 else ""
        if len(words) > PREFIX_WORDS:
            many = first != WILD and len(seconds[len(words), first]) >= NEIGHBOURS_OF_A_VARIABLE
            many_before = second != WILD and len(firsts[len(words), second]) >= NEIGHBOURS_OF_A_VARIABLE
            words_after = (WILD if many_before else first, WILD if many else second, *words[2:])
            found[words] = words_after if words_after[:2] != (WILD, WILD) else words
        else:
            found[words] = words
    return found


def _similar(templates: Sequence[Words]) -> dict[Words, Words]:
    """Rule 1, once over templates in their order."""
    made: list[Words] = []
    places: dict[Words, int] = {}
    by_head: defaultdict[tuple[int, str, str], list[int]] = defaultdict(list)
    for words in templates:
        head = _head(words)
        best, agreeing = -1, -1
        for place in by_head[head][:CANDIDATES_MAX]:
            same = sum(mine == its for mine, its in zip(made[place], words, strict=True))
            if same > agreeing:
                best, agreeing = place, same
        if best >= 0 and agreeing >= SIMILAR * len(words):
            made[best] = tuple(mine if mine == its else WILD for mine, its in zip(made[best], words, strict=True))
        else:
            best = len(made)
            made.append(words)
            by_head[head].append(best)
        places[words] = best
    return {words: made[place] for words, place in places.items()}


def _variables(found: dict[Words, Words]) -> dict[Words, Words]:
    """Rule 2. Templates that would be nothing but `<*>` are left alone."""
    templates = set(found.values())
    alike: defaultdict[Words, set[Words]] = defaultdict(set)
    for words in templates:
        for place in range(len(words)):
            if words[place] != WILD:
                alike[(*words[:place], WILD, *words[place + 1 :])].add(words)
    became = {words: words for words in templates}
    for opened, several in sorted(alike.items(), key=lambda each: (-len(each[1]), each[0])):
        left = [words for words in several if became[words] == words]
        if len(left) >= WORDS_OF_A_VARIABLE and any(word != WILD for word in opened):
            became.update(dict.fromkeys(left, opened))
    return {words: became[template] for words, template in found.items()}


def _covered(found: dict[Words, Words]) -> dict[Words, Words]:
    """A template that another one covers is that one."""
    templates = set(found.values())
    by_head: defaultdict[tuple[int, str, str], list[Words]] = defaultdict(list)
    for words in templates:
        if WILD in words:
            by_head[_head(words)].append(words)
    became = {}
    for words in templates:
        near = (each for head in _heads(words) for each in by_head.get(head, ()))
        wider = [each for each in near if each != words and covers(each, words)]
        became[words] = min(wider, key=lambda each: (sum(word != WILD for word in each), each), default=words)
    return {words: became[template] for words, template in found.items()}


def _head(words: Words) -> tuple[int, str, str]:
    return len(words), _plain(words[0]), _plain(words[1]) if len(words) > 1 else ""


def _heads(line: Words) -> Iterator[tuple[int, str, str]]:
    """Under which a template that covers the line can be found."""
    length, first, second = _head(line)
    yield from dict.fromkeys(
        ((length, first, second), (length, WILD, second), (length, first, WILD), (length, WILD, WILD))
    )


def _plain(word: str) -> str:
    return WILD if WILD in word else word


def _special_first(words: Words) -> tuple[int, Words]:
    return sum(word == WILD for word in words), words
