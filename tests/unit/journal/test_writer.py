"""The writer keeps lines whole despite forks, waits, interrupts and full disks."""

import itertools
import os
import threading

import pytest

from safeconsumer.audit.loading import load
from safeconsumer.errors import JournalError
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.journals import read
from tests.harness.processes import forked
from tests.harness.waiting import end_of, wait_for


def test_slow_clock_read_does_not_shift_the_journals_clock(tmp_path):
    """In a soak test on a busy machine, the clocks of two journals differed by 26 ms."""
    steps = itertools.chain([1, 500], itertools.repeat(1))
    passed = itertools.accumulate(steps)  # a long wait before the second clock read
    journal = JournalWriter(
        tmp_path,
        clock=lambda: float(next(passed)),
        wall=lambda: float(next(passed)) + 5000,
    )
    assert journal.now() - next(passed) == pytest.approx(5000, abs=2)


def test_child_forked_during_a_write_can_write(tmp_path):
    """The thread that holds the lock does not exist in the child."""
    journal = JournalWriter(tmp_path)
    is_held, may_end = threading.Event(), threading.Event()

    def writing():
        with journal._lock:
            is_held.set()
            may_end.wait()

    thread = threading.Thread(target=writing, daemon=True)
    thread.start()
    wait_for(is_held.is_set, "the lock to be held")
    ended = forked(lambda: journal.write("call", {"op": "poll", "id": 1}))
    may_end.set()
    end_of(thread)
    assert ended == 0


@pytest.mark.parametrize("written", [0, 7], ids=["nothing", "half a line"])
def test_entry_without_disk_space_is_written_before_the_next_entry(
    tmp_path, monkeypatch, written
):
    """Calls raise an error until there is space, and no partial line stays in the file."""
    journal = JournalWriter(tmp_path)
    journal.write("a", {})
    write = os.write

    def full(file, data):
        if not written:
            raise OSError(28, "no space left on device")
        return write(file, data[:written])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for call in (lambda: journal.write("b", {"c": 1}), journal.flush):
            with pytest.raises(JournalError, match=r"disk|space"):
                call()
    assert [one.event for one in read(journal.path).lines] == ["a"]
    journal.flush()
    journal.write("d", {})
    journal.close()
    entries = [(one.number, one.event) for one in read(journal.path).lines]
    assert entries == [(1, "a"), (2, "b"), (3, "d")]
    with pytest.raises(JournalError, match="is closed"):
        journal.write("e", {})


class User:
    """A consumer that a writer serves."""


@pytest.mark.parametrize("before", [[], ["a"]], ids=["only entry", "later entry"])
def test_pending_entry_is_written_before_the_next_consumers_journal_begins(
    tmp_path, monkeypatch, before
):
    """While the disk is full, the writer refuses the next consumer."""
    journal = JournalWriter(tmp_path)
    first, users = journal.path, [User(), User()]
    journal.serve(users[0], "")
    for event in before:
        journal.write(event, {})

    def full(_file, _data):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(JournalError):
            journal.write("b", {})
        journal.release(users[0])
        with pytest.raises(JournalError):
            journal.serve(users[1], "")
    journal.serve(users[1], "")
    journal.write("c", {})
    assert [one.event for one in read(first).lines] == [*before, "b"]
    assert [one.event for one in read(journal.path).lines] == ["c"]


def test_parts_stay_in_their_folder_when_the_program_changes_its_directory(
    tmp_path, monkeypatch
):
    """A daemon may change its directory; earlier, the audit missed its later parts."""
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    journal = JournalWriter("journals", part_bytes=1)
    monkeypatch.chdir(tmp_path / "there")
    journal.write("a", {})
    journal.write("b", {})
    journal.close()
    assert len([*(tmp_path / "journals").iterdir()]) == 3


@pytest.mark.parametrize("part_bytes", [None, 1], ids=["entry", "head of a part"])
def test_timeout_raised_by_a_signal_handler_in_a_write_reaches_the_program(
    tmp_path, monkeypatch, part_bytes
):
    """TimeoutError is an OSError, but the program expects its own exception."""
    journal, write = JournalWriter(tmp_path, part_bytes=part_bytes), os.write

    def interrupted(file, data):
        write(file, data)
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", interrupted)
        with pytest.raises(TimeoutError):
            journal.write("a", {})
    journal.write("b", {})
    (written,) = load([tmp_path]).opened
    assert [one.event for one in written.entries] == ["a", "b"]
