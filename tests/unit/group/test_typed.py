"""Scopes and times as they are typed."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from safeconsumer.errors import HoldSettingError, ScopeSyntaxError
from safeconsumer.group import ending
from safeconsumer.group.scopes import scopes_of


def test_ranges_are_holds_of_their_own() -> None:
    scopes = scopes_of(["a:0-2,5", "b:7", "a:1", "c"], "g")
    assert [*map(str, scopes)] == ["a:0", "a:1", "a:2", "a:5", "b:7", "c"]


def test_ranges_of_a_topic_that_is_called_re() -> None:
    """Without its name twice it is a pattern, which may be a topic's name."""
    scopes = scopes_of(["re:re:0-1,5", "re:0-2", "re:re:7"], "g")
    assert [*map(str, scopes)] == ["re:re:0", "re:re:1", "re:re:5", "re:0-2", "re:re:7"]
    assert [one.covers(("re", 1)) for one in scopes] == [0, 1, 0, 0, 0]
    assert [one.covers(("0-2", 1)) for one in scopes] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "text",
    ["a:2-1", "a:0-5000", "a:1-", "a:0-٣", f"a:0-{5000 * '9'}", f"a:1-{'9' * 5000}"],
)
def test_bad_ranges(text: str) -> None:
    with pytest.raises(ScopeSyntaxError, match="a:"):
        scopes_of([text], "g")


def test_until_a_time_of_day() -> None:
    """Tomorrow's if today's is over; with a zone or in this machine's."""
    now = datetime(2026, 11, 22, 12, 0).astimezone()
    assert ending._moment("18:30", now) == (now + timedelta(hours=6.5)).timestamp()
    assert ending._moment("11:00", now) == (now + timedelta(hours=23)).timestamp()
    one = datetime(2026, 11, 22, 13, 0, tzinfo=UTC).timestamp()
    for text in ("2026-11-22T13:00Z", "2026-11-22T14:00+01:00"):
        assert ending._moment(text, now) == one


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("evening", "offset"), [("2026-10-24T23:00", 1), ("2026-03-28T23:00", 2)]
)
def test_a_time_of_day_behind_a_change_of_clocks(evening: str, offset: int) -> None:
    """It is the time that clocks on the wall will show."""
    now = datetime.fromisoformat(evening).astimezone()
    found = datetime.fromtimestamp(ending._moment("06:00", now)).astimezone()
    assert (found.hour, found.day - now.day) == (6, 1)
    assert found.utcoffset() == timedelta(hours=offset)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "text", ["soon", "25:00", "2026-13-01T00:00", "", "0001-01-01T00:00+14:00"]
)
def test_until_no_time(text: str) -> None:
    with pytest.raises(HoldSettingError, match="is not a time"):
        ending.ending_of(None, text)


def test_until_where_no_zone_reaches() -> None:
    """It is a time, and the same is said of it by every Python and zone."""
    with pytest.raises(HoldSettingError, match="a century away"):
        ending.ending_of(None, "9999-12-31T23:59-14:00")


def test_until_what_is_over_by_the_brokers_clock() -> None:
    until = ending.ending_of(None, "2026-11-22T13:00Z")
    at = datetime(2026, 11, 22, 13, 0, tzinfo=UTC).timestamp()
    assert until.seconds_from(at - 60) == 60
    with pytest.raises(HoldSettingError, match="passed, by the broker's clock"):
        until.seconds_from(at)
    with pytest.raises(HoldSettingError, match="passed, by this machine's clock"):
        until.seconds_from(None)
