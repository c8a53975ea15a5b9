"""Who is let in to the dashboard, by cookie and by header, and that the server decides who may do what."""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx2
import pytest
from server.running import until

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Unknown, Written
from bucketmq.client import Bucket
from bucketmq.errors import Unavailable
from bucketmq.server.gate import CSRF_HEADER, FAILURES_MAX
from dashboard.opened import ANN, OLA, SAM, VERA, Opened, Person, bury, lines, opened

OPEN = {"/", "/static/main.js", "/healthz", "/api/session"}
LOOK = (
    "/api/overview",
    "/api/badges",
    "/api/actions",
    "/metrics",
    "/api/figures",
    "/api/pipelines",
    "/api/queues",
    "/api/queue?name=jobs",
    "/api/messages?queue=jobs",
    "/api/rules",
    "/api/rules/attempts?name=x",
    "/api/dead",
    "/api/dead/letters?queue=jobs",
)
CHANGE: dict[str, dict[str, object]] = {
    "/api/send": {"queue": "jobs", "body": "{}"},
    "/api/purge": {"queue": "jobs", "subscription": "main", "confirm": "jobs"},
    "/api/queues/change": {"queue": "jobs", "do": "pause"},
    "/api/rules/change": {"name": "x", "do": "pause"},
    "/api/rules/replay": {"name": "x", "prefix": ""},
    "/api/dead/redrive": {"queue": "jobs", "q": ""},
    "/api/dead/delete": {"queue": "jobs", "q": ""},
}
FOR_ADMINISTRATORS = {"/api/purge", "/api/dead/delete"}


@pytest.fixture
def agent(store: MemoryStore, bucket: Bucket) -> Iterator[Opened]:
    bucket.queue("jobs").send({"n": 1})
    with opened(store) as made:
        yield made


def routes(made: Opened, method: str) -> set[str]:
    app = made._server.config.app
    found = app.openapi()["paths"]  # type: ignore[union-attr]
    return {path for path, operations in found.items() if method in operations}


def test_everything_but_the_page_and_health_needs_a_login(agent: Opened) -> None:
    assert {path: agent.http.get(path).status_code for path in OPEN} == dict.fromkeys(OPEN, 200)
    assert {path: agent.http.get(path).status_code for path in LOOK} == dict.fromkeys(LOOK, 401)
    statuses = {path: agent.http.post(path, json=body).status_code for path, body in CHANGE.items()}
    assert statuses == dict.fromkeys(CHANGE, 401)
    assert agent.http.get("/docs").status_code == 404
    assert agent.http.get("/static/..%2fapp.py").status_code == 404
    assert agent.http.get("/tabs/x/app.js").status_code == 404
    assert agent.http.get("/api/session").json() == {"name": None}


def test_the_tests_know_every_route(agent: Opened) -> None:
    named = {path.partition("?")[0] for path in LOOK} | OPEN - {"/static/main.js"}
    assert routes(agent, "get") == named | {"/static/{name}", "/tabs/{tab}/{name}"}
    assert routes(agent, "post") == set(CHANGE) | {"/api/login", "/api/logout"}


def test_every_answer_keeps_the_page_to_itself(agent: Opened) -> None:
    for path in ("/", "/static/main.js", "/api/queues", "/nowhere"):
        headers = agent.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


def test_a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read(agent: Opened, bucket: Bucket) -> None:
    with Person(agent.url, OLA) as ola:
        assert (ola.session["name"], ola.session["may"]) == ("ola", ["look", "operate"])
        answer = ola.http.post("/api/login", json={"token": OLA}, headers={CSRF_HEADER: "login"})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and "max-age=43200" in cookie
        assert OLA not in answer.text + cookie
        assert ola.http.post("/api/logout").status_code == 403, "the header of the login is none of a session"
        token = {CSRF_HEADER: answer.json()["csrf"]}
        kept = dict(ola.http.cookies)
        assert ola.http.post("/api/logout", headers=token).status_code == 200
        assert httpx2.get(f"{agent.url}/api/queues", cookies=kept).status_code == 401, "the old cookie still counts"
    assert lines(bucket) == [], "looking writes nothing into the bucket, and a login neither"


def test_behind_https_the_cookie_belongs_to_this_host_alone(store: MemoryStore) -> None:
    with opened(store, https=True) as agent:
        answer = agent.http.post("/api/login", json={"token": OLA}, headers={CSRF_HEADER: "login"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-bucketmq_")
        assert "; Secure" in cookie and "; Path=/;" in cookie and "domain" not in cookie.lower()
        shown = {"cookie": cookie.partition(";")[0]}
        assert httpx2.get(f"{agent.url}/api/queues", headers=shown).status_code == 200
        plain = {"cookie": shown["cookie"].removeprefix("__Host-")}
        assert httpx2.get(f"{agent.url}/api/queues", headers=plain).status_code == 401, "another host may have set it"


@pytest.mark.parametrize("other", ["theme=dark", 'prefs={"a": 1}', "x=a b", "x[1]=2", 'x="half', "="])
def test_cookies_of_other_programs_on_this_host_hide_no_login(other: str, agent: Opened) -> None:
    with Person(agent.url, VERA) as vera:
        ((name, value),) = dict(vera.http.cookies).items()
    for line in (f"{other}; {name}={value}", f"{name}={value}; {other}"):
        assert httpx2.get(f"{agent.url}/api/queues", headers={"cookie": line}).status_code == 200, line


def test_a_cookie_cannot_be_made_or_changed(agent: Opened) -> None:
    with Person(agent.url, VERA) as vera:
        ((name, value),) = dict(vera.http.cookies).items()
    payload, signature = value.split(".")
    text = base64.urlsafe_b64decode(payload + "==").replace(b"vera", b"ann")
    forged = base64.urlsafe_b64encode(text).decode().rstrip("=")
    for cookie in (f"{forged}.{signature}", payload, f"{payload}.", f"{payload}.{signature[:-4]}AAAA", "é.é", "." * 50):
        answer = httpx2.get(
            f"{agent.url}/api/queues", headers={"cookie": f"{name}={cookie}".encode("latin-1", "replace")}
        )
        assert answer.status_code == 401, cookie


def test_wrong_tokens_are_counted_and_then_refused_for_a_while(agent: Opened, bucket: Bucket) -> None:
    mark = {CSRF_HEADER: "login"}
    statuses = [
        agent.http.post("/api/login", json={"token": f"wrong-{n}"}, headers=mark).status_code for n in range(12)
    ]
    assert statuses == [401] * 10 + [429] * 2
    late = agent.http.post("/api/login", json={"token": OLA}, headers=mark)
    assert late.status_code == 429 and 0 < int(late.headers["retry-after"]) <= 60


def guess(agent: Opened, token: str, **headers: str) -> int:
    return agent.http.post("/api/login", json={"token": token}, headers={CSRF_HEADER: "login", **headers}).status_code


def test_guesses_that_come_together_are_counted_before_their_bodies_are_read(agent: Opened) -> None:
    """Sixty requests wait with the last byte of their bodies; then all of them are sent at once."""
    place = urlsplit(agent.url)
    body = b'{"token": "a-wrong-token-000001"}'
    head = (
        f"POST /api/login HTTP/1.1\r\nHost: {place.netloc}\r\nX-BucketMQ-CSRF: login\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    guesses = [socket.create_connection((str(place.hostname), place.port or 80), timeout=30) for _ in range(60)]
    try:
        for each in guesses:
            each.sendall(head + body[:-1])
        limit = agent.dashboard.gate.limit
        until(lambda: limit.wait_seconds("127.0.0.1") > 0)
        for each in guesses:
            with contextlib.suppress(ConnectionError):
                each.sendall(body[-1:])
        statuses = [each.recv(12) for each in guesses]
    finally:
        for each in guesses:
            each.close()
    assert statuses.count(b"HTTP/1.1 401") == 10 and statuses.count(b"HTTP/1.1 429") == 50


def test_who_logs_in_is_not_counted_as_a_failure(agent: Opened) -> None:
    assert [guess(agent, OLA) for _ in range(15)] == [200] * 15


def test_right_and_wrong_tokens_at_once_right_at_the_limit(agent: Opened) -> None:
    for _ in range(FAILURES_MAX - 2):
        assert guess(agent, "a-wrong-token-0001") == 401
    with ThreadPoolExecutor(12) as pool:
        given = [OLA, "a-wrong-token-0002"] * 12
        answers = list(zip(given, pool.map(lambda token: guess(agent, token), given), strict=True))
    assert {status for token, status in answers if token == OLA} <= {200, 429}
    wrong = [status for token, status in answers if token != OLA]
    assert wrong.count(401) <= 2 and set(wrong) <= {401, 429}
    while (status := guess(agent, "a-wrong-token-0003")) == 401:
        wrong.append(status)
    assert wrong.count(401) == 2, "as many as were left, and nobody's success gave one back"
    assert guess(agent, OLA) == 429


def test_behind_a_trusted_proxy_one_guesser_locks_nobody_else_out(store: MemoryStore) -> None:
    with opened(store, trusted_proxies=("127.0.0.1",)) as agent:
        statuses = [guess(agent, "a-wrong-token", **{"x-forwarded-for": "198.51.100.7"}) for _ in range(11)]
        assert statuses == [401] * 10 + [429]
        assert guess(agent, OLA, **{"x-forwarded-for": "203.0.113.9"}) == 200
        assert guess(agent, OLA, **{"x-forwarded-for": "203.0.113.9, 198.51.100.7"}) == 429
    with opened(store) as agent:
        for number in range(10):
            assert guess(agent, "a-wrong-token", **{"x-forwarded-for": f"198.51.100.{number}"}) == 401
        assert guess(agent, OLA, **{"x-forwarded-for": "203.0.113.9"}) == 429, "anybody can write that header"


def test_who_is_not_logged_in_is_sent_away_before_the_body_is_read(agent: Opened) -> None:
    place = urlsplit(agent.url)
    for path in CHANGE:
        with socket.create_connection((str(place.hostname), place.port or 80), timeout=30) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 1000\r\n\r\n".encode())
            assert connection.recv(12) == b"HTTP/1.1 401"


def test_other_peoples_pages_cannot_log_in_or_change_anything(agent: Opened, bucket: Bucket) -> None:
    assert agent.http.post("/api/login", json={"token": ANN}).status_code == 403
    with Person(agent.url, ANN) as ann, Person(agent.url, OLA) as ola:
        for csrf in ("", "login", ola.session["csrf"]):
            for path, body in CHANGE.items():
                assert ann.http.post(path, json=body, headers={CSRF_HEADER: csrf}).status_code == 403, path
    noted = lines(bucket)
    assert len(noted) == 3 * len(CHANGE) and {line.by for line in noted} == {"ann"}, "somebody used her cookie"
    assert all("page" in line.denied for line in noted)
    assert len(bucket.queue("jobs").peek(10)) == 1


@pytest.mark.parametrize("path", CHANGE)
def test_the_server_refuses_what_the_role_does_not_allow(path: str, agent: Opened, bucket: Bucket) -> None:
    with Person(agent.url, VERA) as vera, Person(agent.url, OLA) as ola:
        assert vera.status(path, **CHANGE[path]) == 403
        assert (ola.status(path, **CHANGE[path]) == 403) == (path in FOR_ADMINISTRATORS)
    refused = [(line.by, line.denied) for line in lines(bucket) if line.denied]
    assert refused[0][0] == "vera" and "look" in refused[0][1]
    assert len(refused) == (2 if path in FOR_ADMINISTRATORS else 1)


def test_every_change_has_a_line_with_who_and_what(agent: Opened, bucket: Bucket) -> None:
    bury(bucket, 2)
    bucket.rules.add("hook", to="queue:copies")
    with Person(agent.url, ANN) as ann:
        ann.post("/api/send", queue="jobs", body='{"n": 7}')
        ann.post("/api/rules/change", name="hook", do="pause", why="they are moving house")
        ann.post("/api/dead/redrive", queue="jobs", q="")
        ann.post("/api/purge", queue="jobs", subscription="main", confirm="jobs")
        seen = ann.get("/api/actions")["actions"]
    noted = lines(bucket)
    assert [(line.by, line.did, line.to, line.how) for line in noted] == [
        ("ann", "send", "queue jobs", ""),
        ("ann", "pause", "rule hook", "they are moving house"),
        ("ann", "redrive", "queue jobs", "all"),
        ("ann", "purge", "queue jobs", "subscription main"),
    ]
    assert {line.door for line in noted} == {"dashboard"} and len({line.id for line in noted}) == 4
    assert sorted(each["did"] for each in seen) == ["pause", "purge", "redrive", "send"]


def test_a_change_whose_line_cannot_be_written_is_not_made(store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send({"n": 1})
    broken = Broken(store, "bucketmq-actions")
    with opened(broken, answer_seconds=2.0) as made, Person(made.url, ANN) as ann:
        assert ann.status("/api/purge", queue="jobs", subscription="main", confirm="jobs") == 503
    assert len(bucket.queue("jobs").peek(10)) == 1


class Broken(MemoryStore):
    """A store that cannot write some keys."""

    def __init__(self, other: MemoryStore, part: str) -> None:
        super().__init__()
        self.__dict__ |= other.__dict__
        self._part = part

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        if self._part in key:
            raise Unavailable("503, try again")
        return super().create(key, body, attributes)


def test_programs_show_their_token_in_a_header(agent: Opened, bucket: Bucket) -> None:
    def ask(token: str, **more: object) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token}"}
        return httpx2.post(f"{agent.url}/api/send", json={"queue": "jobs", "body": "{}", **more}, headers=headers)

    assert ask(OLA).status_code == 200, "no page, so no proof of one is asked for"
    assert ask(VERA).status_code == 403
    assert httpx2.get(f"{agent.url}/api/queues", headers={"authorization": f"Bearer {VERA}"}).status_code == 200
    assert [ask(f"wrong-{n}").status_code for n in range(11)] == [401] * 10 + [429]
    assert ask(OLA).status_code == 429
    assert [(line.by, bool(line.denied)) for line in lines(bucket)] == [("ola", False), ("vera", True)]


def test_wrong_tokens_are_in_the_programs_log_however_they_were_shown(
    agent: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    httpx2.get(f"{agent.url}/api/queues", headers={"authorization": "Bearer a-wrong-token-0001"})
    guess(agent, "a-wrong-token-0002")
    told = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert told == [
        "action=token_refused door=dashboard from=127.0.0.1",
        "action=login_refused door=dashboard from=127.0.0.1",
    ]


@pytest.mark.parametrize("path", ["/api/dead/redrive", "/api/dead/delete"])
def test_a_name_that_no_queue_can_have_is_the_callers_mistake(path: str, agent: Opened) -> None:
    with Person(agent.url, ANN) as ann:
        answer = ann.http.post(path, json={"queue": "a/b", "q": ""})
    assert answer.status_code == 400 and "queue name 'a/b' must be" in answer.json()["error"]


def test_a_scope_hides_other_queues_and_keeps_from_changing_them(agent: Opened, bucket: Bucket) -> None:
    for name in ("mail-out", "secret"):
        bury(bucket, 1, name)
    bucket.rules.add("hook", to="queue:copies")
    with Person(agent.url, SAM) as sam:
        assert [each["name"] for each in sam.get("/api/queues")["queues"]] == ["jobs", "mail-out"]
        assert [each["queue"] for each in sam.get("/api/dead")["dead"]] == ["mail-out"]
        assert sam.get("/api/badges") == {"dead": 1}
        assert sam.get("/api/overview")["queues"] == 2
        for path in (
            "/api/queue?name=secret",
            "/api/messages?queue=secret",
            "/api/dead/letters?queue=secret",
            "/api/rules",
            "/api/rules/attempts?name=hook",
            "/api/actions",
        ):
            assert sam.http.get(path).status_code == 404, path
        assert sam.status("/api/send", queue="secret", body="{}") == 403
        assert sam.status("/api/dead/redrive", queue="secret", q="") == 403
        assert sam.status("/api/rules/change", name="hook", do="pause") == 403
        assert sam.status("/api/send", queue="mail-out", body="{}") == 200
