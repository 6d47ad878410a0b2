"""
The picture itself: legal, safe whatever the names, small, and not by colour alone.
"""

import json
import re
import time
import xml.etree.ElementTree as ET

import pytest

from safeconsumer.audit.checker import check, findings_of
from safeconsumer.audit.journal import Journal, parse
from safeconsumer.audit.timeline.layout import laid_out
from safeconsumer.audit.timeline.scale import Scale, clock, letters
from safeconsumer.audit.timeline.svg import page, svg
from safeconsumer.audit.timeline.told import told
from tests.audit import bad
from tests.audit.telling import Telling

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</text><script>alert(1)</script>\"'&\x00\x1b\u2028\ud800]]>"


def drawn(*journals: Journal, title: str | None = None) -> str:
    return svg(laid_out(told(journals, findings_of(check(journals))), title))


def drawn_fleet(*fleet: Telling) -> ET.Element:
    # What was drawn a moment ago by this library.
    return ET.fromstring(drawn(*(one.journal() for one in fleet)))  # noqa: S314


def kinds(root: ET.Element) -> set[str]:
    return {kind for one in root.iter() for kind in one.get("class", "").split()}


def texts(root: ET.Element) -> list[str]:
    return [one.text or (one[0].tail or "") for one in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("make", bad.BAD, ids=lambda make: make.__name__)
def test_a_broken_promise_is_seen(make: object) -> None:
    """
    In the verdict, and with its number beside the lane.
    """
    root = drawn_fleet(*make())  # type: ignore[operator]  # a fleet's maker
    name = make.__name__.partition("_")[0].upper()  # type: ignore[attr-defined]
    assert any("broken promise" in text for text in texts(root))
    assert any(text.startswith(f"{name} \u00d7") for text in texts(root))


@pytest.mark.parametrize("make", bad.GOOD, ids=lambda make: make.__name__)
def test_a_good_fleet_has_nothing_red(make: object) -> None:
    """
    Neither marks nor bars.
    """
    root = drawn_fleet(*make())  # type: ignore[operator]  # a fleet's maker
    assert "\u2713 no promise broken" in texts(root)
    assert not kinds(root) & {"violation", "wrong", "bad"}


def test_levels_differ_without_colour() -> None:
    """
    Each has dashes of its own, and a row of its own in the lane.
    """
    told = Telling().assigned("orders:0")
    for scope in ("orders:0", "orders", "re:ord.*", "@all"):
        told.pause(scope)
    root = drawn_fleet(told.then("hold", scope="orders", owner="operator:eve").poll())
    held = [one for one in root.iter(f"{SVG}path") if "held" in one.get("class", "")]
    in_lane = [one for one in held if one.find(f"{SVG}title") is not None]
    rows = {one.get("d", "").split("H")[0].split(" ")[1] for one in in_lane}
    assert len(rows) == len(in_lane) == 5
    style = root.findtext(f"{SVG}style") or ""
    levels = ("partition", "topic-hold", "pattern", "consumer", "group")
    dashes = [
        re.search(rf"\.{level}{{[^}}]*?(stroke-dasharray:[^;}}]*)?}}", style)
        for level in levels
    ]
    assert len({found and found.group(1) for found in dashes}) == 5


def test_hostile_names_stay_text() -> None:
    """
    Of topics, members, owners and faults; what XML cannot hold is replaced.
    """
    head = {"journal": 1, "member": EVIL, "group": EVIL, "at": 1.0}
    said = [
        {"e": "assigned", "partitions": [f"{EVIL}:0"]},
        {"e": "hold", "scope": "@all", "owner": EVIL},
        {"e": "purged", "tp": f"{EVIL}:0", "count": 1, "why": EVIL},
        {"e": "fault", "id": 1, "kind": EVIL, "targets": [EVIL], "seconds": 1},
    ]
    lines = [head, *({"n": n, "at": n, **one} for n, one in enumerate(said, 1))]
    journal = parse("evil", "".join(f"{json.dumps(one)}\n" for one in lines))
    text = drawn(journal, title=EVIL)
    root = ET.fromstring(text.encode("utf-8"))  # noqa: S314 - our own
    names = {one.tag.removeprefix(SVG) for one in root.iter()}
    assert names <= {"svg", "title", "style", "rect", "path", "text"}
    seen = EVIL.translate({0: "\ufffd", 0x1B: "\ufffd", 0xD800: "\ufffd"})
    assert root.findtext(f"{SVG}title") == seen
    attributes = {name for one in root.iter() for name in one.keys()}  # noqa: SIM118 - an element's
    assert not [name for name in attributes if name.startswith("on") or "href" in name]


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    """
    Its policy forbids it, and it has nothing of the kind.
    """
    journals = [one.journal() for one in bad.s1()]
    text = page(laid_out(told(journals, findings_of(check(journals)))))
    assert "default-src 'none'" in text
    assert not re.search(r"<script|<link|<img|src=|href=|@import|url\(", text)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", ""
    )


def a_long_run(partitions: int, seconds: int, records: int) -> list[Journal]:
    """
    Return what three members and a nemesis wrote, with a poll ten times a second.
    """
    journals = []
    per_poll = records // (seconds * 10 * 3)
    for number in range(3):
        told = Telling(f"m{number}")
        own = [f"orders:{n}" for n in range(number, partitions, 3)]
        told.assigned(*own)
        ends = dict.fromkeys(own, 0)
        for poll in range(seconds * 10):
            tp = own[poll % len(own)]
            told.poll(tp, ends[tp], ends[tp] + per_poll)
            ends[tp] += per_poll
            told.at = 1000.0 + poll / 10
            if poll % 300 == 100:
                told.pause("orders", owner=f"app{poll}")
            if poll % 300 == 130:
                told.resume("orders", owner=f"app{poll - 30}")
        journals.append(told.journal())
    nemesis = Telling("nemesis")
    for number in range(seconds // 5):
        nemesis.at = 1000.0 + 5 * number
        said = {"kind": "freeze", "targets": ["m1"], "seconds": 3}
        nemesis.then("fault", id=number, **said)
    return [*journals, nemesis.journal()]


def test_a_million_records_are_a_small_picture() -> None:
    """
    12 partitions for 10 minutes: under 300 KB, and drawn in a few seconds.
    """
    journals = a_long_run(12, 600, 1_000_000)
    findings = findings_of(check(journals))
    began = time.process_time()
    story = told(journals, findings)
    text = svg(laid_out(story))
    assert sum(lane.records for lane in story.lanes) >= 990_000
    assert len(text.encode()) < 300_000
    assert time.process_time() - began < 10


def test_the_axis_has_few_and_round_ticks() -> None:
    """
    From a moment to a year.
    """
    for length in (0.01, 3, 59, 600, 3600, 86_400, 31_536_000):
        ticks = Scale(start=50.0, end=50.0 + length, origin=50.0).ticks()
        assert 1 <= len(ticks) <= 12


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0:00"), (65, "1:05"), (65.25, "1:05.2"), (59.99, "1:00"), (7265, "2:01:05")],
)
def test_moments_are_read_like_a_clock(seconds: float, said: str) -> None:
    """
    Minutes and seconds, hours before them, tenths behind.
    """
    assert clock(seconds) == said


def test_members_have_letters() -> None:
    """
    However many there are.
    """
    assert [letters(n) for n in (0, 25, 26, 52, 701, 702)] == [
        *("A", "Z", "AA", "BA", "ZZ", "AAA")
    ]
