"""No journal entry is lost between two parts, and a missing part is reported."""

import itertools
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from safeconsumer.audit import stream
from safeconsumer.audit.stream import sources
from safeconsumer.errors import JournalError
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.command import run
from tests.harness.audit.journals import read
from tests.harness.processes import forked

# The size of a part in bytes: enough for a few entries about ``poll``.
SIZE = 400


def polls(writer, count):
    for number in range(count):
        writer.write("call", {"op": "poll", "id": number})


def written(folder, count=40):
    """Return the parts of a journal, at least four, in order."""
    writer = JournalWriter(folder, member="a", group="g", part_bytes=SIZE)
    writer.write("assigned", {"partitions": ["orders:0"], "generation": 1})
    polls(writer, count - 1)
    writer.close()
    parts = sorted(folder.glob("*.journal"), key=place)
    assert len(parts) >= 4
    return parts


def place(path):
    with path.open() as file:
        return int(json.loads(file.readline()).get("part", 1))


def numbers(folder):
    journals, troubles = sources(
        {one.name: one for one in sorted(folder.glob("*.journal"))}
    )
    assert troubles == []
    (journal,) = journals
    return [one.n for one in journal.entries]


def test_parts_are_read_in_order_whatever_their_file_names(tmp_path):
    parts = written(tmp_path)
    for number, path in enumerate(reversed(parts)):
        path.rename(tmp_path / f"{number:03}.journal")
    assert numbers(tmp_path) == list(range(1, 41))
    assert all(path.stat().st_size < 2 * SIZE for path in tmp_path.iterdir())
    assert run(tmp_path).exit_code == 0


@pytest.mark.parametrize("missing", [0, 1, 2, -1])
def test_missing_part_is_reported(tmp_path, missing):
    parts = written(tmp_path)
    parts[missing].unlink()
    done = run(tmp_path)
    assert (done.exit_code, "missing" in done.stderr) == (2, True), done.output
    assert "clean" not in done.stdout


def test_lines_missing_from_a_part_are_reported(tmp_path):
    """Only the last part may be incomplete, because its process may have been killed."""
    _, second, *_ = written(tmp_path)
    lines = second.read_text().splitlines(keepends=True)
    for cut in (lines[:-1], lines[:-2], lines[:-2] + lines[-1:]):
        second.write_text("".join(cut))
        done = run(tmp_path)
        # The last line only announces the next part, so nothing is lost if it is missing.
        assert done.exit_code == (0 if cut == lines[:-1] else 2), done.output
    second.write_text("".join([*lines, '{"n":99,"at":1.0,"e":"x"}\n']))
    assert "follows the end of its part" in run(tmp_path).stderr


def test_copy_of_a_part_counts_once(tmp_path):
    """The copy may have been made before the part was complete."""
    parts = written(tmp_path)
    shutil.copy(parts[1], tmp_path / "copy.journal")
    early = parts[2].read_text().splitlines(keepends=True)[:-2]
    (tmp_path / "early.journal").write_text("".join(early))
    assert numbers(tmp_path) == list(range(1, 41))


def test_new_part_starts_after_the_maximum_age(tmp_path):
    now = [0.0]
    writer = JournalWriter(
        tmp_path,
        clock=lambda: now[0],
        wall=lambda: now[0],
        part_bytes=None,
        part_seconds=60.0,
    )
    for moment in (0.0, 59.0, 60.0, 61.0, 300.0):
        now[0] = moment
        writer.write("call", {"op": "poll", "id": 1})
    assert len(list(tmp_path.iterdir())) == 3
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("limit", [0, -1, True, "1"])
def test_part_limit_that_is_not_a_positive_number_is_refused(tmp_path, limit):
    for name in ("part_bytes", "part_seconds"):
        with pytest.raises(JournalError, match=f"{name} must be"):
            JournalWriter(tmp_path, **{name: limit})
    assert list(tmp_path.iterdir()) == []


def failing(name):
    def fail(*_, **__):
        raise OSError(28, name)

    return fail


def test_journal_continues_in_its_current_part_if_no_further_part_can_be_created(
    tmp_path, monkeypatch, caplog
):
    writer = JournalWriter(tmp_path, part_bytes=SIZE)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", failing("full"))
        polls(writer, 40)
    assert len(list(tmp_path.iterdir())) == 1
    assert 1 <= len(caplog.records) < 10
    assert "stays longer than it should" in caplog.text
    polls(writer, 40)
    assert len(list(tmp_path.glob("*.journal"))) > 2
    assert numbers(tmp_path) == list(range(1, 81))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_writes_its_own_parts(tmp_path):
    writer = JournalWriter(tmp_path, part_bytes=SIZE)
    polls(writer, 30)
    assert forked(lambda: polls(writer, 30)) == 0
    polls(writer, 30)
    journals, troubles = sources(
        {one.name: one for one in sorted(tmp_path.glob("*.journal"))}
    )
    counts = sorted(len([*one.entries]) for one in journals)
    assert (counts, troubles) == ([30, 60], [])


def begin_a_part(folder, kill_at, when, wrote):
    """Write until the second part starts; kill the process at one of its system calls."""
    calls = itertools.count(1)

    def deadly(function):
        def call(*given, **named):
            is_last = next(calls) == kill_at
            if is_last and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = function(*given, **named)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    writer = JournalWriter(folder, member="a", part_bytes=SIZE)
    write = os.write
    while writer._end.part.number == 1:
        if writer._is_full(writer._end):
            # Each of these system calls counts as a step.
            os.open, os.write, os.close = map(deadly, (os.open, os.write, os.close))
            Path.rename, Path.unlink = map(deadly, (Path.rename, Path.unlink))
        polls(writer, 1)
        write(wrote, b".")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 8))
def test_no_entry_is_lost_if_the_process_is_killed_while_a_part_starts(
    tmp_path, step, when
):
    reading, writing = os.pipe()
    ended = forked(lambda: begin_a_part(tmp_path, step, when, writing))
    os.close(writing)
    wrote = len(os.read(reading, 1 << 16))
    os.close(reading)
    if ended == 0:
        assert step > 6, "the process survives only a step after the entry"
    else:
        assert os.WTERMSIG(ended) == signal.SIGKILL
    found = numbers(tmp_path)
    assert found == list(range(1, len(found) + 1))
    # The process may be killed before it reports its last entry.
    assert wrote <= len(found) <= wrote + 1


@pytest.mark.parametrize("member", [".billing", "_billing", "/billing"])
def test_journal_file_name_never_begins_with_a_dot_or_underscore(tmp_path, member):
    """Spark silently skips files with such names."""
    writer = JournalWriter(tmp_path, member=member)
    writer.close()
    assert writer.path.name.startswith("billing-")
    assert read(writer.path).member.startswith(f"{member}-")


def test_pipe_in_place_of_a_journal_is_refused(tmp_path):
    """Journals are read twice, and a named pipe may have no writer."""
    (path,) = one_file(tmp_path / "a")
    reading, writing = os.pipe()
    os.write(writing, path.read_bytes())
    os.close(writing)
    piped = run(f"/dev/fd/{reading}")
    os.close(reading)
    os.mkfifo(tmp_path / "b.journal")
    for done, name in ((piped, f"/dev/fd/{reading}"), (run(tmp_path), "b.journal")):
        assert done.exit_code == 2
        assert f"{name} is not a regular file" in done.output


def test_endless_line_is_refused(tmp_path, monkeypatch):
    """The reader stops before the end of a file of zeros."""
    monkeypatch.setattr(stream, "_LONGEST", 1 << 20)
    (path,) = one_file(tmp_path)
    with path.open("ab") as file:
        file.truncate(path.stat().st_size + (1 << 30))
    (journal,) = sources({"one": path})[0]
    with pytest.raises(JournalError, match="a line has more than 1048576 bytes"):
        list(journal.entries)


def one_file(folder):
    writer = JournalWriter(folder, member="a", group="g")
    polls(writer, 3)
    writer.close()
    return list(folder.glob("*.journal"))
