"""The dashboard in a real browser, on an empty, a busy and a damaged bucket; see `browsing`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.events.event import time_text
from bucketmq.log.reports import Done, Spent
from bucketmq.procedures.queues import DELIVERIES
from bucketmq.server.session import Sessions
from dashboard.browsing import SMALL, WIDE, Browser
from dashboard.opened import ANN, OLA, PEOPLE, VERA, Opened, bury, lines, opened
from dashboard.test_charts import past
from dashboard.test_pipelines import leave, ran

pytestmark = pytest.mark.xdist_group("browser")

TABS = ("overview", "queues", "rules", "pipelines", "dead")
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@contextlib.contextmanager
def visited(browser: Browser, store: MemoryStore, **options: Any) -> Iterator[Opened]:
    """A dashboard whose page is left before the server ends: what it would then ask for nobody answers."""
    with opened(store, **options) as agent:
        try:
            yield agent
        finally:
            browser.driver.get("about:blank")


def busy(bucket: Bucket) -> None:
    """Queues with messages in every state, rules that work, fail and rest, and dead letters."""
    jobs = bucket.queue("jobs")
    jobs.send_many([{"n": n, "text": HOSTILE} for n in range(30)])
    for delivery in jobs.receive(5):
        delivery.retry(delay_seconds=240)
    jobs.flush()
    jobs.receive(7)
    jobs.send({"later": True}, delay_seconds=600)
    bury(bucket, 12, "mail-out", "ConnectionError: smtp.example.com refused the connection after 30 seconds")
    bury(bucket, 1, "orders", HOSTILE)
    bucket.queue("orders").subscription("billing")
    bucket.queue("orders").send_many([{"order": n} for n in range(3)], key="customer-7")
    bucket.rules.add("thumbnails", to="queue:images", filter='key LIKE "raw/%"')
    bucket.rules.add("partner-hook", to="https://hooks.example.com/services/SECRET-PATH")
    bucket.rules.add("reports", to="queue:reports")
    bucket.rules.pause("reports", "the report service is being moved")
    bucket.put("raw/1.png", b"1")
    now = bucket.now_seconds
    leave(bucket, "thumbnails", ran(bucket, 5), queue="events")
    leave(bucket, "classify", ran(bucket, 7_200, ended=now - 7_200, error="ValueError: no such column"), queue="jobs")
    leave(bucket, "nightly", ran(bucket, 40_000, ended=now - 40_000))
    leave(bucket, "jobs", ran(bucket, 5, done=Done(90, 9, spent=Spent(1_200, 4_000, 20))), kind="worker")
    bucket.queue(DELIVERIES).send_many(
        [
            {
                "rule": rule,
                "event": f"e{n}",
                "key": f"raw/{n}.png",
                "attempt": 1 + n % 3,
                "outcome": outcome,
                "at": time_text(now - 600 + 20 * n),
                "happened_at": time_text(now - 660),
                "seconds": 0.013 * (n + 1),
                "status": status,
                "reason": reason,
            }
            for n in range(12)
            for rule, outcome, status, reason in (
                ("thumbnails", "done", None, ""),
                ("partner-hook", "retry", 503, "HTTP 503 after 0.01 s"),
            )
        ]
    )


def test_logging_in_by_hand_and_by_link(browser: Browser, store: MemoryStore) -> None:
    with visited(browser, store) as agent:
        browser.driver.get(agent.url)
        browser.until(lambda: browser.shown("#login"))
        browser.expected.append(r"/api/login.* 401")
        browser.find("#token").send_keys("a token that is wrong\n")
        browser.until(lambda: "opens nothing" in browser.text("#login-error"))
        browser.shoot("login")
        browser.find("#token").send_keys(f"{OLA}\n")
        browser.until(lambda: browser.shown("#dashboard"))
        assert browser.text("#who") == "ola · operate"
        browser.driver.refresh()
        browser.until(lambda: browser.shown("#dashboard"))
        browser.click("#logout")
        browser.until(lambda: browser.shown("#login"))
        browser.enter(agent, OLA)
        assert OLA not in browser.driver.current_url
        assert OLA not in browser.driver.execute_script("return document.documentElement.outerHTML + document.cookie")


def test_an_empty_bucket_stays_empty(browser: Browser, store: MemoryStore) -> None:
    with visited(browser, store) as agent:
        browser.enter(agent, ANN, "overview")
        browser.until(lambda: "An empty bucket" in browser.text("#view"))
        browser.shoot("empty-overview")
        empty = {
            "queues": "No queues yet",
            "rules": "No rules yet",
            "pipelines": "No pipelines yet",
            "dead": "No dead letters",
        }
        for part, text in empty.items():
            browser.go(part)
            browser.until(lambda text=text: text in browser.text("#view"))
            browser.shoot(f"empty-{part}")
    assert store.list("", after="", limit=10).entries == (), "looking writes nothing"


def test_a_busy_bucket(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    busy(bucket)
    with visited(browser, store) as agent:
        browser.enter(agent, ANN, "overview")
        browser.until(lambda: "12 dead letters in queue mail-out" in browser.text(".troubles"))
        assert "Rule partner-hook failed 12 times in a row" in browser.text(".troubles")
        assert "The oldest: ConnectionError: smtp.example.com refused" in browser.text(".troubles"), "why they died"
        assert browser.text("[data-sum=dead]") == "13"
        browser.shoot("busy-overview")
        browser.go("queues")
        browser.until(lambda: "mail-out" in browser.text("table"))
        browser.shoot("busy-queues")
        browser.click("tr[data-queue=jobs] a")
        browser.until(lambda: browser.shown("[data-look=main]"))
        assert "1 send with a delay that is not over" in browser.text("#later")
        browser.click("[data-look=main]")
        browser.until(lambda: len(browser.all("[data-message]")) == 20)
        browser.click("[data-message] summary")
        browser.until(lambda: HOSTILE in browser.text("[data-message][open] pre"))
        browser.shoot("busy-queue")
        browser.click("#more-messages")
        browser.until(lambda: len(browser.all("[data-message]")) == 30)
        browser.go("rules")
        browser.until(lambda: "breaker open: 12 failures" in browser.text("[data-rule=partner-hook]"))
        assert "SECRET-PATH" not in browser.text("#view")
        assert "the report service is being moved" in browser.text("[data-rule=reports]")
        browser.click("[data-attempts=partner-hook]")
        browser.until(lambda: "HTTP 503" in browser.text("[data-rule=partner-hook] table"))
        assert "status 503" not in browser.text("[data-rule=partner-hook] table"), "said once"
        browser.shoot("busy-rules")
        browser.go("pipelines")
        browser.until(lambda: "20/s" in browser.text("[data-pipeline=thumbnails]"))
        assert "failed" in browser.text("[data-pipeline=classify] .chip")
        assert "no such column" in browser.text("[data-pipeline=classify]")
        assert "stopped" in browser.text("[data-pipeline=nightly]") and "11 h ago" in browser.text(
            "[data-pipeline=nightly]"
        )
        assert browser.all("[data-pipeline=thumbnails] .chart .tick"), "a chart has its scale"
        browser.shoot("busy-pipelines")
        browser.go("overview")
        browser.click(".cost summary")
        browser.until(lambda: "5,220" in browser.text(".cost table"))
        browser.until(lambda: "Pipeline classify failed" in browser.text(".troubles"))
        browser.driver.execute_script("document.querySelector('.cost').scrollIntoView()")
        browser.shoot("busy-cost")
        browser.go("dead")
        browser.until(lambda: len(browser.all(".letter")) == 12)
        browser.shoot("busy-dead")
        assert not browser.all("#view img, #view script")


def test_sending_and_purging(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send({"n": 1})
    with visited(browser, store) as agent:
        browser.enter(agent, ANN, "queues")
        browser.click("tr[data-queue=jobs] a")
        browser.click("#send")
        browser.until(lambda: browser.shown("#send-body"))
        browser.find("#send-body").clear()
        browser.find("#send-body").send_keys('{"from": ')
        browser.until(lambda: "Not JSON" in browser.text("#send-wrong"))
        assert browser.find("dialog button[value=yes]").get_attribute("disabled"), "it would be refused"
        browser.find("#send-body").clear()
        browser.find("#send-body").send_keys('{"from": "the page"}')
        browser.find("#send-key").send_keys("user-7")
        browser.shoot("send")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "Sent as" in browser.text("#toasts"))
        browser.until(lambda: "2" in browser.text("[data-subscription=main] td[data-label=Ready]"))
        assert [each.body for each in bucket.queue("jobs").peek(10)] == [{"n": 1}, {"from": "the page"}]
        browser.click("[data-purge=main]")
        browser.until(lambda: browser.shown("#ask-typed"))
        assert browser.find("dialog button[value=yes]").get_attribute("disabled"), "not before the name was typed"
        browser.find("#ask-typed").send_keys("jobs")
        browser.shoot("purge")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "2 messages forgotten" in browser.text("#toasts"))
    assert bucket.queue("jobs").peek(10) == []


def test_searching_redriving_and_deleting_dead_letters(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bury(bucket, 60, "jobs", "no such user")
    bury(bucket, 3, "jobs", "disk is full")
    with visited(browser, store) as agent:
        browser.enter(agent, ANN, "dead")
        browser.until(lambda: browser.text("#tab-dead .count") == "63")
        browser.until(lambda: len(browser.all(".letter")) == 50)
        browser.click("#more-letters")
        browser.until(lambda: len(browser.all(".letter")) == 63)
        browser.find("#dead-search").send_keys("Disk")
        browser.until(lambda: len(browser.all(".letter")) == 3)
        assert browser.text("#dead-said") == "3 match, of 63 searched"
        browser.click(".letter summary")
        browser.until(lambda: browser.shown(".letter[open] [data-redrive]"))
        assert "died " in browser.text(".letter[open] summary") and "Sent " in browser.text(".letter[open]")
        browser.shoot("dead-search")
        browser.click(".letter[open] [data-redrive]")
        browser.until(lambda: browser.shown("dialog[open]"))
        browser.click("dialog button[value=no]")
        browser.until(lambda: not browser.all("dialog"))
        assert len(browser.all(".letter")) == 3, "who says no changes nothing"
        browser.click(".letter[open] [data-redrive]")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: len(browser.all(".letter")) == 2)
        browser.click("[data-delete-all]")
        browser.until(lambda: browser.shown("#ask-typed"))
        browser.find("#ask-typed").send_keys("jobs")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "Nothing that was searched" in browser.text("#view"))
        browser.find("#dead-search").send_keys("\ue009a\ue000\ue003")
        browser.until(lambda: len(browser.all(".letter")) == 50)
        browser.click("[data-redrive-all]")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "No dead letters" in browser.text("#view"))
    assert len(bucket.queue("jobs").peek(100)) == 61
    assert [line.did for line in lines(bucket)] == ["redrive", "delete", "redrive"]


def test_pausing_and_resuming_a_rule(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bucket.rules.add("hook", to="queue:copies")
    with visited(browser, store) as agent:
        browser.enter(agent, OLA, "rules")
        browser.click("[data-pause=hook]")
        browser.until(lambda: browser.shown("#pause-why"))
        browser.find("#pause-why").send_keys("they are moving house")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "they are moving house" in browser.text("[data-rule=hook]"))
        assert bucket.rules.get("hook").paused == "they are moving house"
        browser.click("[data-pause=hook]")
        browser.until(lambda: "they are moving house" not in browser.text("[data-rule=hook]"))
    assert bucket.rules.get("hook").paused is None


def test_who_may_only_look_has_nothing_to_press(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    busy(bucket)
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "dead")
        browser.until(lambda: len(browser.all(".letter")) == 12)
        assert not browser.all("[data-redrive], [data-redrive-all], [data-delete], [data-delete-all]")
        browser.go("rules")
        browser.until(lambda: browser.shown("[data-rule=reports]"))
        assert not browser.all("[data-pause], [data-replay]")
        browser.go("queues")
        browser.click("tr[data-queue=jobs] a")
        browser.until(lambda: browser.shown("[data-look=main]"))
        assert not browser.all("#send, [data-purge]")
    assert lines(bucket) == []


def test_a_damaged_bucket_is_shown_and_hides_nothing_else(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    busy(bucket)
    found = store.get("queues/jobs/queue.json")
    store.replace("queues/jobs/queue.json", b"{not json", found.version)  # type: ignore[union-attr]
    with visited(browser, store) as agent:
        browser.enter(agent, ANN, "overview")
        browser.until(lambda: "Queue jobs cannot be read" in browser.text("a.trouble:first-of-type"))
        assert "1 queue cannot be read and is not in these sums" in browser.text(".page-head")
        assert "12 dead letters in queue mail-out" in browser.text(".troubles")
        browser.shoot("damaged-overview")
        browser.click("a.trouble[href='#queues/jobs']")
        browser.until(lambda: "doctor --deep jobs" in browser.text("#view"))
        browser.shoot("damaged-queue")
        browser.go("queues")
        browser.until(lambda: "cannot be read" in browser.text("tr[data-queue=jobs]"))
        assert "12" in browser.text("tr[data-queue=mail-out]")


def test_damage_shows_on_the_tab_it_belongs_to_and_hides_nothing_else(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    busy(bucket)
    past(bucket)
    minutes = next(entry.key for entry in store.list("bucketmq/figures/minutes/", after="", limit=1).entries)
    for key in (
        "rules/thumbnails.json",
        "queues/orders.dead/queue.json",
        "bucketmq/figures/reports/pipeline.nightly.json",
        minutes,
    ):
        store.replace(key, b"{not json", store.get(key).version)  # type: ignore[union-attr]
    with visited(browser, store) as agent:
        browser.enter(agent, ANN, "overview")
        browser.until(lambda: "Rule thumbnails cannot be read" in browser.text(".troubles"))
        browser.until(lambda: browser.all(".chart"))
        browser.go("rules")
        browser.until(lambda: "restore rules/thumbnails.json" in browser.text("[data-unreadable=thumbnails]"))
        assert browser.shown("[data-rule=partner-hook]")
        browser.shoot("damaged-rules")
        browser.go("pipelines")
        browser.until(lambda: browser.shown("[data-pipeline=thumbnails]"))
        assert not browser.all("[data-pipeline=nightly]")
        browser.go("dead")
        browser.until(lambda: len(browser.all(".letter")) == 12)
        assert "Queue orders cannot be read" in browser.text("[data-unreadable=orders]")
        browser.shoot("damaged-dead")
    bury(bucket, 3, "mail-out", "disk is full")
    segment = next(entry.key for entry in store.list("queues/mail-out.dead/log/", after="", limit=1).entries)
    store.replace(segment, b"{not json", store.get(segment).version)  # type: ignore[union-attr]
    with visited(browser, store) as agent:
        browser.expected.append(r"/api/dead/letters.* 500")
        browser.enter(agent, ANN, "dead")
        browser.until(lambda: "cannot be read" in browser.text("#dead-broken"))
        assert "doctor --deep" in browser.text("#dead-broken")


def test_a_server_that_is_gone_is_said_and_its_return_is_noticed(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    bury(bucket, 1)
    sessions = Sessions(PEOPLE)
    with opened(store, sessions=sessions) as agent:
        browser.enter(agent, OLA, "dead")
        browser.until(lambda: len(browser.all(".letter")) == 1)
        port = int(agent.url.rpartition(":")[2])
        dead = browser.find("#view").text
    browser.expected.append(r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    browser.until(lambda: "cannot be reached" in browser.text("#banner"))
    browser.click("[data-redrive-all]")
    browser.click("dialog button[value=yes]")
    browser.until(lambda: "not sure that Redrive worked" in browser.text("#toasts"))
    browser.shoot("server-gone")
    assert browser.find("#view").text == dead, "what was there stays readable"
    for part in TABS:
        browser.go(part)
        browser.until(lambda: "Loading" in browser.text("#view"))
        assert browser.shown("#banner")
    with visited(browser, store, sessions=sessions, port=port):
        browser.until(lambda: not browser.shown("#banner"))
        browser.until(lambda: len(browser.all(".letter")) == 1)


@pytest.mark.parametrize(("size", "dark"), [(SMALL, False), (SMALL, True), (WIDE, True)])
def test_it_fits_small_and_dark_screens(
    size: tuple[int, int], dark: bool, browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    busy(bucket)
    name = f"{'small' if size == SMALL else 'wide'}-{'dark' if dark else 'light'}"
    with visited(browser, store) as agent:
        browser.size(*size, dark=dark)
        browser.enter(agent, ANN)
        marks = {
            "overview": ".trouble",
            "queues": "tr[data-queue]",
            "rules": "[data-rule]",
            "pipelines": "[data-pipeline]",
            "dead": ".letter",
        }
        for part, mark in marks.items():
            browser.go(part)
            browser.until(lambda mark=mark: browser.shown(mark))
            assert browser.fits(), part
            assert all(browser.whole(f"#tab-{each}") for each in marks), "no tab is cut off"
            assert browser.unnamed() == [], "a screen reader says what each button is for"
            browser.shoot(f"{name}-{part}")
        browser.go("rules")
        browser.click("[data-replay=thumbnails]")
        browser.until(lambda: browser.shown("#replay-which"))
        assert browser.whole("#replay-which") and not browser.shown("#replay-prefix")
        browser.keys("\ue00c")
        browser.go("queues")
        browser.click("tr[data-queue=jobs] a")
        browser.until(lambda: browser.shown("[data-look=main]"))
        assert browser.fits()
        browser.shoot(f"{name}-queue")


def test_the_keyboard_reaches_every_tab_and_the_search(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bury(bucket, 1)
    with visited(browser, store) as agent:
        browser.enter(agent, OLA, "overview")
        browser.keys("2")
        browser.until(lambda: browser.shown("#queue-search"))
        browser.keys("/")
        browser.until(lambda: browser.driver.execute_script("return document.activeElement.id") == "queue-search")
        browser.keys("no-such")
        browser.until(lambda: "Nothing matches" in browser.text("#view"))
        browser.keys("\ue00c", "5")
        browser.until(lambda: browser.shown(".letter"))
        browser.keys("?")
        browser.until(lambda: browser.shown("#help"))
        assert "the parts of the page" in browser.text("#help")
        browser.keys("\ue00c")
        browser.until(lambda: not browser.all("#help"))
        browser.find("#tab-dead").send_keys("\ue012")
        browser.until(lambda: browser.find("#tab-pipelines").get_attribute("aria-selected") == "true")
        browser.go("queues")
        browser.until(lambda: browser.shown("tr[data-queue=jobs]"))
        browser.keys("\ue004", "\ue004", "\ue004", "\ue004")  # help, log out, search, jobs
        at = "return document.activeElement.getAttribute('href')"
        browser.until(lambda: browser.driver.execute_script(at) == "#queues/jobs")
        browser.driver.execute_script("window.before = document.activeElement")
        bucket.queue("jobs").send({"n": 2})
        browser.until(lambda: browser.driver.execute_script("return !window.before.isConnected"))
        assert browser.driver.execute_script(at) == "#queues/jobs", "news do not take the keyboard away"
        browser.driver.execute_script("getSelection().selectAllChildren(document.querySelector('.page-head'))")
        bucket.queue("jobs").send_many([{"n": 3}])
        browser.until(lambda: agent.dashboard.survey.known("jobs").stats.ready == 2)  # type: ignore[union-attr]
        assert browser.driver.execute_script("return getSelection().toString()").startswith("Queues"), "it stays marked"
        browser.driver.execute_script("getSelection().removeAllRanges()")
        browser.until(lambda: browser.text("tr[data-queue=jobs] td[data-label=Ready]") == "2")


def test_pausing_and_resuming_a_queue(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send({"n": 1})
    with visited(browser, store) as agent:
        browser.enter(agent, OLA, "queues")
        browser.click("tr[data-queue=jobs] a")
        browser.click("[data-pause='*']")
        browser.until(lambda: browser.shown("#pause-why"))
        browser.find("#pause-why").send_keys("the database is being moved")
        browser.shoot("pause")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "the database is being moved" in browser.text("[data-subscription=main]"))
        browser.shoot("paused")
        browser.go("overview")
        browser.until(lambda: "main of queue jobs is paused, and 1 message is ready" in browser.text(".troubles"))
        browser.click("a.trouble")
        browser.click("[data-pause='*']")
        browser.until(lambda: "the database is being moved" not in browser.text("[data-subscription=main]"))
    assert len(bucket.queue("jobs").receive(1)) == 1


def test_charts_over_an_hour_a_day_and_a_week(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bucket.queue("jobs").send({"n": 1})
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "overview")
        browser.until(lambda: browser.shown("#no-figures"))
    past(bucket)
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "overview")
        browser.until(lambda: len(browser.all(".chart")) == 2)
        assert "30 min ago" in browser.text(".chart .tick")
        browser.shoot("charts-hour")
        browser.click("#range-week")
        browser.until(lambda: "7 d ago" in browser.text(".chart .tick"))
        browser.shoot("charts-week")
        browser.go("queues")
        browser.click("tr[data-queue=jobs] a")
        browser.until(lambda: "7 d ago" in browser.text(".chart .tick"))
        browser.click("#range-day")
        browser.until(lambda: "12 h ago" in browser.text(".chart .tick"))
        browser.size(*SMALL, dark=True)
        assert browser.fits()
        browser.shoot("charts-small-dark")
