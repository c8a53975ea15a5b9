"""The page of artifacts: who may look and promote, by HTTP and in a real browser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from dashboard.browsing import SMALL, WIDE, Browser
from dashboard.opened import OLA, VERA, Opened, Person, lines, opened
from procedures.objects.world import World

from apps.artifacts.making import ADA, FILES, TRUST, Shop, trust_bytes
from bucketmq.apps.artifacts.pages.tabs import tabs

LOOK = ("/api/artifacts/overview", "/api/artifacts/gate", "/api/artifacts/difference")
PROMOTE = {"name": "shop", "version": "1.1", "environment": "staging"}
ROLLBACK = {"name": "shop", "environment": "production"}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    world = World("copying", prefix="")
    made = Shop(world, tmp_path / "files")
    made.publish("1.0")
    made.publish("1.1", {**FILES, "README": b"Acme shop, with cake", "app/cake.py": b"cake = 5\n"})
    made.in_production("1.0")
    yield made
    world.close()


@contextlib.contextmanager
def page(shop: Shop, folder: Path, *, key: bool = True) -> Iterator[Opened]:
    pin, secret = folder / "trust.json", folder / "ada.key"
    pin.write_bytes(trust_bytes(TRUST))
    secret.touch(0o600)
    secret.write_bytes(ADA._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    added = tabs(trust=str(pin), key=str(secret) if key else "")
    with opened(shop.world.store, tabs=added) as made:
        yield made


def test_who_is_not_logged_in_sees_nothing_and_who_only_looks_changes_nothing(shop: Shop, tmp_path: Path) -> None:
    with page(shop, tmp_path) as agent:
        assert {agent.http.get(path).status_code for path in LOOK} == {401}
        assert agent.http.post("/api/artifacts/promote", json=PROMOTE).status_code == 401
        with Person(agent.url, VERA) as vera:
            found = vera.get("/api/artifacts/overview")
            assert vera.status("/api/artifacts/promote", **PROMOTE) == 403
            assert vera.status("/api/artifacts/rollback", **ROLLBACK) == 403
    (artifact,) = found["artifacts"]
    assert artifact["name"] == "shop"
    assert artifact["cells"]["production"]["current"]["version"] == "1.0"
    assert artifact["cells"]["staging"]["health"] == "1 healthy"
    assert [each["version"] for each in artifact["builds"]] == ["1.1", "1.0"]
    assert shop.pointer("staging").current.counter == 1


def test_a_promotion_is_in_the_history_by_name_and_has_its_audit_line(shop: Shop, tmp_path: Path) -> None:
    with page(shop, tmp_path) as agent, Person(agent.url, OLA) as ola:
        gate = ola.get("/api/artifacts/gate", name="shop", version="1.1", environment="production")
        assert gate["open"] is False and len(gate["missing"]) == 2
        refused = ola.http.post("/api/artifacts/promote", json={**PROMOTE, "environment": "production"})
        assert refused.status_code == 409 and "may not go to production" in refused.json()["error"]
        done = ola.post("/api/artifacts/promote", **PROMOTE, why="cake")
        assert (done["version"], done["by"], done["why"], done["new"]) == ("1.1", "ola", "cake", True)
        differs = ola.get("/api/artifacts/difference", name="shop", before="1.0", after="1.1")
        assert [each["path"] for each in differs["added"]] == ["app/cake.py"]
        back = ola.http.post("/api/artifacts/rollback", json={"name": "shop", "environment": "staging", "to": "1.0"})
        assert back.json()["counter"] == 3
        bad = ola.http.post("/api/artifacts/promote", json={**PROMOTE, "version": "../../x"})
        assert bad.status_code == 400
    assert [each.by for each in shop.pointer().history] == ["ola", "ola", "ada"]
    written = [(each.by, each.did, each.to) for each in lines(shop.connect()) if each.did in ("promote", "rollback")]
    assert ("ola", "promote", "shop 1.1 to staging") in written and ("ola", "rollback", "shop in staging") in written


def test_a_page_without_a_key_only_shows(shop: Shop, tmp_path: Path) -> None:
    with page(shop, tmp_path, key=False) as agent, Person(agent.url, OLA) as ola:
        assert ola.get("/api/artifacts/overview")["can_sign"] is False
        refused = ola.http.post("/api/artifacts/promote", json=PROMOTE)
        assert refused.status_code == 403 and "no key to sign with" in refused.json()["error"]
    assert shop.pointer().current.counter == 1


def test_what_nobody_trusted_has_signed_is_shown_as_such(shop: Shop, tmp_path: Path) -> None:
    shop.world.write("env/production/shop.json", b"{}")
    with page(shop, tmp_path) as agent, Person(agent.url, OLA) as ola:
        (artifact,) = ola.get("/api/artifacts/overview")["artifacts"]
    assert artifact["cells"]["production"]["current"] is None
    assert "cannot be read" in artifact["cells"]["production"]["problem"]


@pytest.mark.slow
@pytest.mark.xdist_group("browser")
def test_promote_and_roll_back_in_a_browser(browser: Browser, shop: Shop, tmp_path: Path) -> None:
    browser.expected = ["status of 409", "status of 404"]
    with page(shop, tmp_path) as agent:
        try:
            browser.enter(agent, OLA, "artifacts")
            browser.until(lambda: "1.0" in browser.text("[data-environment=production] .version"))
            browser.shoot("artifacts-wide")
            browser.click("[data-promote=production]")
            browser.until(
                lambda: browser.shown("#gate .chip.good"),
            )
            browser.find("#promote-version").send_keys("1.1")
            browser.until(lambda: "must approve" in browser.text("#gate") and "not this" in browser.text("#gate"))
            assert not browser.find("dialog button[value=yes]").is_enabled()
            browser.shoot("artifacts-gate")
            browser.keys("\ue00c")
            browser.until(lambda: not browser.all("dialog"))
            browser.click("[data-promote=staging]")
            browser.until(lambda: browser.shown("#gate .chip.good"))
            browser.find("#promote-why").send_keys("cake", "\ue007")  # by keyboard
            browser.until(lambda: browser.text("[data-environment=staging] .version") == "1.1")
            browser.click("[data-rollback=staging]")
            browser.find("#rollback-why").send_keys("too dear", "\ue007")
            browser.until(lambda: browser.text("[data-environment=staging] .version") == "1.0")
            browser.find("summary").click()
            browser.until(lambda: "too dear" in browser.text("details"))
            browser.all("summary")[1].click()
            browser.click("[data-compare=shop]")
            browser.until(lambda: "app/cake.py" in browser.text(".difference"))
            browser.shoot("artifacts-history")
            for name, size, dark in (("dark", WIDE, True), ("small", SMALL, False), ("small-dark", SMALL, True)):
                browser.size(*size, dark=dark)
                browser.until(browser.fits)
                browser.until(lambda: browser.driver.execute_script("return document.getAnimations().length === 0"))
                browser.shoot(f"artifacts-{name}")
        finally:
            browser.driver.get("about:blank")
    assert [(each.did, each.why) for each in shop.pointer().history][:2] == [
        ("rolled back", "too dear"),
        ("promoted", "cake"),
    ]
