"""The tab Logs in a real browser: timeline, alerts, patterns, lines; muting by who may."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.browsing import SMALL, Browser
from dashboard.opened import OLA, VERA, Opened, Person, opened_on

from apps.logs.parts import MINUTE, Logs, line
from apps.logs.parts import put as put_lines
from bucketmq import aio
from bucketmq.apps.logs.pages.tabs import tabs

pytestmark = pytest.mark.xdist_group("browser")


@contextlib.contextmanager
def served(logs: Logs) -> Iterator[Opened]:
    with opened_on(lambda: aio.connect(logs.url), tabs=tabs()) as agent:
        yield agent


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """An hour of a service, ended by trouble."""
    made = Logs(str(tmp_path_factory.mktemp("logs") / "bucket"), runbook_url="https://runs.example.com/{service}")
    start = int(time.time()) // MINUTE * MINUTE - 60 * MINUTE
    for part in range(0, 55, 5):
        lines = [line(start + (part + n % 5) * MINUTE + n % 50, f"request {n} served in {n + 3} ms") for n in range(80)]
        put_lines(made.bucket, str(part), lines)
    made.go()
    bad = [line(start + 56 * MINUTE + n, f"payment {n} <b>failed</b>: password=hunter-two", "error") for n in range(12)]
    put_lines(made.bucket, "bad", bad)
    put_lines(made.bucket, "mail", [line(start + n * MINUTE, f"sent mail {n}") for n in range(50)], service="mailer")
    made.go()
    yield made
    made.close()


def test_the_page_shows_alerts_patterns_and_lines_and_lets_operators_mute(browser: Browser, logs: Logs) -> None:
    with served(logs) as agent:
        try:
            browser.enter(agent, OLA, "logs")
            browser.until(lambda: browser.shown(".alert-card"))
            assert "web: new pattern: payment <*>" in browser.text(".alert-card h3")
            assert not browser.all(".alert-card b")
            assert "hunter-two" not in browser.text("body")
            assert browser.all(".logs-svg rect.lines") and browser.all(".logs-svg rect.errors")
            browser.shoot("logs")
            browser.click('[data-service="web"]')
            browser.until(lambda: browser.shown("[data-pattern]"))
            browser.until(lambda: "request <*> served in <*>" in browser.text("[data-pattern]"))
            browser.click("[data-lines]")
            browser.until(lambda: browser.shown("#logs-lines"))
            assert "[secret]" in browser.text("#logs-lines") and "hunter-two" not in browser.text("body")
            browser.shoot("logs-service")
            browser.keys("\ue00c")
            browser.until(lambda: not browser.shown("#logs-lines"))
            for name, size, dark in (("small", SMALL, False), ("small-dark", SMALL, True), ("dark", (1440, 900), True)):
                browser.size(*size, dark=dark)
                browser.driver.execute_script("window.dispatchEvent(new Event('resize'))")
                assert browser.fits()
                browser.shoot(f"logs-{name}")
            browser.size(1440, 900)
            browser.keys("m")
            browser.until(lambda: browser.shown("#mute-note"))
            browser.find("#mute-note").send_keys("known")
            browser.click("dialog button[value=yes]")
            browser.until(lambda: browser.shown("#no-alerts"))
            assert logs.alerts() == []
        finally:
            browser.driver.get("about:blank")
    audit = logs.bucket.queue("log-audit").subscription("reader", start="earliest").receive(10)
    assert [(each.body["did"], each.body["by"], each.body["note"]) for each in audit] == [("mute", "ola", "known")]


def test_only_those_who_may_operate_mute_and_nobody_looks_without_a_token(logs: Logs, tmp_path: Path) -> None:
    with served(logs) as agent:
        for path in ("overview", "lines?service=web&template=x", "said?id=x"):
            assert agent.http.get(f"/api/logs/{path}").status_code == 401
        body = {"id": "0" * 20, "seconds": 60}
        assert agent.http.post("/api/logs/mute", json=body).status_code == 401
        with Person(agent.url, VERA) as vera:
            assert vera.http.post("/api/logs/mute", json=body).status_code == 403
            assert vera.http.get("/api/logs/overview", params={"service": "web", "hours": 2}).status_code == 200
            assert vera.http.get("/api/logs/lines", params={"service": "web", "template": "x"}).status_code == 404
            assert vera.http.get("/api/logs/said", params={"id": "0" * 20}).status_code == 404
        with Person(agent.url, OLA) as ola:
            assert ola.http.post("/api/logs/mute", json={**body, "id": "../x"}).status_code == 400
            assert ola.http.post("/api/logs/mute", json={**body, "seconds": 1e9}).status_code == 400
