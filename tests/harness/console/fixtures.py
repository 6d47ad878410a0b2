"""Defines the fixtures of the console's tests."""

import pytest

from tests.harness.console.harness import console, until_complete


@pytest.fixture
def served(team):
    with console(team) as made:
        until_complete(made)
        yield made


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415 - an extra

    from tests.harness.console.browsing import CHROMIUM, LIMIT  # noqa: PLC0415

    with sync_playwright() as playwright:
        # Chromium's sandbox does not work for root, and in a container root runs the
        # tests. The browser needs no sandbox, because it opens only our own pages.
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        expect.set_options(timeout=LIMIT)
        yield made
        made.close()
