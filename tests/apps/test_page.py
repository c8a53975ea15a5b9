"""The page of an application: the agent that any application may have, and whom it lets in."""

from __future__ import annotations

from bucketmq.apps.app import App
from bucketmq.apps.page import PageSettings, page_agent
from bucketmq.apps.settings import read_settings

INDEX = App(name="index", about="an index", settings=PageSettings, agents=(page_agent(lambda: ()),))


def test_an_application_with_a_page_agent_has_a_page() -> None:
    assert INDEX.page is not None
    assert INDEX.page.name == "page"
    assert INDEX.page.port == "port_page"


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
