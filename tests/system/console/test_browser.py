"""The console in Chromium, as operators use it."""

from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from safeconsumer.console.serve import Setup
from safeconsumer.demo import fleet
from safeconsumer.group.settings import Control
from safeconsumer.testing import EmbeddedBroker
from tests.harness.console.browsing import (
    CHROMIUM,
    LIMIT,
    check_accessible,
    go,
    opened,
    place,
    shoot,
)
from tests.harness.console.harness import (
    TOKEN,
    Served,
    console,
    row_of,
    serving,
    settled,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import looks, wait_for

# What a page does with what is known is the same on every kind of broker, and is tried
# on one.
pytestmark = [
    pytest.mark.any_broker,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


def test_pause_to_quiet_and_back(team: Team, served: Served, browser: Browser) -> None:
    """Preview, place, quiet, why, lift: with real members, and the page follows."""
    members = settled(team, "billing-1", "billing-2")
    with Polled(*members), opened(browser, served) as page:
        until_settled(served, team.group, members=2, reporting=2)
        go(page, served, "/place", group=team.group)
        shoot(page, "place")
        place(
            page,
            served,
            group=team.group,
            scopes=team.topic,
            reason="DB-4211: the invoices table moves",
            for_="2h",
        )
        expect(page.get_by_text("2 of 2 members quiet")).to_be_visible(timeout=LIMIT)
        shoot(page, "group")
        check_accessible(page)
        page.get_by_role("link", name=f"{team.topic}:2").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"{team.topic}:2")
        expect(page.locator(".verdict")).to_contain_text("held by alice until")
        shoot(page, "partition")
        check_accessible(page)
        page.get_by_role("link", name=f"Lift {team.topic} of alice").click()
        expect(page.get_by_text("4 partitions flow again")).to_be_visible()
        check_accessible(page)
        page.get_by_role("button", name="Lift ").click()
        expect(page.get_by_text("Nothing is held.")).to_be_visible(timeout=LIMIT)
        go(page, served, "/history", group=team.group)
        expect(page.locator("tbody tr")).to_have_count(2)
        check_accessible(page)


@pytest.mark.embedded_broker
def test_a_form_that_was_left_open(
    team: Team, served: Served, browser: Browser
) -> None:
    """What stands by then is shown anew, and done only if it is agreed to."""
    members = settled(team, "a")
    with Polled(*members), opened(browser, served) as page:
        until_settled(served, team.group, members=1, reporting=1)
        go(page, served, "/place", group=team.group, scopes="@all", reason="x")
        page.get_by_role("checkbox").check()
        asked: list[Route] = []

        def only_what_is_clicked(route: Route) -> None:
            if route.request.resource_type == "fetch":
                asked.append(route)
            else:
                route.continue_()

        # Or it would show the hold in time. It asks one thing after the other: once
        # this one has no answer, none is under way.
        page.route("**/*", only_what_is_clicked)
        for _ in looks(lambda: asked, "the page to ask"):
            page.wait_for_timeout(20)
        team.operator_holds("@all")
        page.get_by_role("button", name="Hold @all").click()
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("This is not what was agreed to.")
        page.unroute("**/*")
        check_accessible(page)
        assert not page.get_by_role("checkbox").is_checked()
        page.get_by_label("Replace what you hold already: @all").check()
        page.get_by_role("button", name="Hold @all").click()
        page.wait_for_url(f"{served.url}/group?**")
        page.get_by_role("link", name="Lift @all of alice").click()
        team.operator_holds("@all")
        page.get_by_role("button", name="Lift @all").click()
        expect(page.get_by_role("alert")).to_contain_text(
            "the hold on @all has changed."
        )
        expect(page.get_by_role("cell", name="test", exact=True)).to_be_visible()
        page.get_by_role("button", name="Lift @all").click()
        expect(page.get_by_text("Nothing is held.")).to_be_visible()


@pytest.mark.nightly
def test_a_member_that_does_not_obey_is_the_loudest(
    team: Team, served: Served, browser: Browser
) -> None:
    """It says that it has read everything, and delivers what is held."""
    members = settled(team, "billing-1", "billing-2")
    state: Any = members[1]._safe_control._state
    state._apply = lambda _fresh: None  # a defect: it reads, and does not obey
    with Polled(*members), opened(browser, served) as page:
        until_settled(served, team.group, members=2, reporting=2)
        place(page, served, group=team.group, scopes=team.topic)
        loud = page.locator(".verdict.alarm")
        expect(loud).to_contain_text("1 of 2 members quiet; flowing:")
        owned = sorted(members[1].assignment())
        for tp in owned:
            expect(
                loud.get_by_role("link", name=f"{tp.topic}:{tp.partition}")
            ).to_have_count(1)
        members_table = page.get_by_role("row", name="billing-2").first
        expect(members_table.locator(".pill")).to_have_text("does not obey")
        first = page.locator("section:last-of-type tbody tr").first
        expect(first).to_have_class("alarm")
        shoot(page, "alarm")
        check_accessible(page)
        go(page, served, "/")
        expect(page.locator(".verdict.alarm")).to_be_visible()
        expect(page.locator("tbody tr").first).to_have_class("alarm")
        size = page.evaluate(
            "[...document.querySelectorAll('main *')].map(one =>"
            " parseFloat(getComputedStyle(one).fontSize))"
        )
        alarm = page.evaluate(
            "parseFloat(getComputedStyle(document.querySelector('.alarm')).fontSize)"
        )
        assert alarm >= sorted(set(size))[-2]  # but for the heading nothing is larger
        shoot(page, "groups-alarm")


@pytest.mark.embedded_broker
@pytest.mark.nightly
def test_the_console_itself_is_gone(team: Team, browser: Browser) -> None:
    """A page that nobody feeds any more says so."""
    with ExitStack() as closing:
        served = closing.enter_context(console(team))
        until_complete(served)
        page = closing.enter_context(opened(browser, served))
        served.stop()
        expect(page.get_by_text("The console does not answer.")).to_be_visible()


HOSTILE = "</td><script>document.title='taken'</script><img src=/x onerror=alert(2)>'\""


@pytest.mark.embedded_broker
@pytest.mark.nightly
def test_names_full_of_markup_do_nothing(served: Served, browser: Browser) -> None:
    """Not when a page is loaded, nor when it follows what happens."""
    with opened(browser, served) as page:
        wish = {"group": HOSTILE, "scopes": "@all", "reason": HOSTILE}
        assert served.pause(**wish).status_code == 200
        expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
        page.get_by_role("link", name=HOSTILE).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
        expect(page.get_by_role("cell", name=HOSTILE).first).to_be_visible()
        page.get_by_role("link", name="Lift @all of alice").click()
        page.get_by_role("button", name="Lift @all").click()
        expect(page).to_have_url(f"{served.url}/")  # of the group there is nothing left
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.locator("main script, main img").count() == 0
        assert page.title() != "taken"


@pytest.mark.embedded_broker
@pytest.mark.nightly
def test_by_keyboard_alone(team: Team, served: Served, browser: Browser) -> None:
    """Every step of a pause; the focus stays while the page follows."""
    members = settled(team, "a")
    with Polled(*members), opened(browser, served) as page:
        until_settled(served, team.group, members=1, reporting=1)
        go(page, served, "/group", group=team.group)
        tab_to(page, "Hold something…")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{served.url}/place?**")
        tab_to(page, "scopes")
        page.keyboard.type(team.topic)
        page.keyboard.press("Tab")
        page.keyboard.type("by keyboard")
        version = page.locator("#live").get_attribute("data-version")
        expect(page.locator("#live")).not_to_have_attribute(
            "data-version", str(version)
        )
        assert page.evaluate("document.activeElement.id") == "reason"
        expect(page.locator("#reason")).to_have_value("by keyboard")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{served.url}/place?**scopes**")
        tab_to(page, f"Hold {team.topic}")
        page.keyboard.press("Enter")
        expect(page.get_by_text("1 of 1 members quiet")).to_be_visible()


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until something of that text or id has the focus, and shows it."""
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "[document.activeElement.textContent.trim(), document.activeElement.id,"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        if wanted in found[:2]:
            assert found[2] != "none"
            return
    pytest.fail(f"Tab does not get to {wanted}")


def test_two_operators(team: Team, served: Served, browser: Browser) -> None:
    """One sees what the other does, and must type what he lifts of the other's."""
    members = settled(team, "a")
    with (
        Polled(*members),
        console(team, owner="bob") as other,
        opened(browser, served) as alice,
        opened(browser, other) as bob,
    ):
        for one in (served, other):
            until_settled(one, team.group, members=1, reporting=1)
        go(bob, other, "/group", group=team.group)
        place(alice, served, group=team.group, scopes=team.topic)
        bob.get_by_role("link", name=f"Lift {team.topic} of alice").click()
        bob.get_by_label("alice placed this hold, not you").fill("no")
        bob.get_by_role("button", name="Lift ").click()
        expect(bob.get_by_role("alert")).to_contain_text("is held by alice")
        assert row_of(served, team.group)["holds"] == 1
        bob.get_by_label("alice placed this hold, not you").fill(team.topic)
        bob.get_by_role("button", name="Lift ").click()
        expect(bob.get_by_text("Nothing is held.")).to_be_visible()
        expect(alice.get_by_text("Nothing is held.")).to_be_visible()


@pytest.mark.embedded_broker
@pytest.mark.nightly
def test_the_doctor_and_the_login_page_are_accessible(
    served: Served, browser: Browser
) -> None:
    with opened(browser, served) as page:
        check_accessible(page)
        go(page, served, "/doctor")
        check_accessible(page)
    fresh = browser.new_context()
    page = fresh.new_page()
    page.goto(served.url)
    expect(page.get_by_role("heading", name="you are not logged in")).to_be_visible()
    check_accessible(page)
    fresh.close()


@pytest.mark.embedded_broker
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.nightly
def test_both_colour_schemes_can_be_read(
    team: Team, served: Served, browser: Browser, scheme: str
) -> None:
    team.operator_holds(team.topic)
    wait_for(lambda: served.get("holds")["holds"], "the hold")
    with opened(browser, served, color_scheme=scheme) as page:
        check_accessible(page)
        go(page, served, "/group", group=team.group)
        check_accessible(page)
        shoot(page, f"group-{scheme}")


@pytest.mark.embedded_broker
@pytest.mark.nightly
def test_the_demo(browser: Browser) -> None:
    """What ``safeconsumer demo --console`` shows: a quiet group, and one to look at."""
    settings = Control()
    with EmbeddedBroker() as broker, fleet.running(broker, settings):
        setup = Setup(
            base=broker.client_config,
            settings=settings,
            owner="anna",
            port=0,
            token=TOKEN,
        )
        with serving(setup) as served, opened(browser, served) as page:
            until_complete(served)
            until_level(served, "billing", "quiet")
            until_level(served, "shipping", "alarm")  # it commits what is held
            until_settled(served, "billing", members=3, reporting=3)
            wait_for(lambda: row_of(served, "shipping")["quiet"] == 3, "shipping")
            go(page, served, "/")
            row = page.get_by_role("row", name="shipping")
            expect(row.locator(".pill")).to_have_text("held but flowing")
            shoot(page, "demo-groups")
            page.get_by_role("link", name="billing").click()
            expect(page.get_by_text("3 of 3 members quiet")).to_be_visible()
            expect(page.locator("td.n", has_text="unknown")).to_have_count(0)
            shoot(page, "demo-group")
            check_accessible(page)
