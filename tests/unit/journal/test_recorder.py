"""Tests the entries that a consumer with a journal writes."""

import os
import stat
import time

import pytest
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer.errors import JournalError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Reassignment
from safeconsumer.journal.recorder import Recorder
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.journals import read


def test_operators_hold_is_written(tmp_path):
    journal = JournalWriter(tmp_path)
    ledger = PauseLedger((Recorder(journal, "a", "").hook,))
    scope = scopes.parse("orders")
    hold = Hold(scope=scope, owner="operator:eve", record=(1000.5, 7))
    ledger.follow([hold], ())
    ledger.place([scope], owner="app")
    ledger.follow((), [hold.key])
    ledger.deliver()
    entries = read(journal.path).lines
    assert [(one.event, one["owner"]) for one in entries] == [
        ("hold", "operator:eve"),
        ("lift", "operator:eve"),
    ]
    assert (entries[0]["written"], entries[0]["offset"]) == (1000.5, 7)


@pytest.mark.parametrize("is_full", [True, False], ids=["disk full", "interrupted"])
def test_call_that_cannot_be_recorded_is_written_as_failed(
    tmp_path, monkeypatch, is_full
):
    """Previously, the audit counted such a seek as unfinished and such a resume as done."""
    journal = JournalWriter(tmp_path)
    recorder, write = Recorder(journal, "a", ""), os.write

    def interrupted(file, data):
        if is_full:
            raise OSError(28, "no space left on device")
        write(file, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", interrupted)
        with (
            pytest.raises((JournalError, KeyboardInterrupt)),
            recorder.resuming([scopes.parse("orders")], "me"),
        ):
            pytest.fail("it could not be written, and was made")
    recorder.write("working", {"order": "key"})
    found = [(one.event, one["op"], one["ok"]) for one in read(journal.path).lines]
    assert found == [
        ("call", "resume", None),
        ("return", "resume", False),
        ("working", None, None),
    ]


def test_resume_of_a_plain_pause_is_written_as_the_lift_of_its_hold(tmp_path):
    """The entry gives the resume as the cause of the lift."""
    journal = JournalWriter(tmp_path)
    ledger = PauseLedger((Recorder(journal, "a", "").hook,))
    scope = scopes.parse("orders:0")
    ledger.place([scope], owner="app", lifetime=Lifetime.PLAIN)
    ledger.remove([(scope, "app")], by_application=True)
    ledger.place([scope], owner="app", lifetime=Lifetime.PLAIN)
    ledger.remove_owner("app")
    entries = read(journal.path).lines
    assert [(one.event, one["why"]) for one in entries] == [("lift", "resume")] * 2


def test_writer_serves_one_consumer_at_a_time(tmp_path):
    """In a shared journal, each consumer would be judged by the other consumer's holds."""
    writer = JournalWriter(tmp_path, group="g")
    first = Recorder(writer, "a", "g")
    with pytest.raises(JournalError, match="close that one first, or give each"):
        Recorder(writer, "b", "g")
    first.end()
    second = Recorder(writer, "b", "g")
    first.end()
    with pytest.raises(JournalError, match="another consumer"):
        Recorder(writer, "c", "g")
    second.write("working", {"order": "key"})
    del second  # a program may forget to close its consumer
    path = writer.path
    Recorder(writer, "c", "g").end()
    writer.renew()
    assert [one.event for one in read(path).lines] == ["working"]
    assert writer.path != path
    assert read(writer.path).lines == []


@pytest.mark.parametrize("group", ["", None, "other"])
def test_writer_serves_only_members_of_its_group(tmp_path, group):
    """After refusing a member of another group, the writer can still serve its own group."""
    writer = JournalWriter(tmp_path, group="g")
    with pytest.raises(JournalError, match=r"for the group 'g'.*give it group='"):
        Recorder(writer, "a", group)
    Recorder(writer, "a", "g").end()
    assert read(writer.path).lines == []


def test_log_start_is_written_once_after_each_position_that_was_out_of_range(
    tmp_path,
):
    """A response to an earlier fetch or from an old broker does not prove the log start."""
    journal = JournalWriter(tmp_path)
    recorder, tp = Recorder(journal, "a", ""), TopicPartition("orders", 0)
    recorder.log_starts_at(tp, 3, 5)
    recorder.committed({tp: OffsetAndMetadata(5, "", -1)})
    recorder.begins_at(tp, 5)
    recorder.log_starts_at(tp, 3, 5)
    for target in (20, 40):
        recorder.begins_at(tp, target)
        recorder.log_starts_at(tp, 3, 5 if target == 20 else 20)
        recorder.log_starts_at(tp, -1, target)
        recorder.log_starts_at(tp, target, target)
        recorder.log_starts_at(tp, target + 1, target)
    found = [one for one in read(journal.path).lines if one.event == "log_start"]
    assert [one["first"] for one in found] == [20, 40]


def test_log_that_starts_at_0_is_written(tmp_path):
    journal = JournalWriter(tmp_path)
    recorder, tp = Recorder(journal, "a", ""), TopicPartition("orders", 0)
    recorder.begins_at(tp, 8)
    recorder.log_starts_at(tp, 0, 8)
    found = [one for one in read(journal.path).lines if one.event == "log_start"]
    assert [one["first"] for one in found] == [0]


@pytest.mark.parametrize("group", ["", "g"])
def test_log_start_is_written_if_an_ownership_finds_no_committed_offset(
    tmp_path, group
):
    """A response to a fetch of the previous ownership does not prove the log start."""
    journal = JournalWriter(tmp_path, group=group)
    recorder, tp = Recorder(journal, "a", group), TopicPartition("orders", 0)
    if group:
        recorder.committed({tp: None})
    recorder.begins_at(tp, 8)
    recorder.log_starts_at(tp, 3, 5)
    recorder.log_starts_at(tp, 8, 8)
    recorder.log_starts_at(tp, 9, 9)
    found = [one for one in read(journal.path).lines if one.event == "log_start"]
    assert [one["first"] for one in found] == [8]


def test_transaction_is_recorded_once_per_ownership(tmp_path):
    """By the next ownership, the topic may have been recreated under the same name."""
    journal = JournalWriter(tmp_path)
    recorder = Recorder(journal, "a", "")
    tp = TopicPartition("orders", 0)
    recorder.transactional(tp)
    recorder.transactional(tp)
    recorder.reassigned(Reassignment(departed=frozenset({tp}), gained=frozenset()))
    recorder.transactional(tp)
    found = [(one.event, one["tp"]) for one in read(journal.path).lines]
    assert found == [
        ("transactional", "orders:0"),
        ("revoked", None),
        ("transactional", "orders:0"),
    ]


def test_brokers_clock_is_written_once_a_minute_and_when_the_clock_is_set(tmp_path):
    """The bounds are offsets from the journal's clock; brokers truncate to milliseconds."""
    now = [50.0]
    journal = JournalWriter(tmp_path, clock=lambda: now[0], wall=lambda: 1000.0)
    recorder = Recorder(journal, "a", "")

    def hear(ahead, took):
        moment = time.monotonic()
        at = journal.now() + ahead - took
        recorder.clock(at, moment - took, moment)

    for passed, ahead, took in (
        *((0, 5.0, 0.5), (1, 5.0, 0.1), (59, 5.0, 0.1)),
        *((1, 9.0, 0.1), (1, 5.0, 0.1)),
    ):
        now[0] += passed
        hear(ahead, took)
    bounds = [(one["least"], one["most"]) for one in read(journal.path).lines]
    rounded = [(round(least, 1), round(most, 1)) for least, most in bounds]
    assert rounded == [(4.5, 5.0), (4.9, 5.0), (8.9, 9.0), (4.9, 5.0)]


def test_idle_member_writes_its_commits_once_despite_clock_steps(tmp_path):
    """A commit with other offsets, or after another entry, is written again."""
    now = [50.0]
    journal = JournalWriter(tmp_path, clock=lambda: now[0], wall=lambda: 1000.0)
    recorder = Recorder(journal, "a", "")

    def commits(offset):
        offsets = {TopicPartition("orders", 0): offset}
        _, answered = recorder.committing(offsets)
        answered(offsets, is_done=True)

    for offset, also in ((7, ""), (7, ""), (7, ""), (8, ""), (8, "unseen")):
        commits(offset)
        if also:
            recorder.write(also, {})
        now[0] += 60
        moment = time.monotonic()
        recorder.clock(journal.now() + 5.0, moment - 0.1, moment)
    commits(8)
    commits(8)
    written = [one.event for one in read(journal.path).lines]
    once, clock = ["call", "return"], "clock"
    assert written == [*once, *[clock] * 3, *once, clock, "unseen", clock, *once]


def test_journal_file_is_readable_only_by_its_owner(tmp_path):
    """A worker's entries contain the keys of records."""
    journal = JournalWriter(tmp_path)
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
