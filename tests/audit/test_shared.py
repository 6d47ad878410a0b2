"""
A journal that short processes append to, one after the other.
"""

import fcntl
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.audit import shared, writer
from safeconsumer.audit.journal import read
from safeconsumer.audit.shared import SharedJournal
from safeconsumer.audit.stream import sources
from safeconsumer.audit.writer import JournalWriter
from safeconsumer.errors import JournalError

SAID = ("group-hold", {"scope": "orders", "owner": "eve", "group": "g"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ops.journal"


def numbers(path: Path) -> list[int]:
    (journal,), troubles = sources(sorted(path.parent.glob("*.journal")))
    assert troubles == []
    return [one.number for one in journal.entries]


def test_commands_append_one_after_the_other(path: Path) -> None:
    """Entries are numbered through; those of one call stand together."""
    SharedJournal(path).write([SAID, SAID])
    SharedJournal(path).write([SAID])
    journal = read(path)
    assert [one.number for one in journal.entries] == [1, 2, 3]
    assert (journal.group, journal.member[:4]) == ("", "ops-")
    one, two, three = journal.entries
    assert one.at == two.at <= three.at


def test_half_a_line_of_who_was_killed_is_removed(path: Path) -> None:
    """Of the head too: then nobody has written anything yet."""
    for kept in (0, 1, 2):
        path.unlink(missing_ok=True)
        for _ in range(2):
            SharedJournal(path).write([SAID])
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:kept]) + lines[kept][:-2])
        SharedJournal(path).write([SAID])
        assert numbers(path) == list(range(1, max(kept, 1) + 1))


def append(path: Path, times: int) -> None:
    for _ in range(times):
        SharedJournal(path, part_bytes=2000).write([SAID, SAID])


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    """With parts that go on in between."""
    context = multiprocessing.get_context("fork")
    several = [context.Process(target=append, args=(path, 25)) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join(60)
    assert numbers(path) == list(range(1, 201))
    assert len(list(path.parent.glob("*.journal"))) > 3


class Killed(BaseException):
    """Stands for SIGKILL: nobody handles it."""


STEPS: list[tuple[Any, str]] = [
    (writer, "append"),  # the head of the next part
    (os, "rename"),
    (shared, "append"),  # the line by which the old part ends, and then the entry
    (os, "ftruncate"),
]


def dying(at: int, patch: pytest.MonkeyPatch, *, is_after: bool) -> None:
    # Dies before, or after, the so-manieth step of those above.
    count = iter(range(100))

    def wrapped(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the step's
            number = next(count)
            if number == at and not is_after:
                raise Killed
            answer = step(*args, **kwargs)
            if number == at:
                raise Killed
            return answer

        return run

    for module, name in STEPS:
        patch.setattr(module, name, wrapped(getattr(module, name)))


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(5))
def test_a_part_goes_on_whoever_is_killed_meanwhile(
    path: Path,
    at: int,
    is_after: bool,  # noqa: FBT001 - pytest gives it
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever step was the last one, the next command goes on where it was."""
    SharedJournal(path).write([SAID])
    with monkeypatch.context() as patch:
        dying(at, patch, is_after=is_after)
        with pytest.raises(Killed):
            SharedJournal(path, part_bytes=1).write([SAID])
    before = numbers(path)
    SharedJournal(path, part_bytes=1).write([SAID])
    SharedJournal(path).write([SAID])
    assert numbers(path) == list(range(1, len(before) + 3))


def test_a_journal_that_was_moved_away_is_begun_anew(path: Path) -> None:
    """Both are whole, and of two names."""
    SharedJournal(path).write([SAID])
    moved = path.rename(path.with_name("old.journal"))
    SharedJournal(path).write([SAID])
    assert read(path).member != read(moved).member


def others(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    own = JournalWriter(tmp_path)
    own.close()
    yield own.path, "no operators' journal"
    for text in (
        *("precious", "root:x:0:0\n", "[]\n", '{"a": 1}\n{"b"'),
        '{"journal": 9, "shared": true}\n',
    ):
        other = tmp_path / f"{abs(hash(text))}.journal"
        other.write_text(text)
        yield other, "journal"
    gone = tmp_path / "gone.journal"
    head = {"journal": 1, "member": "m", "group": "", "shared": True, "at": 1.0}
    gone.write_text(f'{json.dumps(head)}\n{{"part": 2, "after": 0}}\n')
    yield gone, "a part that is missing"
    yield tmp_path / "no" / "folder.journal", "cannot be written"


def test_what_is_no_operators_journal_is_left_alone(tmp_path: Path) -> None:
    for path, why in others(tmp_path):
        before = path.read_text() if path.exists() else None
        with pytest.raises(JournalError, match=why):
            SharedJournal(path).write([SAID])
        assert before == (path.read_text() if path.exists() else None)
    for name in ("ops.json", "."):
        with pytest.raises(JournalError, match=r"ends in \.journal"):
            SharedJournal(tmp_path / name)


def test_who_is_stopped_in_the_middle_is_not_waited_for_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_LOCK_SECONDS", 0.0)
    SharedJournal(path).write([SAID])
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="another process has been writing"):
            SharedJournal(path).write([SAID])


def test_a_full_disk_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of it is removed by the next."""
    SharedJournal(path).write([SAID])
    whole, real = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:9]))
    with pytest.raises(JournalError, match="disk full"):
        SharedJournal(path).write([SAID])
    monkeypatch.undo()
    assert path.read_bytes() != whole
    SharedJournal(path).write([SAID])
    assert numbers(path) == [1, 2]
