"""The tabs that moderation adds, in a real browser; see `dashboard.browsing`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from dashboard.browsing import SMALL, Browser
from dashboard.opened import Opened, bury

from apps.moderation.agents import sync_on
from apps.moderation.desks import BAD, CLEAN, PEOPLE, ROSA, UNSURE, VERA, desk, history, post
from apps.moderation.drawing import encoded, written
from bucketmq.apps.moderation import posts
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.server.place import bus_of, run_now
from bucketmq.server.session import Sessions
from bucketmq.testing.endpoints import Reply, endpoint

pytestmark = pytest.mark.xdist_group("browser")


@contextlib.contextmanager
def visited(browser: Browser, store: MemoryStore, **options: Any) -> Iterator[Opened]:
    """A desk whose page is left before the server ends: what it would then ask for nobody answers."""
    with desk(store, **options) as agent:
        try:
            yield agent
        finally:
            browser.driver.get("about:blank")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as made:
        yield made


def test_a_review_by_mouse(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    data = encoded(written("HELLO"))
    with endpoint([Reply(200, {"Content-Type": "image/png"}, data)]) as there:
        post(bucket, "ad", "buy <b>cheap</b> watches <script>alert(1)</script>", BAD, media_url=there.url)
        post(bucket, "odd", "is this an ad?", UNSURE, doubt="two models disagree")
        with visited(browser, store, private_images=True) as agent:
            browser.enter(agent, ROSA, "review")
            browser.until(lambda: browser.ids() == ["ad", "odd"])
            assert browser.text("#post-text") == "buy <b>cheap</b> watches <script>alert(1)</script>"
            assert not browser.all("#post-text b")
            browser.until(lambda: "spam" in browser.text("#why"))
            browser.click("#image")
            browser.until(lambda: browser.text("#image .veil") == "Click to show")
            blur = "return getComputedStyle(document.querySelector('#image img')).filter"
            assert "blur" in browser.driver.execute_script(blur)
            browser.shoot("desk-review-blurred")
            browser.click("#image")
            assert browser.driver.execute_script(blur) == "none"
            browser.shoot("desk-review")
            browser.find("#note").send_keys("an ad indeed")
            browser.click("#do-uphold")
            browser.until(lambda: browser.ids() == ["odd"])
            browser.until(lambda: "Upheld: ad" in browser.text("#said"))
            assert "two models disagree" in browser.text(".doubt"), "the next post came by itself"
            browser.click("#do-escalate")
            browser.until(lambda: "escalated" in browser.text(".row"))
            browser.click("#do-approve")
            browser.until(lambda: "Nothing wait" in browser.text("#list"))
            browser.shoot("desk-review-empty")
    assert bucket.get_json("reviewed/ad.json")["note"] == "an ad indeed"
    assert [(line.did, line.id) for line in history(bucket) if line.by == "rosa" and line.id] == [
        ("uphold", "ad"),
        ("escalate", "odd"),
        ("approve", "odd"),
    ]


def test_a_review_by_keyboard(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(4):
        post(bucket, f"p{number}", f"offer number {number}", BAD if number % 2 else UNSURE)
    selected = ".row[aria-selected=true]"
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["p0", "p1", "p2", "p3"])
        browser.keys("j", "j")
        browser.until(lambda: "number 2" in browser.text(selected))
        browser.keys("k")
        browser.until(lambda: "number 1" in browser.text(selected))
        browser.keys("?")
        browser.until(lambda: browser.shown("#help"))
        browser.shoot("desk-help")
        browser.keys("\ue00c")
        browser.until(lambda: not browser.all("#help"))
        browser.keys("n")
        browser.keys("an a, a u and an e, jk")
        browser.keys("\ue00c")
        assert browser.ids() == ["p0", "p1", "p2", "p3"], "what is typed into a field decides nothing"
        browser.keys("a")
        browser.until(lambda: browser.ids() == ["p0", "p2", "p3"])
        browser.until(lambda: "number 2" in browser.text(selected))
        browser.keys("u")
        browser.until(lambda: browser.ids() == ["p0", "p3"])
        browser.keys("/")
        browser.keys("number 0")
        browser.until(lambda: browser.ids() == ["p0"])
        browser.keys("\ue00c", "e")
        browser.until(lambda: "escalated" in browser.text(".row"))
        browser.keys("2")
        browser.until(lambda: len(browser.all("[data-decision]")) == 3)
        browser.keys("3")
        browser.until(lambda: browser.shown(".flow-svg"))
    done = {id: bucket.get_json(f"reviewed/{id}.json")["action"] for id in ("p1", "p2")}
    assert done == {"p1": "approve", "p2": "uphold"}
    assert bucket.get_json("reviewed/p1.json")["note"] == "an a, a u and an e, jk"


def test_who_comes_too_late_is_told_who_was_first(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["ad"])
        browser.expected.append(r"/api/review/decide.* 409")
        # The page's next question about the list gets no answer: it does not hear of the other's decision by itself.
        browser.driver.execute_script(
            "const ask = window.fetch; window.fetch = (path, ...more) => {"
            " if (!String(path).startsWith('/api/review/posts')) return ask(path, ...more);"
            " window.held = true; return new Promise(() => {}); }"
        )
        browser.until(lambda: browser.driver.execute_script("return window.held === true"))
        run_now(bucket, posts.review(bus_of(bucket), "ad", revision=1, reviewer="omar", action="uphold"))
        browser.click("#do-approve")
        browser.until(lambda: "omar upheld it" in browser.text("#toasts"))
        assert browser.ids() == []
        browser.shoot("desk-too-late")
    assert bucket.get_json("reviewed/ad.json")["reviewer"] == "omar"


def test_the_flow_beside_the_tabs_of_every_bucket(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(6):
        post(bucket, f"p{number}", f"offer number {number}", (BAD, UNSURE, CLEAN)[number % 3])
    bucket.rules.add("tell-somebody", to="https://hooks.example.com/x", filter='WHERE `key` REGEXP "^flagged/"')
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "flow")
        browser.until(lambda: browser.text("[data-node=flagged]") == "2")
        assert [browser.text(f"[data-node={name}]") for name in ("accepted", "approved", "needs", "reviewed")] == [
            "6", "2", "2", "0",
        ]  # fmt: skip
        browser.shoot("desk-flow")
        browser.go("queues")
        browser.until(lambda: "submissions" in browser.text("table"))
        browser.go("rules")
        browser.until(lambda: "tell-somebody" in browser.text("[data-rule]"))


def test_an_answer_that_comes_late_does_not_draw_over_another_part(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "queues")
        browser.until(lambda: "submissions" in browser.text("table"))
        browser.driver.execute_script(
            "const ask = window.fetch; window.fetch = async (path, ...more) => {"
            " const answer = await ask(path, ...more);"
            " if (String(path).includes('/flow')) { await new Promise((go) => { window.release = go; }); }"
            " return answer; }"
        )
        browser.go("flow")
        browser.until(lambda: browser.driver.execute_script("return !!window.release"))
        browser.go("queues")
        browser.until(lambda: "submissions" in browser.text("table"))
        browser.driver.execute_script("window.release()")
        browser.go("rules")
        browser.until(lambda: "No rules yet" in browser.text("#view"))
        assert not browser.all(".flow-svg")


def test_who_may_only_look_has_nothing_to_press(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    bury(bucket, 1)
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "review")
        browser.until(lambda: browser.ids() == ["ad"])
        assert browser.text("#who") == "vera · look"
        assert browser.text("#post-text") == "buy cheap watches"
        assert not browser.all(".decide")
        browser.keys("a", "u", "e")
        browser.shoot("desk-read-only")
        browser.go("dead")
        browser.until(lambda: len(browser.all(".letter")) == 1)
        assert not browser.all("[data-redrive], [data-redrive-all]")
    assert not [line for line in history(bucket) if line.did in ("approve", "uphold", "escalate")]


def test_a_server_that_is_gone_is_said_and_its_return_is_noticed(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    sessions = Sessions(PEOPLE)
    with desk(store, sessions=sessions) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["ad"])
        port = int(agent.url.rpartition(":")[2])
    browser.expected.append(r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    browser.until(lambda: "cannot be reached" in browser.text("#banner"))
    browser.keys("a")
    browser.until(lambda: "not sure that ad was saved" in browser.text("#toasts"))
    assert browser.ids() == ["ad"], "what may not have been saved comes back"
    browser.shoot("desk-server-gone")
    with visited(browser, store, sessions=sessions, port=port):
        browser.until(lambda: not browser.shown("#banner"))
        browser.keys("a")
        browser.until(lambda: "Nothing wait" in browser.text("#list"))
    assert bucket.get_json("reviewed/ad.json")["action"] == "approve"


def test_it_fits_small_and_dark_screens(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(60):
        post(bucket, f"p{number:02}", f"offer number {number} " + "Donaudampfschifffahrt" * 5, BAD)
    bury(bucket, 1)
    with visited(browser, store) as agent:
        browser.size(*SMALL)
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: len(browser.ids()) == 50)
        assert browser.fits() and not browser.shown("#post")
        browser.shoot("desk-small-review")
        browser.click(".row")
        browser.until(lambda: browser.shown("#do-approve"))
        assert browser.fits()
        browser.shoot("desk-small-post")
        for part, mark in (("flow", ".flow-svg"), ("queues", "table"), ("rules", ".empty"), ("dead", ".letter")):
            browser.go(part)
            browser.until(lambda mark=mark: browser.shown(mark))
            assert browser.fits(), part
            browser.shoot(f"desk-small-{part}")
        browser.size(1600, 1000, dark=True)
        browser.go("review")
        browser.until(lambda: len(browser.ids()) == 50)
        browser.shoot("desk-dark-review")
        browser.click("#more")
        browser.until(lambda: len(browser.ids()) == 60)
        browser.go("flow")
        browser.until(lambda: browser.shown(".flow-svg"))
        browser.shoot("desk-dark-flow")
