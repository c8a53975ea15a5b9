"""The tab Images: who may see what, and running a stage again from there; then in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")
pytest.importorskip("fastapi")

from dashboard.browsing import SMALL, WIDE, Browser, browser, chromium
from dashboard.opened import OLA, SAM, VERA, Opened, Person, lines, opened
from server.running import sync_on

from apps.images.drawn import drawing, jpeg, opened_image, photo
from apps.images.running import Images
from apps.moderation.drawing import encoded, written
from bucketmq.apps.images.facts import PolicyFacts
from bucketmq.apps.images.pages.tabs import tabs
from bucketmq.apps.images.places import facts_key
from bucketmq.bucket.memory import MemoryStore

__all__ = ["browser", "chromium"]

HILLS, PAGE, ODD = "raw/2026/hills.jpg", "raw/2026/notice.png", "raw/odd & <b>name</b>.png"


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="module")
def images(store: MemoryStore) -> Iterator[Images]:
    """Three images that went through all stages; the verdict on one of them is made up."""
    with sync_on(store) as bucket:
        made = Images(bucket)
        made.put(HILLS, jpeg(photo((900, 600))))
        made.put(PAGE, encoded(written("Rye bread", "fresh at eight <b>today</b>")))
        made.put(ODD, encoded(drawing()))
        made.run()
        flag(made, ODD)
        yield made


def flag(images: Images, key: str) -> None:
    place = facts_key(key, "policy")
    facts = msgspec.json.decode(images.bucket.get(place).body, type=PolicyFacts)
    said = msgspec.structs.replace(facts, verdict="flagged", score=0.91, reason="probably not safe for work (0.91)")
    images.bucket.put(place, msgspec.json.encode(said))
    images.touch(key)


@pytest.fixture
def agent(store: MemoryStore, images: Images) -> Iterator[Opened]:
    with opened(store, tabs=tabs()) as made:
        yield made


def test_the_sheet_is_paged_filtered_and_says_what_is_blurred(agent: Opened) -> None:
    with Person(agent.url, VERA) as vera:
        whole = vera.get("/api/images/sheet")
        assert [item["key"] for item in whole["items"]] == [HILLS, PAGE, ODD]
        assert [item["blurred"] for item in whole["items"]] == [False, False, True]
        assert (whole["total"], whole["verdicts"], whole["next"]) == (3, {"fine": 2, "flagged": 1}, None)
        first = vera.get("/api/images/sheet", limit=2)
        assert first["next"] == PAGE
        assert [item["key"] for item in vera.get("/api/images/sheet", limit=2, after=PAGE)["items"]] == [ODD]
        assert [item["key"] for item in vera.get("/api/images/sheet", verdict="flagged")["items"]] == [ODD]
        assert [item["key"] for item in vera.get("/api/images/sheet", q="RYE")["items"]] == [PAGE]
        assert "text" not in whole["items"][0]
        assert vera.http.get("/api/images/sheet", params={"limit": 5000}).status_code == 400


def test_a_verdict_on_an_older_version_does_not_show_a_newer_one() -> None:
    store, key = MemoryStore(), HILLS
    with sync_on(store) as bucket:
        first = Images(bucket, ("thumbnails", "policy"))
        first.put(key, jpeg(photo()))
        first.run()
    with sync_on(store) as bucket:
        thumbnails = Images(bucket, ("thumbnails",))
        thumbnails.put(key, jpeg(photo(seed=2)))
        thumbnails.run()
        thumbnails.touch(key)
    with opened(store, tabs=tabs()) as agent, Person(agent.url, VERA) as vera:
        (item,) = vera.get("/api/images/sheet")["items"]
        assert (item["verdict"], item["blurred"]) == ("fine", True)
        assert vera.get("/api/images/image", key=key)["blurred"]


def test_a_sheet_that_did_not_change_costs_one_request(agent: Opened) -> None:
    with Person(agent.url, VERA) as vera:
        vera.get("/api/images/sheet")
        before = agent.requests
        vera.get("/api/images/sheet", q="rye")
        spent = agent.requests - before
    assert (spent.get, spent.list, spent.create, spent.replace) == (1, 0, 0, 0)


def test_an_image_has_all_that_is_known_of_it(agent: Opened) -> None:
    with Person(agent.url, VERA) as vera:
        found = vera.get("/api/images/image", key=PAGE)
        assert found["text"].splitlines()[0] == "Rye bread" and not found["blurred"]
        assert [(each["stage"], each["current"]) for each in found["stages"]] == [
            (stage, True) for stage in ("thumbnails", "policy", "text", "alt")
        ]
        assert vera.http.get("/api/images/image", params={"key": "raw/none.jpg"}).status_code == 404


def test_a_thumbnail_is_served_as_what_it_is_and_nothing_else_is(agent: Opened, images: Images) -> None:
    with Person(agent.url, VERA) as vera:
        answer = vera.http.get("/api/images/thumb", params={"key": HILLS, "size": 256})
        assert answer.status_code == 200 and opened_image(answer.content).size == (256, 171)
        assert answer.headers["content-type"] == "image/webp"
        assert answer.headers["x-content-type-options"] == "nosniff"
        for wrong in (
            {"key": HILLS, "size": 257},
            {"key": "facts/alt/raw/a.jpg"},
            {"key": "raw/../queues/events/x"},
            {},
        ):
            assert vera.http.get("/api/images/thumb", params=wrong).status_code in (400, 404), wrong


PATHS = ("/api/images/sheet", f"/api/images/image?key={HILLS}", f"/api/images/thumb?key={HILLS}")


def test_a_thumbnail_of_another_version_than_the_page_knows_is_not_served(agent: Opened) -> None:
    """Or a picture that nobody has judged would be shown by the verdict on the one before it."""
    with Person(agent.url, VERA) as vera:
        known = vera.get("/api/images/image", key=HILLS)["thumbnails_version"]
        for version, status in ((known, 200), ("another", 404)):
            params = {"key": HILLS, "size": "256", "v": version}
            assert vera.http.get("/api/images/thumb", params=params).status_code == status


def test_who_may_not_see_the_buckets_events_sees_no_images(agent: Opened) -> None:
    assert {agent.http.get(path).status_code for path in PATHS} == {401}
    assert agent.http.post("/api/images/rerun", json={"key": HILLS}).status_code == 401
    with Person(agent.url, SAM) as sam:
        assert {sam.http.get(path).status_code for path in PATHS} == {404}
        assert sam.status("/api/images/rerun", key=HILLS) in (403, 404)


def test_a_stage_is_run_again_by_who_may_and_that_is_noted(agent: Opened, images: Images) -> None:
    with Person(agent.url, VERA) as vera:
        assert vera.status("/api/images/rerun", key=HILLS, stage="thumbnails") == 403
    images.bucket.delete("thumbs/256/raw/2026/hills.jpg.webp")
    with Person(agent.url, OLA) as ola:
        assert ola.post("/api/images/rerun", key=HILLS, stage="thumbnails") == {"told": 1}
        assert ola.status("/api/images/rerun", key="facts/x", stage="thumbnails") == 400
        assert ola.status("/api/images/rerun", key=HILLS, stage="frames") == 400
    images.run()
    assert images.bucket.look("thumbs/256/raw/2026/hills.jpg.webp") is not None
    noted = [(line.by, line.did, line.how, bool(line.denied)) for line in lines(images.bucket) if line.did == "rerun"]
    assert noted[-2:] == [("vera", "rerun", "stage thumbnails", True), ("ola", "rerun", "stage thumbnails", False)]


@pytest.fixture
def visited(browser: Browser, agent: Opened) -> Iterator[Opened]:
    yield agent
    browser.driver.get("about:blank")


BLUR = "return getComputedStyle(document.querySelector(arguments[0])).filter"


@pytest.mark.xdist_group("browser")
def test_the_sheet_in_a_browser(browser: Browser, visited: Opened, images: Images) -> None:
    browser.size(*WIDE)
    browser.enter(visited, OLA, "images")
    browser.until(lambda: len(browser.all(".tile")) == 3)
    loaded = (
        "return [...document.querySelectorAll('.tile img')].every((each) => each.complete && each.naturalWidth > 0)"
    )
    browser.until(lambda: browser.driver.execute_script(loaded))
    assert "odd & <b>name</b>.png" in browser.text("#sheet") and not browser.all("#sheet b")
    assert "blur" in browser.driver.execute_script(BLUR, f"[data-key='{ODD}'] img")
    assert browser.driver.execute_script(BLUR, f"[data-key='{HILLS}'] img") == "none"
    browser.shoot("images-sheet")
    browser.size(*WIDE, dark=True)
    browser.shoot("images-sheet-dark")
    browser.size(*SMALL)
    browser.shoot("images-sheet-small")
    assert browser.fits()


@pytest.mark.xdist_group("browser")
def test_an_image_by_keyboard_blurred_until_it_is_asked_for(browser: Browser, visited: Opened, images: Images) -> None:
    browser.size(*WIDE)
    browser.enter(visited, OLA, "images")
    browser.until(lambda: len(browser.all(".tile")) == 3)
    for key in "jjj":
        browser.keys(key)
    browser.keys("\ue007")
    browser.until(lambda: browser.shown("#image-reveal") and "click to show" in browser.text("#image-reveal"))
    assert "blur" in browser.driver.execute_script(BLUR, "#image-reveal img")
    browser.shoot("images-blurred")
    browser.keys("b")
    browser.until(lambda: browser.driver.execute_script(BLUR, "#image-reveal img") == "none")
    browser.keys("k")
    browser.until(lambda: "Rye bread" in browser.text("#image-text"))
    assert "<b>today</b>" in browser.text("#image-detail") and "Rye bread" in browser.text("#image-alt")
    browser.shoot("images-detail")
    browser.size(*SMALL, dark=True)
    browser.until(browser.fits)
    browser.shoot("images-detail-small-dark")
    browser.click("[data-again='text']")
    browser.until(lambda: "Told 1 stage again" in browser.text("#toasts"))
    browser.keys("\ue00c")
    browser.until(lambda: not browser.shown("#image-detail"))


@pytest.mark.xdist_group("browser")
def test_who_may_only_look_has_no_button(browser: Browser, visited: Opened, images: Images) -> None:
    browser.size(*WIDE)
    browser.enter(visited, VERA, "images")
    browser.until(lambda: len(browser.all(".tile")) == 3)
    browser.click(f"[data-key='{HILLS}']")
    browser.until(lambda: browser.shown("#image-alt"))
    assert not browser.all("[data-again]")
