"""The console in Chromium: opening it, and what operators do there again and again."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = os.environ.get("SAFECONSUMER_TEST_SCREENSHOTS")
LIMIT = 20_000.0


class Reached(Protocol):
    """A console that can be opened."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def link(self) -> str:
        """The link that its command prints; it works once."""


@contextmanager
def opened(browser: Browser, served: Reached, **options: Any) -> Iterator[Page]:  # noqa: ANN401 - Playwright's
    """Open the console; afterwards nothing was asked of others, and nothing failed."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.on("pageerror", lambda one: failed.append(str(one)))
    page.on("dialog", lambda one: failed.append(one.message))
    page.on(
        "console",
        lambda one: failed.append(one.text) if one.type == "error" else None,
    )
    page.goto(served.link)
    page.wait_for_url(f"{served.url}/")
    yield page
    context.close()
    assert [url for url in asked if not url.startswith(f"{served.url}/")] == []
    refused = ("ERR_CONNECTION", "ERR_INCOMPLETE", "status of 4", "status of 5")
    assert [text for text in failed if not any(one in text for one in refused)] == []


def go(page: Page, served: Reached, path: str, **query: str) -> None:
    page.goto(f"{served.url}{path}?{urlencode(query)}")


def place(page: Page, served: Reached, **wish: str) -> None:
    """Fill in the form, look at the preview, and place it."""
    go(page, served, "/place", group=wish["group"])
    page.get_by_label("What", exact=True).fill(wish["scopes"])
    page.get_by_label("Why", exact=True).fill(wish.get("reason", "a test"))
    page.get_by_label("For how long").fill(wish.get("for_", ""))
    page.get_by_role("button", name="Preview").click()
    hold = page.get_by_role("button", name="Hold ", exact=False)
    hold.wait_for()  # a click does not wait for the page that it leads to
    agree = page.get_by_role("checkbox")
    if agree.count():
        agree.check()
    hold.click()
    page.wait_for_url(f"{served.url}/group?**")


def shoot(page: Page, name: str) -> None:
    """Keep a picture of the page, if somebody wants it."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def check_accessible(page: Page) -> None:
    """Ask axe; what it calls serious or critical is none of ours."""
    found = Axe().run(page).response["violations"]
    grave = [
        (one["id"], [node["html"] for node in one["nodes"]])
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]
    assert grave == []
