"""A journal that short processes append to, one after the other."""

import fcntl
import importlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.audit import shared
from safeconsumer.audit.journal import read
from safeconsumer.audit.shared import SharedJournal
from safeconsumer.audit.stream import sources
from safeconsumer.errors import JournalError
from safeconsumer.journal import writer
from safeconsumer.journal.writer import JournalWriter

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
    head = {"journal": 2, "member": "m", "group": "", "shared": True, "at": 1.0}
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
    """What was written of it is removed: of several, none must seem to be asked for."""
    SharedJournal(path).write([SAID])
    whole, real = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:-9]))
    with pytest.raises(JournalError, match="disk full"):
        SharedJournal(path).write([SAID, SAID, SAID])
    monkeypatch.undo()
    assert path.read_bytes() == whole
    SharedJournal(path).write([SAID])
    assert numbers(path) == [1, 2]


def test_what_could_not_be_begun_is_not_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file would be one that an audit cannot read."""
    monkeypatch.setattr(os, "write", lambda _file, data: len(data) // 2)
    with pytest.raises(JournalError, match="disk full"):
        SharedJournal(path).write([SAID])
    assert not path.exists()
    path.touch(0o600)  # somebody's own, with a mode that it is to have
    with pytest.raises(JournalError, match="disk full"):
        SharedJournal(path).write([SAID])
    assert (path.stat().st_size, path.stat().st_mode & 0o777) == (0, 0o600)


def test_whether_it_can_be_written_can_be_asked(path: Path) -> None:
    """Without a word in it, and without a file."""
    SharedJournal(path).check()
    assert not path.exists()
    SharedJournal(path).write([SAID], "prod")
    before = path.read_bytes()
    for cluster in (None, "prod"):
        SharedJournal(path).check(cluster)
    with pytest.raises(JournalError, match="of the cluster prod, and this one is"):
        SharedJournal(path).check("staging")
    assert path.read_bytes() == before
    path.write_text("precious")
    for one in (path, path.parent / "no" / "ops.journal"):
        with pytest.raises(JournalError):
            SharedJournal(one).check()


# ---------------------------------------------------------------- which cluster


def test_a_journal_is_of_one_cluster(path: Path) -> None:
    """A lift on staging would make an audit of prod clean."""
    for _ in range(2):
        SharedJournal(path, part_bytes=1).write([SAID], "prod")
    parts = sorted(path.parent.iterdir())
    before = [one.read_bytes() for one in parts]
    for cluster, why in (("staging", "this one is staging"), (None, "does not say")):
        with pytest.raises(JournalError, match=why):
            SharedJournal(path).write([SAID], cluster)
    assert [one.read_bytes() for one in parts] == before
    SharedJournal(path).write([SAID], "prod")
    assert numbers(path) == [1, 2, 3]


def test_a_journal_that_does_not_say_its_cluster_is_of_none(path: Path) -> None:
    SharedJournal(path).write([SAID])
    with pytest.raises(JournalError, match="does not say of which cluster it is"):
        SharedJournal(path).write([SAID], "prod")
    assert numbers(path) == [1]


# ---------------------------------------------------------------- which files


def owners(path: Path) -> list[str]:
    return [one["owner"] for one in read(path).entries]


def by(owner: str) -> list[Any]:
    return [("group-hold", {"scope": "orders", "owner": owner, "group": "g"})]


@pytest.mark.parametrize("name", ["ops.2026-11-21", "ops.1", "ops.2", "ops.000002"])
def test_what_was_moved_away_is_over(path: Path, name: str) -> None:
    """Whatever it is called then; a new one is begun where the old one was."""
    SharedJournal(path).write(by("old"))
    moved = path.rename(path.with_name(f"{name}.journal"))
    for _ in range(2):
        SharedJournal(path).write(by("new"))
    assert (owners(moved), owners(path)) == (["old"], ["new", "new"])


@pytest.mark.parametrize("name", ["prod.2", "prod.000002"])
def test_another_journal_is_no_part_of_this_one(tmp_path: Path, name: str) -> None:
    """Also where this one is long, and the name of its next part is taken."""
    one, two = tmp_path / "prod.journal", tmp_path / f"{name}.journal"
    SharedJournal(one).write(by("one"))
    SharedJournal(two).write(by("two"))
    for _ in range(2):
        SharedJournal(one, part_bytes=1 if name == "prod.000002" else 1000).write(
            by("one")
        )
    assert (owners(one), owners(two)) == (["one"] * 3, ["two"])


def test_a_first_part_may_be_moved_away_alone(path: Path) -> None:
    """Its other parts stay what they are, and are not written to."""
    for _ in range(2):
        SharedJournal(path, part_bytes=1).write(by("old"))
    path.rename(path.with_name("moved.journal"))
    for _ in range(2):
        SharedJournal(path, part_bytes=1).write(by("new"))
    found, troubles = sources(sorted(path.parent.glob("*.journal")))
    assert troubles == []
    told = [[entry["owner"] for entry in one.entries] for one in found]
    assert sorted(told) == [["new", "new"], ["old", "old"]]


def test_a_part_is_not_named_as_a_journal(path: Path) -> None:
    """Its lock is that of the first part."""
    for _ in range(2):
        SharedJournal(path, part_bytes=1).write([SAID])
    second = path.with_name("ops.000002.journal")
    with pytest.raises(JournalError, match="later part of a journal"):
        SharedJournal(second).write([SAID])
    assert numbers(path) == [1, 2]


def test_a_part_of_another_journal_is_not_gone_on_in(path: Path) -> None:
    """As where somebody copied the parts of two machines together."""
    for _ in range(2):
        SharedJournal(path, part_bytes=1).write(by("one"))
    other = path.with_name("other.journal")
    for _ in range(2):
        SharedJournal(other, part_bytes=1).write(by("two"))
    other.with_name("other.000002.journal").rename(path.with_name("ops.000002.journal"))
    with pytest.raises(JournalError, match="a part that is missing, or is broken"):
        SharedJournal(path).write(by("one"))


def test_a_name_may_have_any_letters(tmp_path: Path) -> None:
    path = tmp_path / "ops[1]*.journal"
    for _ in range(3):
        SharedJournal(path, part_bytes=1).write([SAID])
    assert numbers(path) == [1, 2, 3]


# ---------------------------------------------------------------- who may


@pytest.mark.parametrize(
    ("umask", "folder", "mode"),
    [
        (0o022, 0o755, 0o644),
        (0o002, 0o755, 0o664),
        (0o077, 0o755, 0o600),
        (0o022, 0o2775, 0o664),
        (0o077, 0o2770, 0o660),
        (0o022, 0o2755, 0o644),
    ],
)
def test_who_may_write_it(path: Path, umask: int, folder: int, mode: int) -> None:
    """By the umask; where the folder's group shares what is in it, that group."""
    path.parent.chmod(folder)
    before = os.umask(umask)
    try:
        for _ in range(2):
            SharedJournal(path, part_bytes=1).write([SAID])
    finally:
        os.umask(before)
    modes = {one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    assert modes == {mode}


def test_a_mode_that_somebody_chose_is_that_of_later_parts(path: Path) -> None:
    SharedJournal(path).write([SAID])
    path.chmod(0o666)
    SharedJournal(path, part_bytes=1).write([SAID])
    assert path.with_name("ops.000002.journal").stat().st_mode & 0o777 == 0o666


def test_a_link_may_lead_to_where_nothing_is_yet(path: Path) -> None:
    there = path.with_name("elsewhere")
    path.symlink_to(there)
    SharedJournal(path).write([SAID])
    SharedJournal(path).write([SAID])
    assert (path.is_symlink(), len(read(there).entries)) == (True, 2)


def test_without_locks_it_is_a_sentence(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows, where the module for them is missing."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    try:
        with pytest.raises(JournalError, match="has no locks"):
            importlib.reload(shared).SharedJournal(path)
    finally:
        monkeypatch.undo()
        importlib.reload(shared)
