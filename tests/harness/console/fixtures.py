"""What tests of the console share."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.harness.console.browsing import CHROMIUM, LIMIT
from tests.harness.console.harness import Served, console, until_complete
from tests.harness.group.team import Team


@pytest.fixture
def served(team: Team) -> Iterator[Served]:
    with console(team) as made:
        until_complete(made)
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Root, in a container, has no sandbox; what is opened is our own.
        made = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        expect.set_options(timeout=LIMIT)
        yield made
        made.close()
