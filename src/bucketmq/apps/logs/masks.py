"""What varies in a line becomes `<*>`: one generic set of masks for every system, and another for secrets.

Masks are regular expressions of RE2, run by Arrow over a whole column at a time: linear time whatever a line holds, and
no Python for each line. They are applied in their order. What is learnt of masked lines is `drain`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

WILD = "<*>"

_UNITS = (
    "[KMGTP]i?B|[kMGT]?[bB]ytes?|kb|mb|gb|ms|msecs?|us|ns|µs|secs?|seconds?|mins?|minutes?|hours?|hrs?|days?|[kMG]?Hz|%"
)
_MONTHS = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAYS = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?"

VARIABLES: tuple[tuple[str, str], ...] = (
    (r'=\s?"[^"]{0,200}"', "=<*>"),  # key="several words"
    (r'"[^"\s]{1,200}"', "<*>"),  # quoted ids; quoted sentences keep their words
    (r"'[^'\s]{1,200}'", "<*>"),
    (r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s,;\"'<>()\[\]{}]+", "<*>"),
    (rf"\b(?:{_DAYS},? )?{_MONTHS} +\d{{1,2}}(?:,? \d{{4}})?(?: {_CLOCK})?(?: \d{{4}})?\b", "<*>"),
    (rf"\b\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[T ]{_CLOCK}(?:Z|[+-]\d{{2}}:?\d{{2}})?)?\b", "<*>"),
    (rf"\b{_CLOCK}\b", "<*>"),
    (r"\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b", "<*>"),
    (r"\b(?:[0-9A-Fa-f]{2}[:-]){5,}[0-9A-Fa-f]{2}\b", "<*>"),  # hardware addresses, fingerprints
    (r"/?\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b(?::\d+)?(?:/\d+)?", "<*>"),
    (r"\b(?:[0-9A-Fa-f]{1,4}:){3,7}:?[0-9A-Fa-f]{1,4}\b", "<*>"),  # IPv6
    (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b", "<*>"),
    (r"\b[A-Za-z0-9_-]*[A-Za-z][A-Za-z0-9_.-]*:\d{2,5}\b", "<*>"),  # host:port
    (r"\b(?:[A-Za-z0-9-]+\.)+(?:com|net|org|edu|gov|mil|io|dev|local|internal|[a-z]{2})\b", "<*>"),
    (r"\b0[xX][0-9A-Fa-f]+\b", "<*>"),
    (r"(^|[\s=:,(\[{\"'])(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.$%@~+-]+)+[/\\]?(?::\d+)?", r"\1<*>"),  # paths
    (rf"[<~]?\b\d+(?:[.,]\d+)* ?(?:{_UNITS})(\b|[\s,;:)\]]|$)", r"<*>\1"),  # sizes, durations, shares
    (r"\b(\w+)=([^\s,;(){}\[\]<>\"]+)", r"\1=<*>"),
    (r"\b\w*\d\w*(?:[.,]\d\w*)*\b", "<*>"),  # numbers, and words with digits in them
    (r"@[0-9A-Fa-f]{4,}\b", "@<*>"),
    (r"[-+]<\*>", "<*>"),
    (r"<\*>(?:[._/:#|~@*+-]*<\*>)+", "<*>"),
)
"""What is a variable wherever it stands. Nothing in here knows a system."""

_NAMED_SECRET = (
    r"(?i)([\w.-]*(?:passw(?:or)?d|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"credential|authorization|auth|cookie|session[_-]?id|signature)[\w.-]*\\?[\"']?[ \t]*(?:[=:]>?|->)[ \t]*|"
    r"\b(?:passw(?:or)?d|passphrase|pwd|secret|pin|otp)[ \t]+(?:is|was)[ \t]+)"
    r"(?:\\\"[^\"]*(?:\"|$)|\"(?:[^\"\\]|\\.)*(?:\"|\\?$)|'(?:[^'\\]|\\.)*(?:'|\\?$)|[^\s,;&\"'}\])]+)"
)
_PREFIXED_KEY = (
    r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|sk_live_|rk_live_|pk_live_|AIza|hf_|npm_|pypi-AgE|SG\.)"
    r"[A-Za-z0-9_.-]{10,}"
)
"""What well-known services begin their keys with."""
_LONG_KEY = (
    r"\b(?:"
    + "|".join(rf"[A-Za-z0-9+/_-]{{{before},}}[0-9][A-Za-z0-9+/_-]{{{36 - before},}}" for before in range(0, 37, 4))
    + r")={0,2}"
)
"""A word of some 40 characters or more with a digit in any place."""
_NO_PATH = r"(^|[\s=:,;(\"'\[{])"
_LONG_WORD = f"{_NO_PATH}{_LONG_KEY}"
"""The same where no path begins."""
_ANY_LONG_WORD = _NO_PATH + r"[A-Za-z0-9+/_-]{37,}={0,2}"
"""With or without a digit, for lines that have one with it: finding where such a word ends is thirty times as fast."""

SECRETS: tuple[tuple[str, str], ...] = (
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", "[private key]"),
    (r"\b(eyJ[A-Za-z0-9_-]{8,})\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?", "[token]"),
    (r"(?i)\b(bearer|basic|digest|negotiate)[ \t]+[A-Za-z0-9._~+/=-]{6,}", r"\1 [token]"),
    (r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@", r"\1[password]@"),
    (_NAMED_SECRET, r"\1[secret]"),
    (r"(?i)(\bauthorization[ \t]*:[ \t]*\[secret\])[ \t]+[^\s,;\"']+", r"\1"),  # a scheme of any name
    (r"(?i)(cookie[ \t]*:[ \t]*\[secret\])(?:;[ \t]*[^\s\"';]+)+", r"\1"),
    (r"\b(?:AKIA|ASIA|AGPA|AROA)[A-Z0-9]{12,}\b", "[key]"),
    (_PREFIXED_KEY, "[key]"),
    (r"((?:^|\s)(?:-u|--user)[ =][^\s:]+):\S+", r"\1:[password]"),
    (r"(?i)\b(otp|pin|cvv|cvc)([ :=]+)\d{3,8}\b", r"\1\2[digits]"),
    (r"\b\d{3}-\d{2}-\d{4}\b", "[digits]"),
    (r"\b[A-Z]{2}\d{2}[A-Z0-9]{11,30}\b", "[digits]"),  # IBAN
    (r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\b", "[e-mail]"),
    (r"\b(?:\d[ -]?){12,18}\d\b", "[digits]"),  # cards and accounts, however they are grouped
    (r"\b[0-9A-Fa-f]{32,}\b", "[hex]"),
    (_LONG_KEY, "[key]"),
)
"""What must not be written anywhere else. The price of a false alarm is an example that says a little less."""


def masked(lines: pa.Array) -> pa.Array:
    """Lines with `<*>` for what varies."""
    return _replaced(_without_named(lines), VARIABLES)


def _without_named(lines: pa.Array) -> pa.Array:
    """Lines with `<*>` for secrets that only their names, or their lengths, give away: what varies takes the names
    along (`"password"`), and cuts long words at their digits. Few lines have any, so the others are left alone."""
    import pyarrow.compute as pc

    having = pc.match_substring_regex(lines, pattern=f"(?:{_NAMED_SECRET})|(?:{_LONG_WORD})|(?:{_PREFIXED_KEY})")
    if not pc.any(having).as_py():
        return lines
    found = _replaced(lines.filter(having), ((_PREFIXED_KEY, WILD), (_NAMED_SECRET, r"\1<*>")))
    long = pc.match_substring_regex(found, pattern=_LONG_WORD)
    found = pc.replace_with_mask(found, long, _replaced(found.filter(long), ((_ANY_LONG_WORD, r"\1<*>"),)))
    return pc.replace_with_mask(lines, having, found)


def without_secrets(lines: pa.Array) -> pa.Array:
    """Lines as they may be written into alerts, models and pages."""
    return _replaced(lines, SECRETS)


def _replaced(lines: pa.Array, masks: tuple[tuple[str, str], ...]) -> pa.Array:
    import pyarrow.compute as pc

    for pattern, replacement in masks:
        lines = pc.replace_substring_regex(lines, pattern=pattern, replacement=replacement)
    return lines
