"""Taking back, deciding about several, blurring, the history of a post and the tab Decisions, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard.browsing import SMALL, Browser

from apps.moderation.agents import Gate, sync_on
from apps.moderation.desks import ADA, BAD, CLEAN, ROSA, UNSURE, VERA, history, post
from apps.moderation.drawing import encoded, written
from apps.moderation.test_browser import visited
from bucketmq.apps.moderation import posts
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.server.place import bus_of, run_now
from bucketmq.testing.endpoints import Reply, endpoint

pytestmark = pytest.mark.xdist_group("browser")

ESCAPE, TAB = "\ue00c", "\ue004"


@pytest.fixture
def store() -> MemoryStore:
    return Gate()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as made:
        yield made


def decide(bucket: Bucket, id: str, action: str, by: str) -> None:
    run_now(bucket, posts.review(bus_of(bucket), id, revision=1, reviewer=by, action=action))


def test_a_decision_is_taken_back_by_key_and_by_mouse(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for id in ("p0", "p1", "p2"):
        post(bucket, id, f"offer of {id}", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["p0", "p1", "p2"])
        browser.keys("a")
        browser.until(lambda: "Approved: p0" in browser.text("#said"))
        browser.keys("u")
        browser.until(lambda: "Upheld: p1" in browser.text("#said"))
        browser.shoot("desk-undo")
        browser.keys("z")
        browser.until(lambda: browser.ids() == ["p1", "p2"])
        browser.until(
            lambda: "Approved: p0" in browser.text("#said"),
        )
        browser.until(lambda: browser.text(".post-head h1") == "p1")  # what was taken back is open again
        browser.click("#undo")
        browser.until(lambda: browser.ids() == ["p0", "p1", "p2"])
        browser.until(lambda: browser.text("#said") == "")
        browser.keys("z")
        assert browser.find("#said").get_attribute("role") == "status"
    assert [(line.did, line.id) for line in history(bucket) if line.by == "rosa"] == [
        ("approve", "p0"), ("uphold", "p1"), ("undo", "p1"), ("undo", "p0"),
    ]  # fmt: skip


def test_what_cannot_be_taken_back_any_more_says_why(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "p0", "an offer", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["p0"])
        browser.keys("a")
        browser.until(lambda: browser.shown("#undo"))
        undo = posts.undo(bus_of(bucket), "p0", revision=1, action="approve", turn=0, by="ada", administers=True)
        run_now(bucket, undo)
        browser.expected.append(r"/api/review/undo.* 409")
        browser.click("#undo")
        browser.until(lambda: "ada took it back" in browser.text("#toasts"))


def test_all_that_match_are_decided_after_one_question_that_says_how_many(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    for number in range(60):
        post(bucket, f"p{number:02}", f"offer number {number}", BAD if number % 2 else UNSURE)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: len(browser.ids()) == 50)
        browser.driver.execute_script(
            "const slider = document.querySelector('#filter-max'); slider.value = 0.8;"
            "slider.dispatchEvent(new Event('input')); slider.dispatchEvent(new Event('change'));"
        )
        browser.until(lambda: browser.text("#choose-all") == "Choose all 30")
        decide(bucket, "p02", "approve", "omar")  # the page may or may not have heard of it when it asks
        browser.until(lambda: browser.text("#choose-all") == "Choose all 29")
        browser.click("#choose-all")
        browser.until(lambda: "29 posts chosen" in browser.text("#chosen"))
        decide(bucket, "p04", "approve", "omar")
        browser.shoot("desk-chosen")
        browser.click("[data-many=uphold]")
        browser.until(lambda: browser.text("#ask-title") == "Uphold 29 posts?")
        browser.keys("all of them ads")
        browser.shoot("desk-bulk-question")
        browser.find("dialog button[value=yes]").click()
        browser.until(lambda: browser.text("#many-stop") == "Close")
        assert "28 done, 1 not" in browser.text("#many") and "omar approved" in browser.text(".failed")
        browser.shoot("desk-bulk-failures")
        browser.click("#many-stop")
        browser.until(lambda: browser.ids() == [])
        browser.until(lambda: "Upheld: 28 posts" in browser.text("#said"))
    upheld = [line for line in history(bucket) if line.did == "uphold"]
    assert len(upheld) == 28 and {line.reason for line in upheld} == {"all of them ads"}


def test_some_are_chosen_by_key_and_taken_back_together(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(4):
        post(bucket, f"p{number}", f"offer number {number}", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: len(browser.ids()) == 4)
        browser.keys("x", "j", "x")
        browser.until(lambda: "2 posts chosen" in browser.text("#chosen"))
        checked = [row.get_attribute("aria-checked") for row in browser.all("[role=option]")]
        assert checked == ["true", "true", "false", "false"]
        browser.click("[data-id=p3] .pick")
        browser.until(lambda: "3 posts chosen" in browser.text("#chosen"))
        browser.click("#choose-none")
        browser.until(lambda: not browser.shown("#chosen"))
        browser.keys("x", "k", "x")
        browser.click("[data-many=approve]")
        browser.until(lambda: browser.text("#ask-title") == "Approve 2 posts?")
        browser.keys(ESCAPE)
        browser.until(lambda: not browser.all("dialog"))
        assert len(browser.ids()) == 4, "whoever says no decides nothing"
        browser.click("[data-many=approve]")
        browser.find("dialog button[value=yes]").click()
        browser.until(lambda: browser.ids() == ["p2", "p3"])
        browser.keys("z")
        browser.until(lambda: browser.ids() == ["p0", "p1", "p2", "p3"])
    assert sorted((line.did, line.id) for line in history(bucket) if line.by == "rosa") == [
        ("approve", "p0"), ("approve", "p1"), ("undo", "p0"), ("undo", "p1"),
    ]  # fmt: skip


def filtered(browser: Browser, selector: str) -> str:
    found: str = browser.driver.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0])).filter", selector
    )
    return found


def test_what_may_upset_is_blurred_until_it_is_wanted(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    data = encoded(written("HELLO"))
    with endpoint([Reply(200, {"Content-Type": "image/png"}, data)]) as there:
        post(bucket, "cruel", "something cruel", BAD, category="hate_speech", media_url=there.url)
        post(bucket, "ad", "buy cheap watches", BAD)
        with visited(browser, store, private_images=True) as agent:
            browser.enter(agent, ROSA, "review")
            browser.until(lambda: browser.ids() == ["cruel", "ad"])
            assert "blur" in filtered(browser, "#post-text") and "blur" in filtered(
                browser, "[data-id=cruel] .row-text"
            )
            assert filtered(browser, "[data-id=ad] .row-text") == "none", "an advertisement upsets nobody"
            hidden = browser.find("#post-text").get_attribute("aria-hidden")
            assert hidden == "true" and "May upset: hate speech 97 %" in browser.text("#warning")
            tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
            said = " ".join(str(node.get("name", {}).get("value", "")) for node in tree if not node["ignored"])
            assert "May upset: hate speech" in said and "something cruel" not in said
            assert "hate_speech" not in browser.text("#view")
            browser.shoot("desk-blurred")
            browser.keys("b")
            browser.until(lambda: filtered(browser, "#post-text") == "none")
            assert browser.find("#post-text").get_attribute("aria-hidden") is None
            assert filtered(browser, "[data-id=cruel] .row-text") == "none"
            browser.keys("b")
            browser.until(lambda: "blur" in filtered(browser, "#post-text"))
            browser.click("#show-text")
            browser.until(lambda: filtered(browser, "#post-text") == "none")
            browser.click("#blur")
            browser.until(lambda: not browser.all("#warning"))
            browser.click("#image")
            browser.until(lambda: browser.shown("#image img"))
            assert filtered(browser, "#image img") == "none"
            browser.driver.refresh()
            browser.go("review")
            browser.until(lambda: browser.ids() == ["cruel", "ad"])
            assert filtered(browser, "#post-text") == "none", "it is remembered for this person in this browser"
            assert not browser.find("#blur").is_selected()
            browser.driver.execute_script("localStorage.clear()")


def test_the_history_of_a_post(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "odd", "something odd", UNSURE, category="hate_speech")
    decide(bucket, "odd", "escalate", "omar")
    decide(bucket, "odd", "approve", "omar")
    undo = posts.undo(
        bus_of(bucket), "odd", revision=1, action="approve", turn=0, by="ada", administers=True, note="no"
    )
    run_now(bucket, undo)
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "review")
        browser.until(lambda: browser.ids() == ["odd"])
        browser.until(lambda: "hate speech" in browser.text("#why"))
        browser.keys("h")
        browser.until(lambda: len(browser.all(".history > li")) == 6)
        told = [each.text.splitlines()[0] for each in browser.all(".history > li")]
        assert told == [
            "Submitted",
            "Judged by test-1",
            "Routed: needs review",
            "Escalated by omar",
            "Approved by omar",
            "ada took back “approved”: needs review again",
        ]
        assert "hate speech 70 %" in browser.text(".history-judged").replace(
            "\xa0", " "
        ) and "hate_speech" not in browser.text("#view")
        browser.shoot("desk-history")
        browser.keys("h")
        browser.until(lambda: not browser.shown(".history"))


def test_who_decided_what_and_taking_it_back(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(8):
        post(bucket, f"p{number}", f"offer number {number}", BAD if number < 6 else UNSURE)
    for number, (action, by) in enumerate(
        [("uphold", "rosa"), ("uphold", "omar"), ("approve", "rosa"), ("uphold", "omar"), ("escalate", "omar")]
    ):
        decide(bucket, f"p{number}", action, by)
    decide(bucket, "p7", "approve", "omar")
    with visited(browser, store) as agent:
        browser.enter(agent, ADA, "decisions")
        browser.until(lambda: len(browser.all("[data-decision]")) == 6)
        assert "75 %" in browser.text(".agreement") and "Of 4 posts that it flagged" in browser.text(".agreement")
        browser.shoot("desk-decisions")
        browser.find("#decisions-by").send_keys("rosa")
        browser.until(lambda: len(browser.all("[data-decision]")) == 2)
        assert "50 %" in browser.text(".agreement")
        browser.click("[data-undo=p2]")
        browser.until(lambda: "rosa's decision" in browser.text("#ask-title"))
        browser.keys("an ad after all")
        browser.find("dialog button[value=yes]").click()
        browser.until(lambda: "taken back by ada" in browser.text("[data-decision=p2]"))
        assert not browser.all("[data-undo=p2]")
        browser.click("[data-history=p2]")
        browser.until(lambda: "ada took back" in browser.text("#history-dialog"))
        browser.shoot("desk-decisions-history")
        browser.keys(ESCAPE)
        browser.until(lambda: not browser.all("#history-dialog"))
        browser.keys("/")
        browser.keys("no such post")
        browser.until(lambda: "Nothing matches" in browser.text("#view"))
        browser.keys(ESCAPE)
        browser.size(*SMALL, dark=True)
        browser.go("review")
        browser.go("decisions")
        browser.until(lambda: len(browser.all("[data-decision]")) == 6)
        assert browser.fits()
        browser.shoot("desk-small-decisions-dark")
    assert bucket.look("flagged/p2.json") is not None


def test_who_may_only_look_sees_decisions_and_has_nothing_to_press(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    post(bucket, "p0", "an offer", BAD)
    post(bucket, "p1", "an offer", BAD)
    post(bucket, "p2", "an offer", BAD)
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "decisions")
        browser.until(lambda: "Nobody has decided yet" in browser.text("#view"))
        decide(bucket, "p0", "uphold", "vera")  # as the same name with another role
        browser.until(lambda: len(browser.all("[data-decision]")) == 1)
        assert not browser.all("[data-undo]")
        browser.go("review")
        browser.until(lambda: browser.ids() == ["p1", "p2"])
        assert not browser.all(".pick, #choose-all")
        browser.keys("x", "z")
        assert not browser.shown("#chosen")


def test_a_bucket_that_is_away_leaves_what_was_shown(browser: Browser, store: Gate, bucket: Bucket) -> None:
    for id in ("p0", "p1"):
        post(bucket, id, "an offer", BAD)
    with visited(browser, store, answer_seconds=3.0) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["p0", "p1"])
        browser.click("#choose-all")
        browser.until(lambda: "2 posts chosen" in browser.text("#chosen"))
        browser.expected.append(r"/api/.* 503")
        store.holds, store.broken = "moderation/posts", True
        browser.click("[data-many=approve]")
        browser.until(lambda: browser.shown("dialog button[value=yes]"))
        browser.find("dialog button[value=yes]").click()
        browser.until(lambda: browser.text("#many-stop") == "Close")
        assert "not sure" in browser.text(".failed") and "2 not" in browser.text("#many")
        browser.shoot("desk-bulk-bucket-away")
        store.broken = False
        store.open.set()
        browser.click("#many-stop")
        browser.until(lambda: "2 posts chosen" in browser.text("#chosen"))
        browser.click("[data-many=approve]")
        browser.until(lambda: browser.shown("dialog button[value=yes]"))
        browser.find("dialog button[value=yes]").click()
        browser.until(lambda: browser.ids() == [])
    done = [line.id for line in history(bucket) if line.did == "approve"]
    assert sorted(set(done)) == ["p0", "p1"]


def test_it_is_said_what_became_of_everything_that_was_submitted(
    browser: Browser, store: MemoryStore, bucket: Bucket
) -> None:
    for number in range(6):
        post(bucket, f"p{number}", f"offer number {number}", (BAD, UNSURE, CLEAN)[number % 3])
    for _ in range(2):
        run_now(bucket, posts.accept(bus_of(bucket), "new", "not judged yet"))
    for text in ("first", "second"):
        run_now(bucket, posts.accept(bus_of(bucket), "revised", text))
    with visited(browser, store) as agent:
        browser.enter(agent, VERA, "flow")
        browser.until(lambda: browser.shown("#explained"))
        assert browser.text("#explained") == (
            "10 submitted in the last 15 minutes: 1 repeat, 1 replaced by a newer version, 6 judged, "
            "2 waiting for that. Of those judged, 2 approved, 2 flagged, 2 left to people."
        )
        browser.shoot("desk-flow-explained")


def test_no_tab_is_out_of_sight_on_a_narrow_screen(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "p0", "an offer", BAD)
    cut_off = (
        "const bar = document.querySelector('#tabs').getBoundingClientRect();"
        "return [...document.querySelectorAll('.tab')].map((each) => each.getBoundingClientRect())"
        ".filter((each) => each.right > bar.right + 1 || each.bottom > bar.bottom + 1).length"
    )
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        for width in (1440, 1280, 1024, 820, 390):
            browser.size(width, 800)
            assert browser.driver.execute_script(cut_off) == 0 and browser.fits(), width


def test_what_a_model_was_not_sure_about_is_blurred_too(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    post(bucket, "p0", "something cruel", 0.41, category="violence")
    with visited(browser, store) as agent:
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: browser.ids() == ["p0"])
        assert "blur" in filtered(browser, "[data-id=p0] .row-text")


def test_a_phone_has_room_for_all_of_it(browser: Browser, store: MemoryStore, bucket: Bucket) -> None:
    for number in range(5):
        post(bucket, f"p{number}", f"something cruel, number {number}", BAD, category="violence")
    with visited(browser, store) as agent:
        browser.size(*SMALL)
        browser.enter(agent, ROSA, "review")
        browser.until(lambda: len(browser.ids()) == 5)
        browser.click("[data-id=p1] .pick")
        browser.until(lambda: "1 post chosen" in browser.text("#chosen"))
        assert browser.fits()
        browser.shoot("desk-small-chosen")
        browser.click("[data-id=p0]")
        browser.until(lambda: browser.shown("#show-text"))
        browser.click("#history summary")
        browser.until(lambda: browser.shown(".history"))
        assert browser.fits()
        browser.shoot("desk-small-blurred")
        browser.click("#do-approve")
        browser.until(lambda: "Approved: p0" in browser.text("#said") and browser.shown("#undo"))
        assert browser.fits()
        browser.shoot("desk-small-undo")
