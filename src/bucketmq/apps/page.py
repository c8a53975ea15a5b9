"""The page of an application: the dashboard with the application's tabs, as an agent that any application may have.

```python
class IndexSettings(PageSettings, frozen=True, kw_only=True): ...

INDEX = App(name="index", settings=IndexSettings, agents=(page_agent(tabs),), tabs=tabs(), ...)
```

An application that has tabs and says nothing of a page gets this one (`with_page`).

Where nobody has a token yet, whoever runs the application gets one for this run, in the link that is told first.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from bucketmq.apps.app import Agent, App, Here, Page
from bucketmq.apps.settings import SECRET, AppSettings, Variable
from bucketmq.server.people import TOKENS_VARIABLE

if TYPE_CHECKING:
    from bucketmq.dashboard.tab import Tab

PAGE = "page"
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

    return Agent(name=PAGE, run=run, about=about, port="port_page", page=page)


def with_page(app: App) -> App:
    """The same. One with tabs and no agent that serves a page gets the agent `page`, and the settings of one."""
    if not app.tabs or app.page is not None or PAGE in app.parts:
        return app
    agents = (*app.agents, page_agent(lambda: app.tabs))
    return msgspec.structs.replace(app, settings=_with_page_settings(app.settings), agents=agents)


def _with_page_settings(settings: type[AppSettings]) -> type[AppSettings]:
    hints = get_type_hints(PageSettings, include_extras=True)
    missing = [each for each in msgspec.structs.fields(PageSettings) if each.name not in settings.__struct_fields__]
    if not missing:
        return settings
    fields = [(each.name, hints[each.name], each.default) for each in missing]
    extended = msgspec.defstruct(
        settings.__name__, fields, bases=(settings,), module=settings.__module__, frozen=True, kw_only=True
    )
    assert issubclass(extended, AppSettings)
    return extended


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
