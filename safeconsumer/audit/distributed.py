"""
Judges journals in pieces, each where it lies; Spark's executors run this module.

It takes two steps, with a shuffle between them. :func:`take_apart` puts the lines of
each process together, and splits its journal into facts. :func:`judge_cases` judges each
group and partition by its facts. Both call what the plain command calls, so their
verdicts are the same. They need the judge's modules, attrs, msgspec and pyarrow.

Memory: a task of the first step copies the journals of one process at a time to its
disk, and has in memory what splitting one needs, and at most 20,000 facts. A task of the
second step has the state of one case, and one batch of Arrow's.
"""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safeconsumer.audit.checker import Settings, judge
from safeconsumer.audit.facts import Address, Fact, docket, facts, written_to
from safeconsumer.audit.journal import Source
from safeconsumer.audit.loading import Journals, open_files
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.errors import JournalError

# The columns of lines: the process that wrote it, its file, and the line, as bytes.
LINES = ("process", "file", "line")

# The columns of facts: their address as JSON, their member, their place among its facts,
# and some consecutive facts, pickled. If the address is REPORT, they are a report on the
# journals of one process instead.
FACTS = {"address": "string", "member": "string", "seq": "int64", "facts": "binary"}
REPORT = ""

# The columns of needs: an address, a case that needs its facts, and whether a journal or
# the topic itself says what was written to the topic of the case.
NEEDS = {"address": "string", "case": "string", "is_written": "bool_"}

# The columns of answers: the report's rows on a case, as JSON, or a report on the journals
# of a process. What could not be read is a row without a check.
ANSWERS = {"rows": "string", "report": "string"}

_TOGETHER = 64  # facts in a row, of which Spark sends 10,000 at a time
_WAITING = 20_000  # facts that wait until there are so many for one address


def take_apart(batches: Iterable[Any]) -> Iterator[Any]:
    """
    Split journals into facts.

    Args:
        batches: Arrow's record batches with :data:`LINES`, sorted by process, file and
            place in the file.

    Yields:
        Record batches with :data:`FACTS`.
    """
    lines = _rows(batches, LINES)
    return _batches(_split(lines), FACTS)


def facts_of(
    journal: Source, broken: Callable[[str], object]
) -> Iterator[tuple[object, ...]]:
    """
    Yield rows with :data:`FACTS` for a journal.

    Args:
        journal: the journal.
        broken: called with the reason if it is broken somewhere.
    """
    waiting: dict[Address, list[Fact]] = {}
    count = seq = 0

    def row(address: Address) -> tuple[object, ...]:
        nonlocal seq
        seq += 1
        own = waiting.pop(address)
        return _text(address), own[0].member, seq, pickle.dumps(own)

    try:
        for address, fact in facts(journal):
            own = waiting.setdefault(address, [])
            own.append(fact)
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


def needs_of(batches: Iterable[Any]) -> Iterator[Any]:
    """
    Tell which cases there are, and whose facts each needs.

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
        for case, needed in docket(addresses).items()
        for address in needed
    ]
    return _batches([(REPORT, REPORT, False), *rows], NEEDS)


def judge_cases(batches: Iterable[Any], *, settings: Settings) -> Iterator[Any]:
    """
    Judge cases by their facts.

    Args:
        batches: record batches with ``case``, ``is_written``, ``member``, ``seq`` and
            ``facts``, sorted by case, member and seq.
        settings: the assumptions of the judge.

    Yields:
        Record batches with :data:`ANSWERS`.
    """
    rows = _rows(batches, ("case", "is_written", "facts"))
    return _batches(_answers(rows, settings), ANSWERS)


def _answers(
    rows: Iterable[tuple[Any, ...]], settings: Settings
) -> Iterator[tuple[object, ...]]:
    for (text, is_written), own in groupby(rows, itemgetter(0, 1)):
        several = (facts for _, _, facts in own)
        if text == REPORT:
            for report in several:
                yield (
                    _json(map(_unread, json.loads(report)["troubles"])),
                    report.decode(),
                )
            continue
        case = _address(text)
        told = (fact for one in several for fact in _unpickled(one))
        verdict = judge(case, told, settings, {case.topic} if is_written else ())
        yield _json(rows_of(verdict)), None


def _json(rows: Iterable[Row]) -> str:
    return json.dumps([row.as_dict() for row in rows])


def _unread(trouble: str) -> Row:
    return Row(group="", check="", topic="", partition=-1, unjudged=trouble)


def _split(lines: Iterable[tuple[Any, ...]]) -> Iterator[tuple[object, ...]]:
    for _, own in groupby(lines, itemgetter(0)):
        with TemporaryDirectory(prefix="safeconsumer-audit-") as folder:
            copies = _copied(((name, line) for _, name, line in own), Path(folder))
            given = open_files(list(copies))
            troubles: list[str] = list(given.troubles)
            for journal in given.opened:
                yield from facts_of(journal, troubles.append)
            report = _report(given, troubles, copies)
            yield REPORT, "", 0, json.dumps(report).encode()


def _copied(lines: Iterable[tuple[str, bytes]], folder: Path) -> dict[Path, str]:
    # Returns the name of each copied file; files of one folder stay together.
    copies: dict[Path, str] = {}
    folders: dict[str, Path] = {}
    for name, own in groupby(lines, itemgetter(0)):
        parent, _, last = name.rpartition("/")
        place = folders.setdefault(parent, folder / str(len(folders)))
        place.mkdir(exist_ok=True)
        copies[place / last] = name
        _copy((line for _, line in own), place / last)
    return copies


def _copy(lines: Iterator[bytes], path: Path) -> None:
    with path.open("wb") as file:
        earlier = next(lines)
        is_first = True
        for line in lines:
            file.write(earlier + b"\n")
            earlier, is_first = line, False
        # Spark does not tell whether a last line has its end: what is cut has none.
        file.write(earlier + (b"\n" if is_first or _is_whole(earlier) else b""))


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


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
        "refused": given.refused,
        "readable": [named(str(one)) for one in given.readable],
        "unreadable": [named(str(one)) for one in given.unreadable],
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


def _unpickled(facts: bytes) -> list[Fact]:
    found: list[Fact] = pickle.loads(facts)  # noqa: S301 - pickled by take_apart
    return found
