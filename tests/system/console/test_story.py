"""An operator's whole story in Chromium, with the rights that are printed and no more."""

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from safeconsumer.cli.errors import Status
from tests.harness.brokers import choice
from tests.harness.console.browsing import CHROMIUM, go, opened, place
from tests.harness.console.harness import Commanded, commanded
from tests.harness.group.story import OWNER, Story, played
from tests.harness.members import Polled

pytestmark = [
    pytest.mark.nightly,  # three journeys of test_browser.py run each time
    pytest.mark.real_broker,  # one of its own, but not where none can be expected
    pytest.mark.skipif(
        choice._why_no_java() is not None, reason=f"{choice._why_no_java()}"
    ),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

# Two seconds are the least in which a page can show that a hold began and ended.
BRIEFLY = "15s"


_SIZES = """
[...document.querySelectorAll("main *")].map(
  one => parseFloat(getComputedStyle(one).fontSize))
"""
_NOTES = """
const note = () => {
  const one = document.querySelector("main .verdict");
  if (one) verdict(`${one.className}: ${one.innerText}`);
};
addEventListener("DOMContentLoaded", () => {
  note();
  new MutationObserver(note).observe(document.body,
    {attributes: true, characterData: true, childList: true, subtree: true});
});
"""


class InBrowser:
    """Alice at her browser; every verdict that a page showed meanwhile is kept."""

    def __init__(self, story: Story, console: Commanded, page: Page) -> None:
        self._story, self._console, self._page = story, console, page
        self._group, self._topic = story.team.group, story.team.topic
        self._shown: list[str] = []
        page.expose_function("verdict", self._note)
        page.add_init_script(_NOTES)

    def _note(self, verdict: str) -> None:
        self._shown.append(verdict)

    @property
    def _verdict(self) -> Locator:
        return self._page.locator("main .verdict")

    def _go(self, path: str, **query: str) -> None:
        go(self._page, self._console, path, group=self._group, **query)

    def _place(self, scopes: str, **wish: str) -> None:
        place(
            self._page,
            self._console,
            group=self._group,
            scopes=scopes,
            reason="x",
            **wish,
        )

    def _took_down(self) -> list[str]:
        # What was shown since the last time, and nothing twice.
        taken = list(dict.fromkeys(self._shown))
        self._shown.clear()
        return taken

    def look_first(self) -> None:
        self._go("/history")
        expect(self._page.locator(".empty")).to_contain_text("no record of any hold")
        self._go("/place", scopes=self._topic, reason="x")
        points = self._page.locator(".points li")
        kept = f"retention ends BEFORE the hold does: {self._topic} deletes records"
        expect(points).to_have_text(
            [
                f"would cover 4 partitions: {self._topic}:0-3",
                "0 records wait there already",
                "would last until it is resumed",
                f"{kept} after 1w",
            ]
        )
        expect(self._page.get_by_role("checkbox")).to_have_count(0)
        self._go("/history")
        expect(self._page.locator(".empty")).to_contain_text("no record of any hold")

    def pause_and_wait(self) -> None:
        self._place(self._topic)
        expect(self._verdict).to_contain_text("All 4 held partitions are quiet.")
        shown = self._took_down()
        assert [one for one in shown if "alarm" in one or "unknown" in one] == []
        assert self._page.evaluate("window.isSamePage = true")

    def see_a_rebalance(self) -> None:
        rows = self._page.locator("section[aria-labelledby=members] tbody tr")
        expect(rows).to_have_count(2)
        expect(self._verdict).to_contain_text("All 4 held partitions are quiet.")
        lags = self._page.locator("section[aria-labelledby=partitions] td.n")
        expect(lags).to_have_text(["3"] * 4)
        # Both obeyed all the while, and nobody delivered anything.
        assert [one for one in self._took_down() if "alarm" in one] == []

    def see_who_ignores_it(self) -> None:
        expect(self._verdict).to_have_class("verdict unknown")
        expect(self._verdict).to_contain_text("plain does not report")
        self._took_down()
        for row in (self._row("members", "plain"), self._row("partitions", "plain")):
            expect(row.locator(".pill")).to_have_text("cannot tell")
            expect(row.locator(".pill")).to_have_class("pill unknown")
        self._see_what_follows(2)
        assert [one for one in self._took_down() if "unknown" not in one] == []
        self._check_loudest(".verdict.unknown")
        assert self._page.evaluate("window.isSamePage")  # it followed by itself
        self._page.get_by_role("link", name="Groups", exact=True).first.click()
        expect(self._page.locator("p.verdict")).to_have_class("verdict unknown")
        row = self._page.locator("tbody tr").first
        expect(row.get_by_role("link")).to_have_text(self._group)
        expect(row.locator(".pill")).to_have_text("cannot tell")
        self._check_loudest(".verdict.unknown")
        row.get_by_role("link").click()

    def _row(self, section: str, text: str) -> Locator:
        rows = self._page.locator(f"section[aria-labelledby={section}] tbody tr")
        return rows.filter(has_text=text)

    def _see_what_follows(self, times: int) -> None:
        live = self._page.locator("#live")
        for _ in range(times):
            version = str(live.get_attribute("data-version"))
            expect(live).not_to_have_attribute("data-version", version)

    def _check_loudest(self, what: str) -> None:
        sizes = self._page.evaluate(_SIZES)
        here = self._page.locator(what)
        said = here.evaluate("one => parseFloat(getComputedStyle(one).fontSize)")
        assert said >= sorted(set(sizes))[-2]  # only the heading is larger

    def see_that_it_left(self) -> None:
        expect(self._verdict).to_contain_text("All 4 held partitions are quiet.")

    def lift(self) -> None:
        self._page.get_by_role("link", name=f"Lift {self._topic} of alice").click()
        expect(self._page.locator(".points")).to_contain_text("4 partitions flow again")
        expect(self._page.locator(".points")).to_contain_text("12 records come at once")
        self._page.get_by_role("button", name="Lift ").click()
        expect(self._verdict).to_contain_text("Nothing of this group is held.")

    def let_expire(self) -> None:
        self._place(f"{self._topic}:0-1", for_=BRIEFLY)
        expect(self._verdict).to_contain_text("All 2 held partitions are quiet.")
        expect(self._verdict).to_contain_text(
            "Nothing of this group is held.", timeout=60_000
        )

    def see_history(self) -> None:
        self._go("/history")
        shown = [
            (" ".join(row.locator("td").nth(1).inner_text().split()), row)
            for row in self._page.locator("tbody tr").all()
        ]
        assert [(what, row.locator("th").inner_text()) for what, row in shown] == [
            (f"held for {BRIEFLY}", f"{self._topic}:1"),
            (f"held for {BRIEFLY}", f"{self._topic}:0"),
            ("lifted", self._topic),
            ("held", self._topic),
        ]


def test_an_operators_story(story: Story, browser: Browser) -> None:
    """Alice has the rights that ``control init`` prints, and no more."""
    alices = story.where("alice")
    with (
        commanded(*alices, "--owner", "alice") as console,
        opened(browser, console) as page,
    ):
        played(story, InBrowser(story, console, page))


def test_who_may_not_write_is_told_so(story: Story, browser: Browser) -> None:
    """In Kafka's words, and nothing is placed; with the right it goes on at once."""
    team, member = story.team, story.member("billing-1")
    team.settled(member)
    story.let_watch("watcher")
    wish = {"group": team.group, "scopes": team.topic}
    with (
        Polled(member),
        commanded(*story.where("watcher"), "--owner", "watcher") as console,
        opened(browser, console) as page,
    ):
        go(page, console, "/place", **wish, reason="x")
        expect(page.locator(".points")).to_contain_text("would cover 4 partitions")
        expect(page.get_by_role("checkbox")).to_have_count(0)
        page.get_by_role("button", name="Hold ").click()
        refused = page.get_by_role("alert")
        expect(refused).to_contain_text("TopicAuthorizationFailedError")
        expect(refused).to_contain_text(team.settings.operator_topic)
        go(page, console, "/group", group=team.group)
        expect(page.get_by_text("Nothing is held.")).to_be_visible()
        go(page, console, "/history")
        expect(page.locator(".empty")).to_contain_text("no record of any hold")
        assert story.alice("history").stdout == "nothing\n"
        story.let_write("watcher")
        place(page, console, **wish)
        expect(page.get_by_text("All 4 held partitions are quiet.")).to_be_visible()


def test_who_may_not_read_reports_sees_holds(story: Story, browser: Browser) -> None:
    """And that nobody can tell who obeys, with the topic and what would be needed."""
    team, member = story.team, story.member("billing-1")
    team.settled(member)
    unread = f"no right to read {team.settings.status_topic}: safeconsumer control acls"
    with (
        Polled(member),
        commanded(*story.where("member"), "--owner", "member") as console,
        opened(browser, console) as page,
    ):
        expect(page.locator(".banner")).to_contain_text(unread)
        held = story.alice("pause", team.topic, "--reason", "x", *OWNER)
        assert held.exit_code == Status.DONE, held.stderr
        go(page, console, "/group", group=team.group)
        expect(page.locator("table.holds tbody")).to_contain_text("alice")
        expect(page.locator(".verdict")).to_have_class("verdict unknown")
        expect(page.locator(".fresh:not(.gone)")).to_be_visible()
    shown = story.run("member", "status", "--group", team.group).stdout
    assert unread in shown
