"""Holds in a file: read again when it changes, everything held when it cannot be read."""

import json
import os
import re
from pathlib import Path

import pytest

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.spark.hold_file import HoldFile
from tests.harness.listing import each


def write(path: Path, *holds: object, version: int = 1) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"version": version, "holds": holds}))
    beside.rename(path)


def scopes_in(file: HoldFile) -> list[str]:
    return [str(hold.scope) for hold in file.state()]


def test_it_is_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    """The next plan obeys what stands in it."""
    path = tmp_path / "holds.json"
    write(path, {"scope": "orders"})
    file = HoldFile(str(path))
    assert scopes_in(file) == ["orders"]
    write(path, {"scope": "orders:3", "owner": "alice", "reason": "migration"})
    (hold,) = file.fresh()
    assert (str(hold.scope), hold.owner, hold.reason) == (
        "orders:3",
        "alice",
        "migration",
    )
    write(path)
    assert scopes_in(file) == []


def test_a_partition_of_a_topic_that_is_called_re(tmp_path: Path) -> None:
    """It is no pattern."""
    path = tmp_path / "holds.json"
    write(path, {"scope": "re:re:3"}, {"scope": "re:3"})
    three, pattern = sorted(
        HoldFile(str(path)).state(), key=lambda one: -len(str(one.scope))
    )
    assert [one.scope.covers(("re", 3)) for one in (three, pattern)] == [True, False]


def test_a_file_written_in_place_with_its_old_time_is_read_again(
    tmp_path: Path,
) -> None:
    """Of the same length, too, as after ``cp -p``."""
    path = tmp_path / "holds.json"
    path.write_text('{"version": 1, "holds": [{"scope": "a"}]}')
    before = path.stat()
    file = HoldFile(str(path))
    assert scopes_in(file) == ["a"]
    path.write_text('{"version": 1, "holds": [{"scope": "b"}]}')
    moved = before.st_atime_ns, before.st_mtime_ns
    os.utime(path, ns=moved)
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # until its clock ticks
        os.utime(path, ns=moved)
    assert scopes_in(file) == ["b"]


def test_a_hold_ends_at_its_time(tmp_path: Path) -> None:
    """Never early."""
    path = tmp_path / "holds.json"
    write(path, {"scope": "orders", "expires_at": 100})
    now = [99.9]
    file = HoldFile(str(path), wall=lambda: now[0])
    assert scopes_in(file) == ["orders"]
    now[0] = 100.0
    assert scopes_in(file) == []


@each(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "holds": []}',
        '{"version": 1, "holds": {}}',
        '{"version": 1, "holds": [{"scope": "a"}], "holds": []}',
        '{"version": 1, "holds": [{"scope": "a", "scope": "b"}]}',
        '{"version": 1, "holds": [], "hold": [{"scope": "a"}]}',
        '{"version": 1, "holds": [{}]}',
        '{"version": 1, "holds": ["orders"]}',
        '{"version": 1, "holds": [{"scope": "a b"}]}',
        '{"version": 1, "holds": [{"scope": "a", "expires_at": "soon"}]}',
        '{"version": 1, "holds": [{"scope": "a", "owner": "operator:eve"}]}',
    ],
)
def test_what_cannot_be_read_cannot_be_told(tmp_path: Path, text: str) -> None:
    """S4; the message names the file."""
    path = tmp_path / "holds.json"
    path.write_text(text)
    with pytest.raises(HoldsUnreadableError, match=r"holds\.json"):
        HoldFile(str(path)).state()


@each(
    ("entry", "said"),
    [
        (
            "orders",
            'hold number 1: it must be like {"scope": "orders:3"}, not \'orders',
        ),
        ({}, "hold number 1: it has no scope"),
        ({"scopes": "orders"}, "hold number 1: 'scopes' must be 'scope'"),
        ({"topic": "orders"}, "hold number 1: it has no scope"),
        ({"scope": 3}, "hold number 1: scope must be text, not 3"),
        ({"scope": "a", "expires": 9}, "hold number 1: 'expires' must be 'expires_at'"),
        (
            {"scope": "a", "expiresAt": 9},
            "hold number 1: 'expiresAt' must be 'expires_at'",
        ),
        ({"scope": "a", "expires_at": []}, "a moment must be a finite number of"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(
    tmp_path: Path, entry: object, said: str
) -> None:
    """In words of the file, not of Python; a misspelt end would never come."""
    path = tmp_path / "holds.json"
    write(path, entry)
    with pytest.raises(HoldsUnreadableError, match=re.escape(said)):
        HoldFile(str(path)).state()


def test_what_else_an_entry_says_is_for_others(tmp_path: Path) -> None:
    """A ticket, a comment."""
    path = tmp_path / "holds.json"
    write(path, {"scope": "orders", "ticket": "DB-7", "comment": "see there"})
    assert scopes_in(HoldFile(str(path))) == ["orders"]


def test_a_missing_file_is_not_an_empty_one(tmp_path: Path) -> None:
    """Somebody may be about to write it."""
    with pytest.raises(HoldsUnreadableError, match="No such file"):
        HoldFile(str(tmp_path / "none")).fresh()


def test_it_recovers_once_it_can_be_read(tmp_path: Path) -> None:
    """What was wrong once is not remembered."""
    path = tmp_path / "holds.json"
    path.write_text("{")
    file = HoldFile(str(path))
    with pytest.raises(HoldsUnreadableError):
        file.state()
    write(path, {"scope": "@all"})
    assert scopes_in(file) == ["@all"]
