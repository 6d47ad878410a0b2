"""Reading journals: a cut last line is forgiven, everything else is named."""

from pathlib import Path

import pytest

from safeconsumer.audit.journal import parse, read
from safeconsumer.errors import JournalError
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.telling import Telling
from tests.harness.listing import each

HEAD = '{"journal": 2, "member": "a", "group": "g", "at": 1.0}\n'


def test_a_journal_is_read_as_it_was_written() -> None:
    """In order, with who wrote it."""
    journal = Telling("a", "billing").assigned("orders:0").poll().journal()
    assert (journal.member, journal.group, journal.is_cut) == ("a", "billing", False)
    assert [one.event for one in journal.entries] == ["assigned", "call", "return"]
    assert journal.entries[0]["partitions"] == ["orders:0"]
    assert journal.entries[0]["nothing"] is None


def test_a_process_may_be_killed_in_the_middle_of_a_line() -> None:
    """What it had finished counts."""
    text = Telling().assigned("orders:0").poll().text()
    journal = parse("a", text[:-9])
    assert (len(journal.entries), journal.is_cut) == (2, True)


@each(
    ("text", "said"),
    [
        ("", "no whole line"),
        ('{"journal": 2', "no whole line"),
        ('{"journal": 3}\n', "version 3"),
        ("[]\n", "not an object"),
        (HEAD + "{\n" + "{}\n", "line 2: not JSON"),
        (HEAD + "{}\n", "line 2: no n, at and e"),
        (HEAD + '{"n": 2, "at": 1, "e": "x"}\n', "line 2: entry 2 stands where 1"),
    ],
)
def test_what_is_broken_is_named(text: str, said: str) -> None:
    """The file, the line, and what is wrong with it."""
    with pytest.raises(JournalError, match=said) as caught:
        parse("a.journal", text)
    assert "a.journal" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named."""
    with pytest.raises(JournalError, match=r"none\.journal cannot be read"):
        read(tmp_path / "none.journal")


def test_a_moment_is_told_by_the_journals_own_clock(tmp_path: Path) -> None:
    """A wall clock that is set later moves no end of a hold."""
    wall, clock = [1000.0], [5.0]
    journal = JournalWriter(tmp_path, clock=lambda: clock[0], wall=lambda: wall[0])
    wall[0], clock[0] = wall[0] + 500.0, clock[0] + 3.0
    assert (journal.now(), journal.time_of(wall[0] - 1.0)) == (1003.0, 1002.0)
    assert journal.time_of(wall[0] + 9.0) == journal.now()
