"""The picture itself: legal, safe whatever the names, small, and not by colour alone."""

import re
import shutil
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from attrs import evolve

from safeconsumer.audit.findings import Address
from safeconsumer.audit.results import Settings
from safeconsumer.audit.timeline.collect import Collector, Part
from safeconsumer.audit.timeline.page import Picture, drawn
from safeconsumer.errors import JournalError
from tests.harness.audit import bad
from tests.harness.audit.telling import Telling, control_in

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</text><script>alert(1)</script><a href='http://x.example'>\"'&$x^2$%{y}\x00\x1b\u2028]]>"
# No journal has half a character of UTF-16, but the name of a file may.
TROUBLE = f"{EVIL}\ud800"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def story(*journals, part=None, control=None):
    collector = Collector(Settings(control=control))
    for journal in journals:
        collector.read(journal)
    return collector.timeline(part)


def of_fleet(*fleet):
    return story(*(one.journal() for one in fleet), control=control_in(fleet))


def svg(timeline, trouble=""):
    # What was drawn a moment ago by this library.
    return ET.fromstring(drawn(timeline, "svg", trouble))  # noqa: S314


def texts(root):
    names = f"{SVG}text", f"{SVG}tspan"
    return [one.text for one in root.iter() if one.tag in names and one.text]


def test_a_broken_promise_is_seen():
    found = texts(svg(of_fleet(*bad.FLEETS["a1"]())))
    assert "\u2717 1 broken promise: A1 \u00d71" in found
    assert {"7 records, A1 \u00d71", "\u25be A1"} <= {*found}


def test_a_flag_at_the_last_moment_is_inside_the_picture():
    """It was cut off with what lies behind the end, and nobody saw it."""
    root = svg(of_fleet(*bad.FLEETS["a1"]()))
    (flag,) = [one for one in root.iter(f"{SVG}text") if one.text == "\u25be A1"]
    assert flag.get("text-anchor") == "end"


def test_a_good_fleet_is_called_good():
    """No number of a check is anywhere, but of what could not be judged."""
    found = texts(svg(of_fleet(*bad.FLEETS["held_and_let_go"]())))
    assert any("no promise broken" in text for text in found)
    assert not [one for one in found if re.match(r"(\u25be )?[ASLGW]\d", one)]


def untold():
    # G2: nothing says when the operator placed the hold.
    told = Telling().assigned("orders:0").poll("orders:0", 0, 5)
    told.then("hold", scope="orders", owner="operator:eve")
    told.then("lift", scope="orders", owner="operator:eve", since=told.at)
    return told.pause("orders").resume("orders").poll("orders:0", 5, 6)


def test_what_could_not_be_judged_is_not_called_good():
    """Not in the verdict; the lane and the notes say what and why."""
    said = "\n".join(texts(svg(of_fleet(untold()))))
    assert "\u2713" not in said
    assert "no promise broken, not judged: G2" in said
    assert "6 records, not judged: G2" in said
    assert (
        "Not judged: G2 on 1 partition, for members read that operator:eve held" in said
    )


def test_what_stands_beside_a_part_that_is_shown_is_not_denied():
    """A window, or a choice of partitions: the verdict is of what is shown."""
    (told,) = bad.FLEETS["a1"]()
    other = Telling("z").assigned("other:0").poll("other:0", 0, 5)
    fleet = [told.journal(), other.journal()]
    for part in (Part(partitions=frozenset({("other", None)})), Part(end=0.3)):
        said = texts(svg(story(*fleet, part=part)))
        good = "no promise broken in this part, 1 elsewhere"
        assert any(one.startswith(good) for one in said)
    said = texts(svg(story(other.journal(), part=Part(end=0.1))))
    assert "\u2713 no promise broken in this part" in said


def test_it_is_said_to_those_who_do_not_see():
    timeline = of_fleet(*bad.FLEETS["a1"]())
    root = svg(timeline)
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "title desc")
    assert root.findtext(f"{SVG}title") == "Deliveries and holds of g"
    said = root.findtext(f"{SVG}desc") or ""
    assert "1 partition, 1 member" in said
    assert said.endswith("; \u2717 1 broken promise: A1 \u00d71.")
    page = drawn(timeline, "html").decode()
    assert f'role="img" aria-label="{said}"' in page


def hostile():
    name = EVIL.replace("\ud800", "")  # which is no JSON
    told = Telling(name, group=name).assigned("orders:0")
    told.then("hold", scope="@all", owner=name).poll("orders:0", 0, 1)
    timeline = of_fleet(told)
    # No journal has a topic of this name; a picture draws it as text all the same.
    evil = Address(EVIL, EVIL, 0)
    return evolve(timeline, lanes=[evolve(one, case=evil) for one in timeline.lanes])


def test_hostile_names_stay_text():
    """Of topics, groups, members, owners and files; what XML cannot hold is replaced."""
    root = svg(hostile(), TROUBLE)
    names = {one.tag.rpartition("}")[2] for one in root.iter()}
    assert not names & {"script", "a", "foreignObject", "image"}
    seen = TROUBLE.translate(dict.fromkeys((0, 0x1B, 0xD800), "\ufffd"))
    assert f"\u2717 not complete: {seen}" in texts(root)
    for one in root.iter():
        for name, value in one.items():
            assert not name.startswith("on")
            assert "href" not in name or value.startswith("#")
    assert drawn(hostile(), "png", TROUBLE).startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def browser_page():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the extra ci

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield browser.new_page()
        browser.close()


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("is_hostile", [False, True])
def test_a_browser_draws_the_page_and_asks_for_nothing_else(
    browser_page, tmp_path, *, is_hostile
):
    """No other request, no refused one, no error, no script of a name; pointing tells."""
    timeline = hostile() if is_hostile else of_fleet(*bad.FLEETS["a1"]())
    path = tmp_path / "out.html"
    path.write_bytes(drawn(timeline, "html", TROUBLE if is_hostile else ""))
    heard = []
    asked = []
    browser_page.on("console", lambda one: heard.append(one.text))
    browser_page.on("pageerror", lambda one: heard.append(str(one)))
    browser_page.on("dialog", lambda one: heard.append(one.message))
    browser_page.on("request", lambda one: asked.append(one.url))
    browser_page.goto(path.as_uri())
    bars = browser_page.locator("#timeline svg .mark-rect.role-mark path")
    bars.last.wait_for()
    assert (heard, asked) == ([], [path.as_uri()])
    assert browser_page.locator("#timeline a").count() == 0
    bars.last.hover()
    shown = browser_page.locator("#vg-tooltip-element")
    shown.wait_for()
    said = shown.inner_text()
    assert said.startswith(EVIL[:7] if is_hostile else "a")


def a_crowd(rows):
    fleet = []
    for number in range(rows):
        tp = f"orders:{number}"
        told = Telling(
            f"a-member-with-a-very-long-name-indeed-{number}", at=1000 + number
        )
        told.assigned(tp).poll(tp, 0, 9).pause(tp, owner=f"owner-{number}" * 9)
        told.pause(tp, owner="another")
        told.at += rows
        fleet.append(told.resume(tp, owner=f"owner-{number}" * 9).poll(tp, 9, 12))
    return of_fleet(*fleet)


def test_two_hundred_members_and_partitions_have_a_row_each():
    """None over another, and holds of one lane in rows; long names are cut."""
    timeline = a_crowd(200)
    marks = Picture(timeline).marks
    names = [one["top"] for one in marks if one["kind"] == "name"]
    assert len({*names}) == len(names) == 400
    assert all(a + 8 < b for a, b in pairwise(names))
    holds = [
        (one["top"], one["foot"]) for one in marks if one["hint"].startswith("hold ")
    ]
    assert len(holds) == 400
    assert all(foot <= top for (_, foot), (top, _) in pairwise(sorted(holds)))
    found = [text for text in texts(svg(timeline)) if "a-member-with-a-very" in text]
    assert len(found) == 200
    assert len({text.split()[0] for text in found}) == 200
    assert all(len(text) < 50 and text.endswith("\u2026") for text in found)


def test_what_a_png_cannot_hold_is_said():
    with pytest.raises(JournalError, match="too tall: choose partitions"):
        drawn(a_crowd(900), "png")
