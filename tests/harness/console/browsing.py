"""Opens the console in Chromium, and checks its pages."""

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
    """Open the console; finally check for requests to other hosts and for script errors."""
    context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    urls = []
    failed = []
    page.on("request", lambda one: urls.append(one.url))
    page.on("pageerror", lambda one: failed.append(str(one)))
    page.on("dialog", lambda one: failed.append(one.message))
    page.on(
        "console", lambda one: failed.append(one.text) if one.type == "error" else None
    )
    page.goto(served.link)
    page.wait_for_url(f"{served.url}/")
    yield page
    context.close()
    assert [url for url in urls if not url.startswith(f"{served.url}/")] == []
    refused = ("ERR_CONNECTION", "ERR_INCOMPLETE", "status of 4", "status of 5")
    assert [text for text in failed if not any(one in text for one in refused)] == []


def go(page, served, path, **query):
    page.goto(f"{served.url}{path}?{urlencode(query)}")


def fill_in(page, **fields):
    for label, text in fields.items():
        page.get_by_label(label, exact=True).fill(text)


def shoot(page, name):
    """Take a screenshot of the page if an environment variable names a folder for it."""
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def check_accessible(page):
    """Check that axe finds no violation."""
    found = Axe().run(page).response["violations"]
    faults = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
    assert not faults


def check_readable(page, name):
    """Check the page in the light and the dark colour scheme, on a desktop and on a phone."""
    size = page.viewport_size
    for scheme in ("light", "dark"):
        # With reduced motion the colours change immediately.
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
