"""Many tabs of the console in one browser, and tabs that nobody feeds."""

from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.harness.console.browsing import CHROMIUM, go, opened
from tests.harness.console.harness import (
    Served,
    row_of,
    settled,
    until_level,
    until_settled,
)
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

pytestmark = [
    pytest.mark.nightly,  # three journeys of test_browser.py run each time
    pytest.mark.embedded_broker,  # it is about browsers
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

# More than a browser has connections for one console.
TABS = 9


def test_any_number_of_tabs(team: Team, served: Served, browser: Browser) -> None:
    """Each is loaded and follows; six streams would have left none for the others."""
    members = settled(team, "a")
    with Polled(*members), ExitStack() as closing:
        until_settled(served, team.group, members=1, reporting=1)
        first = closing.enter_context(opened(browser, served))
        tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
        for one in tabs:
            go(one, served, "/group", group=team.group)
        team.operator_holds(team.topic)
        for one in tabs:
            quiet = one.get_by_text("1 of 1 members quiet")
            expect(quiet).to_be_visible(timeout=5000)
        tabs[0].get_by_role("link", name="Hold something…").click()
        tabs[0].wait_for_url(f"{served.url}/place?**")


def test_a_console_that_stopped_answering_is_said_to(
    team: Team, served: Served, browser: Browser
) -> None:
    """It takes connections and says nothing: the page waits 5 s, then says so."""
    members = settled(team, "a")
    team.operator_holds(team.topic)
    with Polled(*members), opened(browser, served) as page:
        until_level(served, team.group, "quiet")
        go(page, served, "/group", group=team.group)
        kept: list[Route] = []

        def keep(route: Route) -> None:
            kept.append(route)

        page.route("**/group?**", keep)
        said = page.get_by_text("The console does not answer.")
        expect(said).to_be_visible(timeout=10_000)
        expect(page.locator("body.old")).to_be_visible(timeout=15_000)
        assert "grayscale" in filter_of(page, "main .verdict")
        page.unroute("**/group?**")
        expect(said).to_be_hidden(timeout=10_000)
        expect(page.locator("body.old")).to_have_count(0)
        assert filter_of(page, "main .verdict") == "none"


def filter_of(page: Page, selector: str) -> str:
    found: str = page.locator(selector).evaluate("one => getComputedStyle(one).filter")
    return found


def test_what_the_console_answers_instead_is_said(
    team: Team, served: Served, browser: Browser
) -> None:
    """A group that is gone is not shown on as if it were there."""
    team.operator_holds(team.topic)
    with opened(browser, served) as page:
        wait_for(lambda: row_of(served, team.group), "the hold")
        go(page, served, "/group", group=team.group)
        team.operator_lifts(team.topic)
        expect(page.locator("#lost")).to_contain_text(
            f"The console answers: no group '{team.group}' here",
            timeout=20_000,  # until it has read what was written, and the page asks
        )


def test_a_tab_that_nobody_sees_asks_nothing(served: Served, browser: Browser) -> None:
    """And looks again at once when somebody does."""
    with opened(browser, served) as page:
        page.clock.install()
        go(page, served, "/")
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url))
        page.evaluate(_HIDDEN % "true")
        asked.clear()
        page.clock.run_for(60_000)
        assert asked == []
        page.evaluate(_HIDDEN % "false")
        page.evaluate("dispatchEvent(new Event('visibilitychange'))")
        wait_for(lambda: page.evaluate("document.hidden") or asked, "a look")


_HIDDEN = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true})"
