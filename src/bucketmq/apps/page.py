"""The page of an application: the dashboard with the application's tabs, as an agent that any application may have.

```python
class IndexSettings(PageSettings, frozen=True, kw_only=True): ...

INDEX = App(name="index", settings=IndexSettings, agents=(page_agent(tabs),), tabs=tabs(), ...)
```

Where nobody has a token yet, whoever runs the application gets one for this run, in the link that is told first.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bucketmq.apps.app import Agent, Here, Page
from bucketmq.apps.settings import SECRET, AppSettings, Variable
from bucketmq.server.people import TOKENS_VARIABLE

if TYPE_CHECKING:
    from bucketmq.dashboard.tab import Tab

RUNNER = "runner"
"""What a person is called whose token was made by `apps run`."""


class PageSettings(AppSettings, frozen=True, kw_only=True):
    """Settings of an application with a page."""

    port_page: Annotated[
        int, Meta(ge=0, le=65535, description="where the page is served; 0 is any free one"), Variable("BUCKETMQ_PORT")
    ] = 8090
    page_tokens: Annotated[
        tuple[str, ...], Meta(description="who may log in: NAME=TOKEN:ROLE"), Variable(TOKENS_VARIABLE), SECRET
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], Meta(description="proxies whose X-Forwarded-For says who is calling")
    ] = ()


def page_agent(tabs: Callable[[], Sequence[Tab]], *, about: str = "the page for people") -> Agent:
    """The agent `page`, for an application whose settings are `PageSettings`."""

    async def run(here: Here) -> None:
        own: PageSettings = here.settings
        await serve_page(here, own.page_tokens, tabs(), port=own.port_page, trusted_proxies=own.trusted_proxies)

    def page(settings: Any, address: str) -> Page:
        return page_of(settings.page_tokens, TOKENS_VARIABLE, address)

    return Agent(name="page", run=run, about=about, port="port_page", page=page)


async def serve_page(
    here: Here,
    tokens: Sequence[str],
    tabs: Sequence[Tab],
    *,
    port: int,
    trusted_proxies: tuple[str, ...] = (),
    variable: str = TOKENS_VARIABLE,
) -> None:
    """Serve the dashboard with these tabs until it is stopped."""
    from bucketmq.dashboard.app import serve
    from bucketmq.server.gate import GateSettings
    from bucketmq.server.people import read_people

    settings = GateSettings(people=read_people(tokens, variable=variable), trusted_proxies=trusted_proxies)
    await serve(here.bucket, settings, tabs=tabs, host=here.host, port=port, listening=here.ready)


def page_of(tokens: Sequence[str], variable: str, address: str) -> Page:
    """The link to the page; where there are no tokens, one is made for this run."""
    if tokens:
        return Page(address)
    token = secrets.token_urlsafe(18)
    return Page(f"{address}/#token={token}", {variable: f"{RUNNER}={token}:administer"})
