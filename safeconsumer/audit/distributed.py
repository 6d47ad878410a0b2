"""
Judges journals in pieces, each where it lies; Spark's executors run this module.

It takes two steps, with a shuffle between them. :func:`take_apart` puts the lines of
each process together, and tells what its entries are about. :func:`judge_cases` judges
each group and partition by the entries about it. Both call what the plain command calls,
so their verdicts are the same. They need the judge's modules, attrs, msgspec and pyarrow.

Memory: a task of the first step copies the journals of one process at a time to its
disk, and has at most 20,000 entries in memory. A task of the second step has the state
of one case, and one batch of Arrow's.
"""

import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safeconsumer.audit.checker import Checker, needs_of, written_to
from safeconsumer.audit.entries import Entry
from safeconsumer.audit.findings import Address
from safeconsumer.audit.loading import Journals, open_files
from safeconsumer.audit.members import split
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.results import Settings
from safeconsumer.audit.stream import Source
from safeconsumer.errors.base import JournalError

# The columns of lines: the process that wrote it, its file, the file's size in bytes, and
# the line without its end, as bytes.
LINES = ("process", "file", "size", "line")

# The columns of entries: their address as JSON, their member, the number of the first,
# and some of them, in order, pickled. If the address is REPORT, they are a report on the
# journals of one process instead.
ENTRIES = {"address": "string", "member": "string", "n": "int64", "entries": "binary"}
REPORT = ""

# The columns of needs: an address, a case that needs its facts, and whether a journal or
# the topic itself says what was written to the topic of the case.
NEEDS = {"address": "string", "case": "string", "is_written": "bool_"}

# The columns of answers: the report's rows on a case, as JSON, or a report on the journals
# of a process. What could not be read is a row without a check.
ANSWERS = {"rows": "string", "report": "string"}

_TOGETHER = 64  # entries in a row, of which Spark sends 10,000 at a time
_WAITING = 20_000  # entries that wait until there are so many for one address


def take_apart(batches: Iterable[Any]) -> Iterator[Any]:
    """
    Split journals into entries by what they are about.

    Args:
        batches: Arrow's record batches with :data:`LINES`, sorted by process, file and
            place in the file.

    Yields:
        Record batches with :data:`ENTRIES`.
    """
    return _batches(_split(_rows(batches, LINES)), ENTRIES)


def rows_about(
    journal: Source, broken: Callable[[str], object]
) -> Iterator[tuple[object, ...]]:
    """
    Yield rows with :data:`ENTRIES` for a journal.

    Args:
        journal: the journal.
        broken: called with the reason if it is broken somewhere.
    """
    waiting: dict[Address, list[Entry]] = {}
    count = 0

    def row(address: Address) -> tuple[object, ...]:
        own = waiting.pop(address)
        return _text(address), journal.member, own[0].n, pickle.dumps(own)

    try:
        for address, entry in split(journal):
            own = waiting.setdefault(address, [])
            own.append(entry)
            count += 1
            if len(own) == _TOGETHER:
                count -= _TOGETHER
                yield row(address)
            elif count == _WAITING:
                count = 0
                yield from map(row, list(waiting))
    except JournalError as error:
        broken(str(error))
    yield from map(row, list(waiting))


def tell_needs(batches: Iterable[Any]) -> Iterator[Any]:
    """
    Tell which cases there are, and the entries that each needs.

    Args:
        batches: record batches with the column ``address``, each address once, all in
            one partition.

    Yields:
        Record batches with :data:`NEEDS`.
    """
    texts = {text for (text,) in _rows(batches, ("address",))}
    addresses = {_address(text) for text in texts - {REPORT}}
    written = written_to(addresses)
    rows = [
        (_text(address), _text(case), case.topic in written)
        for case, needed in needs_of(addresses).items()
        for address in needed
    ]
    return _batches([(REPORT, REPORT, False), *rows], NEEDS)


def judge_cases(batches: Iterable[Any], *, settings: Settings) -> Iterator[Any]:
    """
    Judge cases by the entries about them.

    Args:
        batches: record batches with ``case``, ``is_written``, ``member``, ``n`` and
            ``entries``, sorted by case, member and n.
        settings: the assumptions of the judge.

    Yields:
        Record batches with :data:`ANSWERS`.
    """
    rows = _rows(batches, ("case", "is_written", "member", "n", "entries"))
    return _batches(_answers(rows, settings), ANSWERS)


def _answers(
    rows: Iterable[tuple[Any, ...]], settings: Settings
) -> Iterator[tuple[object, ...]]:
    for (text, is_written), own in groupby(rows, itemgetter(0, 1)):
        if text == REPORT:
            for *_, report in own:
                troubles = json.loads(report)["troubles"]
                yield _json(map(_unread, troubles)), report.decode()
            continue
        case = _address(text)
        checker = Checker(settings, only=case)
        troubles = []
        for member, several in groupby(own, itemgetter(2)):
            try:
                checker.follow(member, case.group or "", _in_order(several))
            except JournalError as error:
                troubles.append(_unread(str(error)))
        result = checker.result(case, {case.topic} if is_written else ())
        yield _json([*rows_of(result), *troubles]), None


def _in_order(rows: Iterable[tuple[Any, ...]]) -> Iterator[Entry]:
    # Rows come by their first entries: what is before that of the next row can go. An
    # entry about several addresses of a case goes once.
    waiting: dict[int, Entry] = {}
    for *_, first, entries in rows:
        yield from _before(first, waiting)
        waiting.update((entry.n, entry) for entry in _unpickled(entries))
    yield from _before(math.inf, waiting)


def _before(first: float, waiting: dict[int, Entry]) -> Iterator[Entry]:
    for number in sorted(number for number in waiting if number < first):
        yield waiting.pop(number)


def _json(rows: Iterable[Row]) -> str:
    return json.dumps([row.as_dict() for row in rows])


def _unread(trouble: str) -> Row:
    return Row(group="", check="", topic="", partition=-1, unjudged=trouble)


def _split(lines: Iterable[tuple[Any, ...]]) -> Iterator[tuple[object, ...]]:
    for _, own in groupby(lines, itemgetter(0)):
        with TemporaryDirectory(prefix="safeconsumer-audit-") as folder:
            copies = _copied(own, Path(folder))
            given = open_files(list(copies))
            troubles: list[str] = list(given.troubles)
            for journal in given.opened:
                yield from rows_about(journal, troubles.append)
            report = _report(given, troubles, copies)
            yield REPORT, "", 0, json.dumps(report).encode()


def _copied(lines: Iterable[tuple[Any, ...]], folder: Path) -> dict[Path, str]:
    # Returns the name of each copied file; files of one folder stay together.
    copies: dict[Path, str] = {}
    folders: dict[str, Path] = {}
    for (name, size), own in groupby(lines, itemgetter(1, 2)):
        parent, _, last = name.rpartition("/")
        place = folders.setdefault(parent, folder / str(len(folders)))
        place.mkdir(exist_ok=True)
        copies[place / last] = name
        with (place / last).open("wb") as file:
            file.writelines(line + b"\n" for *_, line in own)
            if file.tell() > size:  # the last line had no end: it is cut
                file.truncate(size)
    return copies


def _report(
    given: Journals, troubles: Iterable[str], copies: Mapping[Path, str]
) -> Mapping[str, object]:
    folders = {copy.parent: name.rpartition("/")[0] for copy, name in copies.items()}

    def named(text: str) -> str:
        for copy, name in folders.items():
            text = text.replace(f"{copy}/", f"{name}/")
        return text

    return {
        "opened": len(given.opened),
        "troubles": [named(one) for one in troubles],
    }


# ---------------------------------------------------------------- rows and batches


def _rows(batches: Iterable[Any], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in names)
        yield from zip(*columns, strict=True)


def _batches(
    rows: Iterable[tuple[object, ...]], types: Mapping[str, str]
) -> Iterator[Any]:
    arrow = import_module("pyarrow")
    kinds = [getattr(arrow, kind)() for kind in types.values()]
    rows = iter(rows)
    while several := list(islice(rows, 256)):
        columns = zip(*several, strict=True)
        arrays = [
            arrow.array(column, kind)
            for column, kind in zip(columns, kinds, strict=True)
        ]
        yield arrow.RecordBatch.from_arrays(arrays, names=list(types))


def _text(address: Address) -> str:
    return json.dumps([address.group, address.topic, address.partition])


def _address(text: str) -> Address:
    return Address(*json.loads(text))


def _unpickled(entries: bytes) -> list[Entry]:
    found: list[Entry] = pickle.loads(entries)  # noqa: S301 - pickled by take_apart
    return found
