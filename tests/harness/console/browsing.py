"""The console in Chromium: opening it, and what operators do there again and again."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from axe_playwright_python.sync_playwright import Axe

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = os.environ.get("SAFECONSUMER_TEST_SCREENSHOTS")
LIMIT = 20_000.0


@contextmanager
def opened(browser, served, **options):
    """Open the console; afterwards nothing was asked of others, and nothing failed."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    asked = []
    failed = []
    page.on("request", lambda one: asked.append(one.url))
    page.on("pageerror", lambda one: failed.append(str(one)))
    page.on("dialog", lambda one: failed.append(one.message))
    page.on(
        "console", lambda one: failed.append(one.text) if one.type == "error" else None
    )
    page.goto(served.link)
    page.wait_for_url(f"{served.url}/")
    yield page
    context.close()
    assert [url for url in asked if not url.startswith(f"{served.url}/")] == []
    refused = ("ERR_CONNECTION", "ERR_INCOMPLETE", "status of 4", "status of 5")
    assert [text for text in failed if not any(one in text for one in refused)] == []


def go(page, served, path, **query):
    page.goto(f"{served.url}{path}?{urlencode(query)}")


def fill_in(page, **fields):
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)


def shoot(page, name):
    """Keep a picture of the page, if somebody wants it."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def check_accessible(page):
    """Ask axe, which finds nothing."""
    found = Axe().run(page).response["violations"]
    said = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
    assert not said, said


def check_readable(page, name):
    """Check light and dark on a desk and on a phone, where reasons have their room."""
    size = page.viewport_size
    for scheme in ("light", "dark"):
        # Colours change slowly, unless a reader wants less motion.
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for width in (390, 1200):
            page.set_viewport_size({"width": width, "height": 800})
            check_accessible(page)
            shoot(page, f"{name}-{width}-{scheme}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for one in page.locator(".stack td:visible").all():
                box = one.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= width
            long = page.locator("tbody .long:visible").all()
            assert min(one.bounding_box()["width"] for one in long) >= 200
    assert size is not None
    page.set_viewport_size(size)
