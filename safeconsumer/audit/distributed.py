"""
Turns journals into facts and judges them, on Spark's executors.

The work has two steps, with a shuffle between them. :func:`take_apart` joins the lines
of each process and converts them into facts. :func:`judge_cases` judges each group and
partition by the facts about it. Both functions call the same code as the plain command,
so the verdicts are the same. Besides safeconsumer's own modules, the two functions
need only attrs, msgspec and pyarrow.

Memory: a task of the first step copies the journals of one process at a time to its
disk, and has some 10,000 facts in memory. A task of the second step keeps the state of
one case and one Arrow batch in memory.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, count, groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safeconsumer.audit.facts import Fact, decoded, encoded
from safeconsumer.audit.findings import Address
from safeconsumer.audit.judge import Judge, needs_of, written_to
from safeconsumer.audit.loading import open_files
from safeconsumer.audit.process import Process
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.results import Settings
from safeconsumer.audit.stream import Source
from safeconsumer.errors.base import JournalError

# The columns of a line: the process that wrote the line, its file, the file's size in
# bytes, and the line without its newline, as bytes.
LINES = ("process", "file", "size", "line")

# The columns of a fact: its address (group and partition), as JSON and in separate
# columns; the member; the fact's index among the facts of the process; its kind, and
# the whole fact as JSON. A row whose column ``address`` is REPORT has no fact, but a
# report about the journals of one process.
FACTS = {
    "address": "string",
    "group": "string",
    "topic": "string",
    "partition": "int32",
    "member": "string",
    "place": "int64",
    "kind": "string",
    "fact": "string",
}
REPORT = ""

# A row says that a case needs the facts about an address. ``is_written``: whether a
# journal or the topic itself shows which records were written to the case's topic.
NEEDS = {"address": "string", "case": "string", "is_written": "bool_"}

# A row has the results for a case, as JSON, or a report about the journals of a
# process. The result for a journal that could not be read names no check.
ANSWERS = {"rows": "string", "report": "string"}

_TOGETHER = 10_000  # how many entries are read before their facts are passed on


def take_apart(batches: Iterable[Any]) -> Iterator[Any]:
    """
    Turn journals into facts.

    Args:
        batches: Arrow's record batches with the columns of :data:`LINES`, sorted by
            process, file and line.

    Yields:
        Record batches with the columns of :data:`FACTS`.
    """
    return _batches(_split(_rows(batches, LINES)), FACTS)


def rows_about(
    journal: Source, broken: Callable[[str], object]
) -> Iterator[tuple[object, ...]]:
    """
    Yield rows with the columns of :data:`FACTS` for a journal.

    Args:
        journal: the journal.
        broken: called with the reason if the journal is broken somewhere.
    """
    rows: list[tuple[object, ...]] = []
    places = count()

    def takes(address: Address) -> Callable[[Fact], None]:
        about = _text(address), address.group, address.topic, address.partition

        def take(fact: Fact) -> None:
            row = *about, journal.member, next(places), fact.event, encoded(fact)
            rows.append(row)

        return take

    process = Process(journal.member, journal.group, takes, is_each=True)
    try:
        entries = iter(journal.entries)
        for first in entries:
            # Entries are read one at a time, because those before a broken entry count.
            process.read(chain([first], islice(entries, _TOGETHER - 1)))
            yield from rows
            rows.clear()
    except JournalError as error:
        broken(str(error))
    process.end()
    yield from rows


def tell_needs(batches: Iterable[Any]) -> Iterator[Any]:
    """
    Yield the cases, and the facts that each case needs.

    Args:
        batches: record batches with the column ``address``, each address once; all of
            them must be in one partition of Spark.

    Yields:
        Record batches with the columns of :data:`NEEDS`.
    """
    texts = {text for (text,) in _rows(batches, ("address",))}
    addresses = {address_of(text) for text in texts - {REPORT}}
    written = written_to(addresses)
    rows = [
        (_text(address), _text(case), case.topic in written)
        for case, needed in needs_of(addresses).items()
        for address in needed
    ]
    return _batches([(REPORT, REPORT, False), *rows], NEEDS)


def judge_cases(batches: Iterable[Any], *, settings: Settings) -> Iterator[Any]:
    """
    Judge cases by the facts about them.

    Args:
        batches: record batches with ``case``, ``is_written``, ``address``, ``member``,
            ``place`` and ``fact``, sorted by case, member and place.
        settings: the judge's settings.

    Yields:
        Record batches with the columns of :data:`ANSWERS`.
    """
    rows = _rows(batches, ("case", "is_written", "address", "member", "fact"))
    return _batches(_answers(rows, settings), ANSWERS)


def _answers(
    rows: Iterable[tuple[Any, ...]], settings: Settings
) -> Iterator[tuple[object, ...]]:
    for (text, is_written), own in groupby(rows, itemgetter(0, 1)):
        if text == REPORT:
            for *_, report in own:
                troubles = json.loads(report)["troubles"]
                yield _json(map(_unread, troubles)), report
            continue
        judge, case = Judge(settings), address_of(text)
        for member, several in groupby(own, itemgetter(3)):
            takes: dict[str, Callable[[Fact], None]] = {}
            for _, _, address, _, fact in several:
                if address not in takes:
                    takes[address] = judge.takes(address_of(address), member)
                takes[address](decoded(fact))
        yield _json(rows_of(judge.result(case, is_written=is_written))), None


def _json(rows: Iterable[Row]) -> str:
    return json.dumps([row.as_dict() for row in rows])


def _unread(trouble: str) -> Row:
    return Row(group="", check="", topic="", partition=-1, unjudged=trouble)


def _split(lines: Iterable[tuple[Any, ...]]) -> Iterator[tuple[object, ...]]:
    for _, own in groupby(lines, itemgetter(0)):
        with TemporaryDirectory(prefix="safeconsumer-audit-") as folder:
            given = open_files(_copied(own, Path(folder)))
            troubles: list[str] = list(given.troubles)
            for journal in given.opened:
                yield from rows_about(journal, troubles.append)
            report = {"opened": len(given.opened), "troubles": troubles}
            yield REPORT, None, "", -1, "", 0, REPORT, json.dumps(report)


def _copied(lines: Iterable[tuple[Any, ...]], folder: Path) -> dict[str, Path]:
    # Return the local copy of each file, by the file's name.
    copies: dict[str, Path] = {}
    for (name, size), own in groupby(lines, itemgetter(1, 2)):
        copy = copies[name] = folder / str(len(copies))
        with copy.open("wb") as file:
            file.writelines(line + b"\n" for *_, line in own)
            if file.tell() > size:  # the last line had no newline
                file.truncate(size)
    return copies


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


def address_of(text: str) -> Address:
    """Return the address of a row."""
    return Address(*json.loads(text))
