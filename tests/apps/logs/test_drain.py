"""Templates: what varies is masked, what is alike becomes one, and models can be merged in any order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.apps.logs.drain import WORDS_MAX, Index, covers, id_of, learn, merge, words_of
from bucketmq.apps.logs.masks import masked, without_secrets


def mask(text: str) -> str:
    found: str = masked(pa.array([text]))[0].as_py()
    return found


def clean(text: str) -> str:
    found: str = without_secrets(pa.array([text]))[0].as_py()
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("connect to 10.0.0.7:8080 failed", "connect to <*> failed"),
        ("proxy.example.com:5070 closed", "<*> closed"),
        ("request 550e8400-e29b-41d4-a716-446655440000 done", "request <*> done"),
        ("wrote /var/lib/app/a.db in 12.5 ms", "wrote <*> in <*>"),
        ("heap 1.16 GB of 2048 MB, 57.1% used", "heap <*> of <*>, <*> used"),
        ("at 2026-11-18 03:10:00,123 and 03:10 on Nov 18", "at <*> and <*> on <*>"),
        ("fault at 0xdeadbeef in Thing@5ca881b5", "fault at <*> in Thing@<*>"),
        ('user="Ada Example" id=7 state=ok', "user=<*> id=<*> state=<*>"),
        ('"GET /v1/things HTTP/1.1" status: 200', '"GET <*> HTTP/<*>" status: <*>'),
        ("no variables here at all", "no variables here at all"),
        ("", ""),
    ],
)
def test_what_varies_is_masked(line: str, expected: str) -> None:
    assert mask(line) == expected


SECRETS = {
    "login with password=hunter2 ok": "hunter2",
    'config {"api_key": "abc123def"} loaded': "abc123def",
    "Authorization: Bearer abcdef0123456789": "abcdef0123456789",
    "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl": "eyJzdWIiOiIxIn0",
    "key AKIAABCDEFGHIJKLMNOP used": "AKIAABCDEFGHIJKLMNOP",
    "pushed with ghp_0123456789abcdefghijABCDEFGHIJ": "ghp_0123456789",
    "mail to ada@example.com bounced": "ada@example.com",
    "card 4111 1111 1111 1111 declined": "1111 1111",
    "card 4111-1111-1111-1111 declined": "1111-1111",
    "postgres://ada:geheim@db/x": "geheim",
    "digest 0123456789abcdef0123456789abcdef": "0123456789abcdef",
    "DB_PASSWORD='a b c' set": "a b c",
    'login {"user": "ada", "password": "correct horse battery"} refused': "horse",
    r"said {\"password\": \"correct horse\"}": "horse",
    r'password="a\"b horse" set': "horse",
    'cut off with password="correct horse': "horse",
    "passphrase: horsebattery": "horsebattery",
    "Authorization: Token horsebattery": "horsebattery",
    "Cookie: theme=dark; sid=horsebattery": "horsebattery",
    "with wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY now": "bPxRfiCY",
    "login failed: password is horsebattery": "horsebattery",
    "passphrase => horsebattery": "horsebattery",
    "secretKey -> horsebattery": "horsebattery",
    "curl -u ada:horsebattery https://shop.example/": "horsebattery",
    "slack xoxb-123456789012-horsebattery": "horsebattery",
    "model hf_horsebatterystaple loaded": "horsebattery",
    "sent with SG.horsebatterystaple.correct": "horsebattery",
    "otp 123456 sent": "123456",
    "paid from DE89370400440532013000": "37040044",
    "ssn 078-05-1120 checked": "078-05",
}


@pytest.mark.parametrize("line", SECRETS)
def test_secrets_do_not_survive(line: str) -> None:
    assert SECRETS[line] not in clean(line)
    assert SECRETS[line] not in clean(mask(line)), "a template is written, too"


def test_ordinary_words_survive() -> None:
    line = "connection to db-1 timed out after 30 s (attempt 3 of 5)"
    assert clean(line) == line


def test_similar_lines_become_one_template() -> None:
    lines = [words_of(f"session opened for user {name} by <*>") for name in ("ada", "bo", "cy")]
    assert set(learn(lines).values()) == {words_of("session opened for user <*> by <*>")}


def test_a_place_with_many_words_is_a_variable_and_templates_do_not_explode() -> None:
    lines = [words_of(f"login {chr(97 + n % 26)}{chr(97 + n // 26)}x") for n in range(500)]
    assert set(learn(lines).values()) == {("login", "<*>")}


def test_lines_that_begin_otherwise_stay_apart() -> None:
    found = learn([words_of("disk is almost full now"), words_of("memory is almost full now")])
    assert len(set(found.values())) == 2


def test_the_most_special_template_matches() -> None:
    index = Index([words_of("job <*> failed"), words_of("job <*> <*>"), words_of("job seven failed")])
    assert index.match(words_of("job eight failed")) == words_of("job <*> failed")
    assert index.match(words_of("job eight ended")) == words_of("job <*> <*>")
    assert index.match(words_of("job seven failed")) == words_of("job seven failed")
    assert index.match(words_of("nothing of that")) is None


def test_a_line_of_many_words_is_cut() -> None:
    assert len(words_of("word " * 100_000)) == WORDS_MAX + 1
    assert words_of("") == ("",)


def test_an_id_is_the_same_for_everybody() -> None:
    assert id_of(words_of("a <*> c")) == id_of(("a", "<*>", "c")) == "4b7d4c90330d"


word = st.sampled_from(["open", "close", "file", "user", "by", "<*>", "id=<*>", *"abcdefghijklm"])
lines = st.lists(st.lists(word, min_size=1, max_size=6).map(tuple), max_size=40)


@given(lines)
def test_every_learnt_line_is_matched_afterwards(given: list[tuple[str, ...]]) -> None:
    found = learn(given)
    index = Index(set(found.values()))
    for line in given:
        assert covers(found[line], line)
        assert index.match(line) is not None


@given(lines, st.randoms())
def test_the_order_of_lines_does_not_matter(given: list[tuple[str, ...]], chance: object) -> None:
    mixed = given * 2
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert learn(mixed) == learn(given)


@given(lines, lines)
def test_merging_loses_no_line_and_is_the_same_from_both_sides(
    one: list[tuple[str, ...]], other: list[tuple[str, ...]]
) -> None:
    first, second = set(learn(one).values()), set(learn(other).values())
    both = merge(first, second)
    assert both == merge(second, first)
    templates = set(both.values())
    assert set(learn(templates).values()) == templates  # learnt once, learnt for good
    assert merge(templates, first).keys() >= templates
    assert set(merge(templates, first).values()) == templates
    index = Index(templates)
    assert all(index.match(line) is not None for line in [*one, *other])
