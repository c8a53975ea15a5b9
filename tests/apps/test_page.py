"""The page of an application: the agent that any application may have, and whom it lets in."""

from __future__ import annotations

import msgspec

from bucketmq.apps.app import App
from bucketmq.apps.page import PageSettings, page_agent, with_page
from bucketmq.apps.settings import AppSettings, read_settings
from bucketmq.dashboard.tab import Tab

INDEX = App(name="index", about="an index", settings=PageSettings, agents=(page_agent(lambda: ()),))


def test_an_application_with_a_page_agent_has_a_page() -> None:
    assert INDEX.page is not None
    assert INDEX.page.name == "page"
    assert INDEX.page.port == "port_page"


class Bare(AppSettings, frozen=True, kw_only=True):
    size: int = 3


def test_an_application_with_tabs_and_no_page_gets_one_with_its_settings() -> None:
    tab = Tab("notes", "Notes", script="notes.js")
    bare = App(name="notes", about="notes", settings=Bare, tabs=(tab,))
    given = with_page(bare)
    assert given.page is not None
    assert (given.page.name, given.parts) == ("page", ["page"])
    settings = read_settings(given.settings, options={"url": "memory://", "size": 4, "port_page": 0}, environment={})
    assert (settings.size, settings.port_page, settings.page_tokens) == (4, 0, ())  # type: ignore[attr-defined]
    assert with_page(given) is given
    assert with_page(INDEX) is INDEX
    assert with_page(msgspec.structs.replace(bare, tabs=())).page is None


def test_whoever_runs_it_gets_a_token_where_nobody_has_one() -> None:
    settings = read_settings(PageSettings, options={"url": "memory://"}, environment={})
    agent = INDEX.page
    assert agent is not None and agent.page is not None
    page = agent.page(settings, "http://127.0.0.1:1")
    (line,) = page.environment.values()
    name, _, rights = line.partition("=")
    assert name == "runner"
    assert page.link == f"http://127.0.0.1:1/#token={rights.removesuffix(':administer')}"
    again = read_settings(PageSettings, options={"url": "memory://"}, environment=page.environment)
    assert again.page_tokens == (line,)


def test_tokens_that_there_are_stay_out_of_the_link() -> None:
    settings = PageSettings(url="memory://", page_tokens=("ada=0123456789abcdef:look",))
    agent = INDEX.page
    assert agent is not None and agent.page is not None
    page = agent.page(settings, "http://127.0.0.1:1")
    assert page.link == "http://127.0.0.1:1"
    assert page.environment == {}
