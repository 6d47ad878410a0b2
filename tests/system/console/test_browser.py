"""Tests the console in Chromium."""

import re
import socket

import pytest
from attrs import evolve
from kafka.structs import OffsetAndMetadata
from playwright.sync_api import expect

from safeconsumer.console import serve
from safeconsumer.group.view import Times
from tests.harness.console.browsing import (
    CHROMIUM,
    check_accessible,
    check_readable,
    fill_in,
    go,
    opened,
    shoot,
)
from tests.harness.console.harness import (
    HELD,
    Served,
    console,
    console_of,
    groups,
    until_level,
    until_settled,
)
from tests.harness.group.team import settled
from tests.harness.members import Polled

# The pages behave in the same way with every kind of broker.
pytestmark = [
    pytest.mark.any_broker,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


def test_hold_is_previewed_placed_extended_and_lifted(team, served, browser):
    members = settled(team, "billing-1", "billing-2")
    for one in members:
        one.commit({tp: OffsetAndMetadata(3, "", -1) for tp in one.assignment()})
    with Polled(*members), opened(browser, served) as page:
        until_settled(served, team.group, members=2, reporting=2)
        check_accessible(page)
        go(page, served, "/group", group=team.group)
        page.get_by_role("link", name="Place a hold…").click()
        fill_in(page, Scopes=team.topic, Reason="DB-4211: the invoices table moves")
        page.get_by_label("For how long").fill("1h")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("would last 1h")).to_be_visible()
        check_accessible(page)
        page.get_by_label("For how long").fill("9h")
        page.get_by_role("button", name=f"Hold {team.topic}").click()
        expect(page.get_by_text("This is not what was previewed")).to_be_visible()
        expect(page.get_by_text("would last 9h")).to_be_visible()
        shoot(page, "place")
        page.get_by_role("button", name=f"Hold {team.topic}").click()
        expect(page.get_by_text("2 of 2 members quiet")).to_be_visible()
        expect(page.get_by_text(re.compile("in (8h|9h)"))).to_be_visible()
        check_readable(page, "group")
        go(page, served, "/")
        check_readable(page, "groups")
        go(page, served, "/group", group=team.group)
        page.get_by_role("link", name="Move to other offsets…").click()
        fill_in(page, Scopes=team.topic, To="0")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("button", name=f"Move {team.topic}")).to_be_visible()
        check_accessible(page)
        shoot(page, "reset")
        go(page, served, "/group", group=team.group)
        page.get_by_role("link", name=f"Extend {team.topic} of alice").click()
        page.get_by_label("For how long, counted from now").fill("12h")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("would last 12h")).to_be_visible()
        check_accessible(page)
        page.get_by_role("button", name=f"Extend {team.topic}").click()
        expect(page.get_by_text(re.compile("in (11h|12h)"))).to_be_visible()
        page.get_by_role("link", name=f"Lift {team.topic} of alice").click()
        expect(page.get_by_text("4 partitions flow again")).to_be_visible()
        check_accessible(page)
        page.get_by_role("button", name="Lift ").click()
        expect(page.get_by_text("The group has no holds.")).to_be_visible()
        go(page, served, "/history", group=team.group)
        check_readable(page, "history")


def test_lifting_a_hold_of_another_owner_requires_typing_its_scope(
    team, served, browser
):
    members = settled(team, "a")
    with Polled(*members), console(team, owner="bob") as other:
        until_settled(other, team.group, members=1, reporting=1)
        with opened(browser, served) as alice, opened(browser, other) as bob:
            go(bob, other, "/group", group=team.group)
            fields = {"group": team.group, "scopes": team.topic, "reason": "a test"}
            go(alice, served, "/place", **fields)
            alice.get_by_role("button", name="Hold ").click()
            bob.get_by_role("link", name=f"Lift {team.topic} of alice").click()
            bob.get_by_label("not by you: type").fill("no")
            bob.get_by_role("button", name="Lift ").click()
            expect(bob.get_by_role("alert")).to_contain_text("is held by alice")
            bob.get_by_label("not by you: type").fill(team.topic)
            bob.get_by_role("button", name="Lift ").click()
            for one in (alice, bob):
                expect(one.get_by_text("The group has no holds.")).to_be_visible()


def test_page_refreshes_and_keeps_focus_and_text(team, served, browser):
    """The whole test uses only the keyboard."""
    members = settled(team, "a")
    with Polled(*members), opened(browser, served) as page:
        until_settled(served, team.group, members=1, reporting=1)
        go(page, served, "/group", group=team.group)
        tab_to(page, "Place a hold…")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{served.url}/place?**")
        fill_in(page, Scopes=f"{team.topic}:0", Reason="x")
        page.keyboard.press("Enter")
        quiet = page.get_by_text("would cover 1 partition")
        expect(quiet).to_be_visible()
        tab_to(page, "reason")
        page.keyboard.type("by keyboard")
        team.operator_holds(f"{team.topic}:0", owner="bob")
        expect(page.get_by_text("Existing holds that also apply")).to_be_visible()
        assert page.evaluate("document.activeElement.id") == "reason"
        expect(page.locator("#reason")).to_have_value("by keyboard")
        page.keyboard.press("Enter")
        page.wait_for_url("**reason=by+keyboard**")
        tab_to(page, f"Hold {team.topic}:0")
        page.keyboard.press("Enter")
        expect(page.get_by_text("1 of 1 members quiet")).to_be_visible()
        until_level(served, team.group, "quiet")


def test_countdown_of_an_open_page_follows_the_brokers_clock(browser):
    """Responses with status 304 carry the broker's time; the browser's clock may jump."""
    still = groups()
    with socket.create_server((serve.HOST, 0)) as listener:
        port = listener.getsockname()[1]
        served = Served(console_of(still, port=port).state, listener)
        with served, opened(browser, served) as page:
            go(page, served, "/group", group=HELD)
            until = page.locator("[data-at]").last
            expect(until).to_have_text(re.compile("in (1h|59m)"))
            page.evaluate("(now => { Date.now = () => now() + 7200000 })(Date.now)")
            page.evaluate("look()")
            assert re.fullmatch("in (1h|59m.*)", until.text_content())
            times = Times(still.known.times.now + 1800)
            still.known = evolve(still.known, version=9, times=times)
            expect(until).to_have_text(re.compile("in (30m|29m)"))


def tab_to(page, wanted):
    """Press Tab until the element with this text or id has a visible focus outline."""
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
