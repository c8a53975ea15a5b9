"""The page of research: what it is told, what may be asked of it, and how it looks in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard.browsing import SMALL, WIDE, Browser, browser, chromium
from dashboard.opened import OLA, VERA, Opened, Person, opened
from server.running import sync_on

from bucketmq.apps.research.pages.tabs import tabs
from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket

from .studies import carry_out, plan_of, start, work_off

__all__ = ["browser", "chromium"]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
TWO = [{"name": "cost"}, {"name": "gain", "goal": "max"}]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bucket(store: MemoryStore) -> Iterator[Bucket]:
    with sync_on(store) as made:
        yield made


@pytest.fixture
def agent(store: MemoryStore, bucket: Bucket) -> Iterator[Opened]:
    """One study that is finished, with failures, and one that runs."""
    values = [1, 2, 3, 4, 5]
    carry_out(
        bucket,
        plan_of(
            study="costs",
            simulator="simulators_here:partly",
            about=f"What does it cost? {HOSTILE}",
            metrics=TWO,
            baseline={"x": 1},
            parameters=[{"name": "x", "values": values}],
        ),
    )
    running = plan_of(study="running-still", seeds=20)
    start(bucket, running)
    work_off(bucket, running, limit=25)
    with opened(store, tabs=tabs()) as made:
        yield made


def test_what_the_page_is_told(agent: Opened) -> None:
    with Person(agent.url, VERA) as vera:
        studies = vera.get("/api/research/studies")["studies"]
        assert [(each["study"], each["state"], each["results"], each["planned"]) for each in studies] == [
            ("running-still", "running", 25, 60),
            ("costs", "finished", 20, 20),
        ]
        shown = vera.get("/api/research/study", name="costs")
        assert shown["figures"] == ["figures/cost.svg", "figures/gain.svg", "figures/pareto-front.svg"]
        assert (shown["failed"], shown["failures"][0]["reason"]) == (4, "ValueError: x is 3")


def test_a_study_that_somebody_spoiled_does_not_hide_the_others(agent: Opened, bucket: Bucket) -> None:
    bucket.put("research/studies/a-spoiled.json", b"{}")
    bucket.put("studies/a-spoiled/plan.json", b"{")
    with Person(agent.url, VERA) as vera:
        assert len(vera.get("/api/research/studies")["studies"]) == 2


def test_files_are_served_so_that_nothing_in_them_can_run(agent: Opened, bucket: Bucket) -> None:
    with Person(agent.url, VERA) as vera:
        id = vera.get("/api/research/study", name="costs")["failures"][0]["id"]
        kinds = {
            "report.html": "text/html; charset=utf-8",
            "report.md": "text/plain; charset=utf-8",
            "plan.json": "application/json",
            "figures/cost.svg": "image/svg+xml",
            f"results/{id}.json": "application/json",
        }
        for path, kind in kinds.items():
            answer = vera.http.get(f"/api/research/files/costs/{path}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; img-src 'self'; style-src 'sha256-")
            assert "script" not in policy and "unsafe" not in policy
        assert "<script" not in vera.http.get("/api/research/files/costs/report.html").text
        for path in (
            "costs/closed.json",
            "costs/..%2fplan.json",
            "costs/figures/x.svg",
            "nobody/report.html",
            "A/plan.json",
        ):
            assert vera.http.get(f"/api/research/files/{path}").status_code == 404
        assert "not written yet" in vera.http.get("/api/research/files/running-still/report.html").text


def test_everything_needs_a_login_and_stopping_a_role(agent: Opened) -> None:
    for path in ("studies", "study?name=costs", "files/costs/report.html"):
        assert agent.http.get(f"/api/research/{path}").status_code == 401
    assert agent.http.post("/api/research/stop", json={"study": "costs"}).status_code == 401
    with Person(agent.url, VERA) as vera:
        assert vera.http.post("/api/research/stop", json={"study": "running-still"}).status_code == 403
    with Person(agent.url, OLA) as ola:
        assert ola.http.post("/api/research/stop", json={"study": "nobody"}).status_code == 404
        assert ola.post("/api/research/stop", study="running-still") == {"study": "running-still"}


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
def test_the_page_in_a_browser(browser: Browser, agent: Opened) -> None:
    browser.enter(agent, OLA, "research")
    browser.until(lambda: "running-still" in browser.text("table"))
    assert "25 of 60" in browser.text("table")
    browser.keys("j")
    browser.until(lambda: "Closed because all trials are in" in browser.text(".study"))
    loaded = (
        "return [...document.querySelectorAll('.study-figures img')].filter((each) => each.naturalWidth > 0).length"
    )
    browser.until(lambda: browser.driver.execute_script(loaded) == 3)
    assert "ValueError: x is 3" in browser.text("table")
    assert HOSTILE.replace("<", "?")[:4] not in browser.text(".study h2")
    for size, name in ((WIDE, "wide"), (SMALL, "small")):
        for dark in (False, True):
            browser.size(*size, dark=dark)
            assert browser.fits()
            browser.shoot(f"research-{name}-{'dark' if dark else 'light'}")
    browser.expected.append("favicon.ico")  # a browser asks for one, and a report has none
    browser.driver.get(f"{agent.url}/api/research/files/costs/report.html")
    browser.until(lambda: "Study costs" in browser.text("h1"))
    for size, name in ((WIDE, "wide"), (SMALL, "small")):
        for dark in (False, True):
            browser.size(*size, dark=dark)
            assert browser.fits()
            browser.shoot(f"report-{name}-{'dark' if dark else 'light'}")
    styled = "return getComputedStyle(document.querySelector('main')).maxWidth"
    assert browser.driver.execute_script(styled) == "960px"
    browser.click("a[data-n]")
    browser.until(lambda: browser.driver.current_url.endswith(("#plan", "#e1")))
    browser.size(*WIDE)
    browser.driver.get("about:blank")
