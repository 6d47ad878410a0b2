"""Fixtures of the console's tests."""

import pytest

from tests.harness.console.harness import console, until_complete


@pytest.fixture
def served(team):
    with console(team) as made:
        until_complete(made)
        yield made


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415 - of ci

    from tests.harness.console.browsing import CHROMIUM, LIMIT  # noqa: PLC0415 - it too

    with sync_playwright() as playwright:
        # Root, in a container, has no sandbox; the opened pages are our own.
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        expect.set_options(timeout=LIMIT)
        yield made
        made.close()
