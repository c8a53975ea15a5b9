"""A real browser for tests: headless Chromium, driven as a person would, by mouse and by keyboard.

Screenshots go to the folder that `BUCKETMQ_ARTIFACTS` names. Nothing may break the content security policy, and nothing
may be written to the console that was not expected.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server.running import Served

webdriver = pytest.importorskip("selenium.webdriver")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WAIT_SECONDS = 20.0
WIDE, SMALL = (1440, 900), (390, 844)


@pytest.fixture(scope="session")
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

    def enter(self, agent: Served, token: str, part: str = "") -> None:
        self.driver.get(f"{agent.url}/#token={token}")
        self.until(lambda: self.shown("#dashboard"))
        if part:
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
        def clicked() -> bool:
            """Where the page draws it again between the look and the click, nothing was clicked."""
            if self.shown(selector):
                self.find(selector).click()
                return True
            return False

        self.until(clicked)

    def keys(self, *keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def until(self, holds: Callable[[], Any]) -> None:
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        gone = (StaleElementReferenceException,)
        WebDriverWait(self.driver, WAIT_SECONDS, 0.05, ignored_exceptions=gone).until(lambda _: holds())

    def shoot(self, name: str) -> None:
        self.driver.save_screenshot(str(self.shots / f"{name}.png"))

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

    def whole(self, selector: str) -> bool:
        """Whether all of an element is on the screen, from left to right."""
        script = (
            "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return box.left >= 0 && box.right <= document.documentElement.clientWidth"
        )
        found: bool = self.driver.execute_script(script, selector)
        return found

    def unnamed(self) -> list[str]:
        """What can be pressed or filled in, is seen, and has no name."""
        script = (
            "return [...document.querySelectorAll('button, a[href], input, select, textarea, summary')]"
            ".filter((each) => each.checkVisibility() && !(each.getAttribute('aria-label') || each.innerText"
            " || each.labels?.[0]?.innerText || '').trim()).map((each) => each.outerHTML)"
        )
        found: list[str] = self.driver.execute_script(script)
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
