"""The desk in a real browser: headless Chromium, driven as a person would, by mouse and by keyboard.

Screenshots go to the folder that `BUCKETMQ_ARTIFACTS` names. Nothing may break the content security policy, and nothing
may be written to the console that was not expected.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.moderation.agents import Agent, sync_on
from apps.moderation.desks import BAD, CLEAN, PEOPLE, ROSA, UNSURE, VERA, desk, history, post
from apps.moderation.drawing import encoded, written
from apps.moderation.test_desk import bury
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.classify.fetch import FetchSettings
from bucketmq.apps.moderation.desk.session import Sessions
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.server.place import bus_of, run_now
from bucketmq.testing.endpoints import Reply, endpoint

webdriver = pytest.importorskip("selenium.webdriver")

pytestmark = pytest.mark.xdist_group("browser")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WAIT_SECONDS = 20.0
WIDE, SMALL = (1440, 900), (360, 740)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        missing = "chromium and chromedriver are needed: apt-get install chromium chromium-driver"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    for feature in ("disable-background-networking", "disable-component-update", "no-first-run", "disable-sync"):
        options.add_argument(f"--{feature}")  # it speaks to us and to nobody else
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Browser:
    """What a person does."""

    def __init__(self, driver: Any, shots: Path) -> None:
        self.driver = driver
        self.shots = shots
        self.expected: list[str] = []
        """What may be on the console."""

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def enter(self, agent: Agent, token: str, part: str = "review") -> None:
        self.driver.get(f"{agent.url}/#token={token}")
        self.until(lambda: self.shown("#desk"))
        self.go(part)

    def go(self, part: str) -> None:
        self.click(f"#tab-{part}")
        self.until(lambda: self.find(f"#tab-{part}").get_attribute("aria-selected") == "true")

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        """Read at once: the page may draw it anew at any time."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((each) => each.innerText ?? each.textContent).join('\\n')"
        )
        found: str = self.driver.execute_script(script, selector)
        return found

    def shown(self, selector: str) -> bool:
        found: bool = self.driver.execute_script(
            "return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector
        )
        return found

    def click(self, selector: str) -> None:
        self.until(lambda: self.shown(selector))
        self.find(selector).click()

    def keys(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def until(self, holds: Callable[[], Any]) -> None:
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        gone = (StaleElementReferenceException,)
        WebDriverWait(self.driver, WAIT_SECONDS, 0.05, ignored_exceptions=gone).until(lambda _: holds())

    def shoot(self, name: str) -> None:
        self.driver.save_screenshot(str(self.shots / f"desk-{name}.png"))

    def ids(self) -> list[str]:
        found: list[str] = self.driver.execute_script(
            "return [...document.querySelectorAll('.row:not(.saving)')].map((each) => each.dataset.id)"
        )
        return found

    def fits(self) -> bool:
        """Whether nothing sticks out at the right."""
        found: bool = self.driver.execute_script(
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
        return found

    def check_console(self) -> None:
        lines = [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]
        unexpected = [line for line in lines if not any(re.search(each, line) for each in self.expected)]
        assert unexpected == []


@pytest.fixture
def browser(chromium: Any, tmp_path: Path) -> Iterator[Browser]:
    shots = Path(os.environ.get("BUCKETMQ_ARTIFACTS") or tmp_path)
    shots.mkdir(parents=True, exist_ok=True)
    chromium.get_log("browser")
    made = Browser(chromium, shots)
    made.size(*WIDE)
    yield made
    made.check_console()
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})


@contextlib.contextmanager
def visited(browser: Browser, store: MemoryStore, **options: Any) -> Iterator[Agent]:
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


def test_logging_in_by_hand_and_by_link(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    with visited(browser, store) as agent:
        browser.driver.get(agent.url)
        browser.until(lambda: browser.shown("#login"))
        browser.expected.append(r"/api/login.* 401")
        browser.find("#token").send_keys("a token that is wrong\n")
        browser.until(lambda: "opens nothing" in browser.text("#login-error"))
        browser.shoot("login")
        browser.find("#token").send_keys(f"{ROSA}\n")
        browser.until(lambda: browser.shown("#desk"))
        assert browser.text("#who") == "rosa"
        browser.driver.refresh()
        browser.until(lambda: browser.shown("#desk"))
        browser.click("#logout")
        browser.until(lambda: browser.shown("#login"))
        browser.enter(agent, ROSA)
        assert ROSA not in browser.driver.current_url
        assert ROSA not in browser.driver.execute_script("return document.documentElement.outerHTML + document.cookie")


def test_a_review_by_mouse(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    data = encoded(written("HELLO"))
    with endpoint([Reply(200, {"Content-Type": "image/png"}, data)]) as there:
        post(bucket, "ad", "buy <b>cheap</b> watches <script>alert(1)</script>", BAD, media_url=there.url)
        post(bucket, "odd", "is this an ad?", UNSURE, doubt="two models disagree")
        with visited(browser, store, fetch=FetchSettings(private=True)) as agent:
            browser.enter(agent, ROSA)
            browser.until(lambda: browser.ids() == ["ad", "odd"])
            assert browser.text("#post-text") == "buy <b>cheap</b> watches <script>alert(1)</script>"
            assert not browser.all("#post-text b")
            browser.until(lambda: "spam" in browser.text("#why"))
            browser.click("#image")
            browser.until(lambda: browser.text("#image .veil") == "Click to show")
            blur = "return getComputedStyle(document.querySelector('#image img')).filter"
            assert "blur" in browser.driver.execute_script(blur)
            browser.shoot("review-blurred")
            browser.click("#image")
            assert browser.driver.execute_script(blur) == "none"
            browser.shoot("review")
            browser.find("#note").send_keys("an ad indeed")
            browser.click("#do-uphold")
            browser.until(lambda: browser.ids() == ["odd"])
            browser.until(lambda: "Upheld: ad" in browser.text("#toasts"))
            assert "two models disagree" in browser.text(".doubt"), "the next post came by itself"
            browser.click("#do-escalate")
            browser.until(lambda: "escalated" in browser.text(".row"))
            browser.click("#do-approve")
            browser.until(lambda: "Nothing wait" in browser.text("#list"))
            browser.shoot("review-empty")
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
        browser.enter(agent, ROSA)
        browser.until(lambda: browser.ids() == ["p0", "p1", "p2", "p3"])
        browser.keys("j", "j")
        browser.until(lambda: "number 2" in browser.text(selected))
        browser.keys("k")
        browser.until(lambda: "number 1" in browser.text(selected))
        browser.keys("?")
        browser.until(lambda: browser.shown("#help"))
        browser.shoot("help")
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
        browser.until(lambda: browser.shown(".flow-svg"))
    done = {id: bucket.get_json(f"reviewed/{id}.json")["action"] for id in ("p1", "p2")}
    assert done == {"p1": "approve", "p2": "uphold"}
    assert bucket.get_json("reviewed/p1.json")["note"] == "an a, a u and an e, jk"


def test_who_comes_too_late_is_told_who_was_first(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA)
        browser.until(lambda: browser.ids() == ["ad"])
        browser.expected.append(r"/api/review.* 409")
        # The page's next question about the list gets no answer: it does not hear of the other's decision by itself.
        browser.driver.execute_script(
            "const ask = window.fetch; window.fetch = (path, ...more) => {"
            " if (!String(path).startsWith('/api/posts')) return ask(path, ...more);"
            " window.held = true; return new Promise(() => {}); }"
        )
        browser.until(lambda: browser.driver.execute_script("return window.held === true"))
        run_now(bucket, posts.review(bus_of(bucket), "ad", revision=1, reviewer="omar", action="uphold"))
        browser.click("#do-approve")
        browser.until(lambda: "omar upheld it" in browser.text("#toasts"))
        assert browser.ids() == []
        browser.shoot("too-late")
    assert bucket.get_json("reviewed/ad.json")["reviewer"] == "omar"


def test_flow_queues_and_rules(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(6):
        post(bucket, f"p{number}", f"offer number {number}", (BAD, UNSURE, CLEAN)[number % 3])
    bucket.rules.add("tell-somebody", to="https://hooks.example.com/x", filter='WHERE `key` REGEXP "^flagged/"')
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "flow")
        browser.until(lambda: browser.text("[data-node=flagged]") == "2")
        assert [browser.text(f"[data-node={name}]") for name in ("accepted", "approved", "needs", "reviewed")] == [
            "6", "2", "2", "0",
        ]  # fmt: skip
        browser.shoot("flow")
        browser.go("queues")
        browser.until(lambda: "submissions" in browser.text("table"))
        browser.shoot("queues")
        browser.go("rules")
        browser.until(lambda: "tell-somebody" in browser.text("table"))
        browser.shoot("rules")


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


def test_dead_letters_are_counted_on_their_tab_before_it_was_opened(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    bury(bucket, 3)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA)
        browser.until(lambda: browser.text("#tab-dead .count") == "3")
        assert browser.find("#tab-review").get_attribute("aria-selected") == "true"
        browser.shoot("badge")


def test_a_redrive(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    bury(bucket, 3)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "dead")
        browser.until(lambda: len(browser.all(".letter")) == 3)
        browser.click(".letter summary")
        browser.until(lambda: '"n": 0' in browser.text(".letter[open] pre"))
        browser.shoot("dead-letters")
        browser.click(".letter[open] [data-redrive]")
        browser.until(lambda: browser.shown("dialog[open]"))
        browser.shoot("redrive")
        browser.click("dialog button[value=no]")
        browser.until(lambda: not browser.all("dialog"))
        assert len(browser.all(".letter")) == 3, "who says no changes nothing"
        browser.click(".letter[open] [data-redrive]")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: len(browser.all(".letter")) == 2)
        browser.click("[data-redrive-all]")
        browser.click("dialog button[value=yes]")
        browser.until(lambda: "No dead letters" in browser.text("#view"))
        browser.shoot("dead-letters-empty")
    assert len(bucket.queue("jobs").peek(10)) == 3


def test_who_may_only_look_has_nothing_to_press(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "ad", "buy cheap watches", BAD)
    bury(bucket, 1)
    with visited(browser, store) as agent:
        browser.enter(agent, VERA)
        browser.until(lambda: browser.ids() == ["ad"])
        assert "read only" in browser.text("#who")
        assert browser.text("#post-text") == "buy cheap watches"
        assert not browser.all(".decide")
        browser.keys("a", "u", "e")
        browser.shoot("read-only")
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
        browser.enter(agent, ROSA)
        browser.until(lambda: browser.ids() == ["ad"])
        port = int(agent.url.rpartition(":")[2])
    browser.expected.append(r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE")
    browser.until(lambda: "cannot be reached" in browser.text("#banner"))
    browser.keys("a")
    browser.until(lambda: "not sure that ad was saved" in browser.text("#toasts"))
    assert browser.ids() == ["ad"], "what may not have been saved comes back"
    browser.shoot("server-gone")
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
        browser.enter(agent, ROSA)
        browser.until(lambda: len(browser.ids()) == 50)
        assert browser.fits() and not browser.shown("#post")
        browser.shoot("small-review")
        browser.click(".row")
        browser.until(lambda: browser.shown("#do-approve"))
        assert browser.fits()
        browser.shoot("small-post")
        for part, mark in (("flow", ".flow-svg"), ("queues", "table"), ("rules", ".empty"), ("dead", ".letter")):
            browser.go(part)
            browser.until(lambda mark=mark: browser.shown(mark))
            assert browser.fits(), part
            browser.shoot(f"small-{part}")
        browser.size(1600, 1000, dark=True)
        browser.go("review")
        browser.until(lambda: len(browser.ids()) == 50)
        browser.shoot("dark-review")
        browser.click("#more")
        browser.until(lambda: len(browser.ids()) == 60)
        browser.go("flow")
        browser.until(lambda: browser.shown(".flow-svg"))
        browser.shoot("dark-flow")
