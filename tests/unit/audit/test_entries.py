"""The journal reader ignores a truncated last line and names every other fault."""

import pytest

from safeconsumer.audit.entries import EVENTS, Assigned, Other
from safeconsumer.audit.facts import Delivered
from safeconsumer.audit.stream import sources
from safeconsumer.errors import JournalError
from safeconsumer.journal import format as journal_format
from tests.harness.audit.journals import MemberJournal, parsed
from tests.harness.listing import short

HEAD = '{"journal": 5, "member": "a", "group": "g", "at": 1.0}\n'
ENTRY = '{"n": 1, "at": 1, "e": "revoked", "partitions": []}\n'


def entries_of(text):
    return [*parsed("a.journal", text).entries]


def test_journal_reader_returns_the_entries_that_were_written():
    journal = MemberJournal("a", "billing").assigned("orders:0").commit("orders:0", 3)
    journal = journal.journal()
    assert (journal.member, journal.group) == ("a", "billing")
    entries = [*journal.entries]
    assert [one.event for one in entries] == ["assigned", "call", "return", "clock"]
    assert entries[0] == Assigned(n=1, at=1000.1, partitions=["orders:0"], generation=1)


def test_truncated_last_line_is_ignored():
    text = MemberJournal().assigned("orders:0").text()
    assert [one.n for one in entries_of(text[:-9])] == [1]


def test_unknown_events_and_fields_are_ignored():
    """Another program of the same format version may write more events and fields."""
    text = ENTRY.replace('"e"', '"colour": {"r": 3}, "e"')
    more = '{"n": 2, "at": 2, "e": "pondered", "depth": [3]}\n'
    known, other = entries_of(HEAD + text + more)
    assert known.event == "revoked"
    assert other == Other(n=2, at=2.0, event="pondered")


def test_every_event_is_documented_in_the_journal_format():
    named = journal_format.__doc__ or ""
    assert [event for event in EVENTS if f"``{event}``" not in named] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no whole line"),
        ('{"journal": 1', "no whole line"),
        ('{"journal": 1}\n', "version 1; this program reads 5"),
        ("[]\n", "no journal: its first line has no version"),
        ('{"journal": 5, "member": "a", "at": "x"}\n', r"line 1: .*float.*`\$\.at`"),
        (HEAD + "{\n" + "{}\n", "line 2: not JSON"),
        (HEAD + "\n" + ENTRY, "line 2: not JSON"),
        (HEAD + "[]\n", "line 2: Expected `object`"),
        (HEAD + "{}\n", "line 2: Object missing required field `e`"),
        (HEAD + ENTRY.replace("1, ", "2, ", 1), "entry 2 follows entry 0"),
        (HEAD + ENTRY.replace("[]", "[3]"), r"line 2: .*`str`.*`int`.*partitions\[0\]"),
        (HEAD + ENTRY.replace('"at": 1', '"at": 1e999'), "line 2: Number out of"),
        (HEAD + ENTRY.replace("[]", '["\\ud800"]'), "line 2: not JSON"),
        (HEAD + '{"n": "1", "at": 1, "e": "x"}\n', r"line 2: .*`int`.*`\$\.n`"),
        (HEAD + "[" * 100_000 + "\n", "line 2: not JSON"),
    ],
    ids=short,
)
def test_error_names_the_journal_and_the_broken_line(text, message):
    with pytest.raises(JournalError, match=message) as caught:
        entries_of(text)
    assert "a.journal" in str(caught.value)


DELIVER = '{"n": 1, "at": 5, "e": "deliver", "tp": "t:0", "from": 0, "next": 9, '
DELIVER += '"first": 0, "last": 8, "count": 7, "gaps": [[2, 3], [5, 6]]}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '{"n": 1, "at": 5, "e": "handle", "tp": "t:0", "offset": 0, "id": 1, '
            '"batch": []}\n',
            r"length >= 1.*batch",
            id="a batch without records",
        ),
        pytest.param(
            DELIVER.replace("[2, 3]", "[3, 2]"), "entry 1: gaps", id="a reversed gap"
        ),
        pytest.param(
            DELIVER.replace("[5, 6]", "[1, 2]"), "entry 1: gaps", id="unordered gaps"
        ),
        pytest.param(
            DELIVER.replace("[5, 6]", "[8, 9]"), "entry 1: gaps", id="a gap at the end"
        ),
        pytest.param(
            DELIVER + DELIVER.replace('"n": 1, "at": 5', '"n": 2, "at": 4'),
            "entry 2: its time goes back, from 5.0 to 4.0",
            id="a time that goes back",
        ),
        pytest.param(
            DELIVER.replace('"next": 9', f'"next": {2**63 - 1}'),
            r"Expected `int` <= .*next",
            id="a next offset above the maximum",
        ),
    ],
)
def test_entry_that_no_consumer_could_have_written_is_refused(text, message):
    with pytest.raises(JournalError, match=message):
        entries_of(HEAD + text)


def test_gaps_within_a_delivery_split_its_offsets_into_spans():
    (found,) = entries_of(HEAD + DELIVER)
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    came = {
        name: fields[name] for name in Delivered.__struct_fields__ if name in fields
    }
    assert [*Delivered(**came).spans] == [(0, 2), (3, 5), (6, 9)]


def test_entries_before_a_broken_line_are_read():
    """Entries before a broken line still prove the violations of their process."""
    entries = iter(parsed("a.journal", HEAD + ENTRY + "{\n").entries)
    assert next(entries).n == 1
    with pytest.raises(JournalError, match="line 3: not JSON"):
        next(entries)


def test_missing_journal_file_is_reported_by_name(tmp_path):
    _, (trouble,) = sources({"none.journal": tmp_path / "none.journal"})
    assert "none.journal cannot be read" in trouble
