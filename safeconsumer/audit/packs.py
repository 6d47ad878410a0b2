"""
Keeps journals as Parquet in packs, by consumer group, topic and partition.

A pack is a folder: ``facts/group=.../topic=.../partition=.../*.parquet`` has the facts
of journals, as the judge gets them (:mod:`safeconsumer.audit.facts`), and
``journals/*.parquet`` lists the journals in the pack, with the number of facts of each.
A fact counts only if its journal is listed, and all listed facts must be found: so a
missing file is noticed, and files that a killed process left are ignored. Packing again
adds new journals; a journal that has grown replaces its earlier facts.
"""

import fcntl
import hashlib
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TextIO
from urllib.parse import quote

from attrs import define, frozen

from safeconsumer.audit.facts import Address, Fact, Told, facts
from safeconsumer.audit.journal import Entry, Journal, Source
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.errors import JournalError, MissingExtraError
from safeconsumer.journal.format import tp_text

VERSION = 1

FACTS, JOURNALS = "facts", "journals"

# The number of rows that are collected before a write; each takes some 300 bytes.
_ROWS = 200_000

# The length of a folder's name in bytes, less "group=" and a digest; systems allow 255.
_LONGEST = 200

_OWNED = frozenset({"assigned", "revoked", "lost"})

_MARK = "_pack"
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_NEEDS_PYARROW = "packs need pyarrow: pip install 'safeconsumer[spark]'"

# The columns of facts, and of journals, with their types in Arrow; "name" is a text
# that many rows share. Spark has them in `safeconsumer.spark.auditing`.
COLUMNS = {
    "address": "name",
    "member": "name",
    "run": "name",
    "seq": "int64",
    "n": "int64",
    "at": "float64",
    "e": "name",
    "fields": "string",
    "called": "int64",
    "polls": "int64",
}
OF_JOURNALS = {
    "pack": "int64",
    "member": "string",
    "group": "string",
    "began": "float64",
    "run": "string",
    "size": "int64",
    "entries": "int64",
    "facts": "int64",
}


class Packable(Source, Protocol):
    """A journal that can be packed."""

    @property
    def began(self) -> float:
        """When its first part began, seconds since the epoch."""

    @property
    def size(self) -> int:
        """How many bytes its parts have."""

    @property
    def is_shared(self) -> bool:
        """Return whether one process after the other appends to it."""


@frozen(kw_only=True)
class Known:
    """
    The record of one journal in a pack.

    Attributes:
        member: the process that wrote it.
        group: its consumer group.
        began: when it began, seconds since the epoch.
        run: the packing that wrote it.
        size: how many bytes it had.
        entries: the number of its last entry.
        facts: how many facts it made.
    """

    member: str
    group: str
    began: float
    run: str
    size: int
    entries: int
    facts: int


@define
class Packed:
    """
    The result of packing, as numbers of journals.

    Attributes:
        added: journals that were new.
        grown: journals that have grown since they were packed.
        kept: journals that were packed already.
    """

    added: int = 0
    grown: int = 0
    kept: int = 0


def is_pack(path: Path) -> bool:
    """
    Return whether a folder is a pack, or the rest of one.

    A folder that only has the name of a pack's subfolder is not a pack.
    """
    if (path / _MARK).exists() or any((path / FACTS).glob("group=*")):
        return True
    return any((path / JOURNALS).glob("[!.]*.parquet"))


@lru_cache(maxsize=4096)
def address_text(address: Address) -> str:
    """Return the name of an address in packs."""
    return json.dumps([address.group, address.topic, address.partition])


@lru_cache(maxsize=4096)
def address_of(text: str) -> Address:
    """Return the address with this name in packs."""
    return Address(*json.loads(text))


def newest(known: Iterable[Known]) -> dict[str, Known]:
    """
    Return the record that counts for each member.

    Raises:
        JournalError: two processes have one name.
    """
    found: dict[str, Known] = {}
    for one in known:
        other = found.setdefault(one.member, one)
        if (other.group, other.began) != (one.group, one.began):
            message = f"two processes are packed that are both called {one.member}"
            raise JournalError(message)
        if (one.entries, one.run) > (other.entries, other.run):
            found[one.member] = one
    return found


def missing(
    known: Mapping[str, Known], found: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Yield the faults in the numbers of facts, by member and run."""
    for one in known.values():
        count = found.get((one.member, one.run), 0)
        if count != one.facts:
            yield (
                f"the pack has {count} of {one.facts} facts of the journal of "
                f"{one.member}: files of it are missing, or there twice"
            )
    for member in sorted({member for member, _ in found} - known.keys()):
        yield (
            f"the pack has facts of the journal of {member}, and not that it is "
            f"complete: look for files that are missing in {JOURNALS}, or pack that "
            "journal again"
        )


# ---------------------------------------------------------------- writing


def pack(
    journals: Iterable[Packable],
    folder: Path,
    say: Callable[[Packed], object] = lambda _: None,
) -> Packed:
    """
    Put journals into a new or an existing pack.

    Unchanged journals that are packed already stay as they are. A killed process leaves
    a valid pack; packing again continues. Nothing else is ever removed: facts
    whose file in ``journals`` is missing may be all that is left of a journal.

    Args:
        journals: whole journals.
        folder: where the pack is, or will be.
        say: called from time to time with the progress.

    Raises:
        JournalError: a journal is broken; the folder contains something else; a journal
            is shorter than its packed copy; or another process packs there.
        MissingExtraError: pyarrow is missing.
        OSError: the folder cannot be written.
    """
    _arrow()
    with _locked(folder) as mark:
        every = list(_known(folder))
        said = _said(folder, every)
        known = newest(every)
        _tidy(folder, _begun(mark) - {one.run for one in every})
        done, writing = Packed(), _Writing(folder)
        _begin(mark, writing.run)
        for journal in journals:
            before = known.get(journal.member)
            if before is not None and journal.is_shared:
                check_copy(journal, before, said.get((before.member, before.run), {}))
            if before is not None and _is_same(journal, before):
                done.kept += 1
                continue
            known[journal.member] = writing.take(journal, before)
            done.grown += before is not None
            done.added += before is None
            if writing.is_full():
                writing.flush()
                _begin(mark)
                say(done)
        writing.flush()
        _begin(mark)
    return done


def check_copy(journal: Source, known: Known, said: Mapping[int, Fact]) -> None:
    """
    Check that a shared journal agrees with its packed copy, as far as both go.

    Args:
        journal: the journal.
        known: the record of its packed copy.
        said: the packed entries of operators, by number.

    Raises:
        JournalError: it was copied, and went on in both places; or it is broken.
    """
    own = {fact.number: fact for address, fact in facts(journal) if not address.topic}
    _compare(journal.member, own, dict(said), min(max(own, default=0), known.entries))


def _compare(
    member: str, own: Mapping[int, Fact], other: Mapping[int, Fact], last: int
) -> None:
    for number in sorted({*own, *other}):
        if number <= last and own.get(number) != other.get(number):
            message = (
                f"what is packed of the journal of {member} has another entry "
                f"{number}: a journal that was copied goes on in both places"
            )
            raise JournalError(message)


def _said(
    folder: Path, known: Iterable[Known]
) -> dict[tuple[str, str], dict[int, Fact]]:
    # Operators' entries, by member and run, and by the number of the entry.
    found: dict[tuple[str, str], dict[int, Fact]] = {
        (one.member, one.run): {} for one in known
    }
    for path in _parquet(folder / FACTS) if found else ():
        for text, *rest in _rows(path, tuple(COLUMNS)):
            if address_of(text).topic:
                break  # a file is about one address
            if (rest[0], rest[1]) in found:
                fact = fact_of(path, rest)
                found[rest[0], rest[1]][fact.number] = fact
    return found


def _is_same(journal: Packable, known: Known) -> bool:
    if (journal.group, journal.began) != (known.group, known.began):
        message = (
            f"another journal of a process that is called {journal.member} is packed"
        )
        raise JournalError(message)
    return journal.size == known.size


@contextmanager
def _locked(folder: Path) -> Iterator[TextIO]:
    mark = folder / _MARK
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        message = (
            f"{folder} has something in it and is no pack: name a folder that is "
            "empty, or not there, or a pack"
        )
        raise JournalError(message)
    for name in (FACTS, JOURNALS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with mark.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = f"another process packs into {folder} now"
            raise JournalError(message) from error
        yield file  # the lock ends with the file, or with the process


def _begun(mark: TextIO) -> set[str]:
    # The run that was killed before any of its facts counted, if there is one.
    mark.seek(0)
    return set(mark.read().split())


def _begin(mark: TextIO, *runs: str) -> None:
    mark.truncate(0)
    mark.write("\n".join(runs))
    mark.flush()


def _tidy(folder: Path, runs: set[str]) -> None:
    # Removes what a killed process left: files with temporary names, and those of its
    # run, of which nothing counts.
    for path in (folder / FACTS).rglob("*.parquet"):
        if path.name.startswith(".") or path.name.partition("-")[0] in runs:
            path.unlink()
    for path in (folder / JOURNALS).glob(".*.parquet"):
        path.unlink()


class _Writing:
    """One run of packing, with its collected rows and its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.run = uuid.uuid4().hex[:12]
        self._files = 0
        self._rows: dict[Address, list[list[object]]] = {}
        self._waiting = 0
        self._uncounted = 0
        self._journals: list[Known] = []

    def take(self, journal: Packable, before: Known | None) -> Known:
        # Taken before it is read: later entries of the process are packed next time.
        size = journal.size
        seq = last = 0
        for address, fact in facts(journal):
            rows = self._rows.get(address)
            if rows is None:
                rows = self._rows[address] = [[] for _ in COLUMNS]
            values = row_of(address, fact, self.run, seq)
            for column, value in zip(rows, values, strict=True):
                column.append(value)
            seq, last = seq + 1, max(last, fact.number)
            self._waiting += 1
            if self._waiting >= _ROWS:
                self._flush_facts()
        if before is not None and last < before.entries:
            message = (
                f"the journal of {journal.member} has {last} entries; "
                f"{before.entries} are packed"
            )
            raise JournalError(message)
        known = Known(
            member=journal.member,
            group=journal.group,
            began=journal.began,
            run=self.run,
            size=size,
            entries=last,
            facts=seq,
        )
        self._journals.append(known)
        self._uncounted += seq
        return known

    def is_full(self) -> bool:
        return self._uncounted >= _ROWS

    def flush(self) -> None:
        """Write the collected rows, and then the record with which they count."""
        self._flush_facts()
        if self._journals:
            rows = [
                [VERSION, *(getattr(one, name) for name in list(OF_JOURNALS)[1:])]
                for one in self._journals
            ]
            columns = [list(column) for column in zip(*rows, strict=True)]
            self._write(self._folder / JOURNALS, OF_JOURNALS, columns)
            self._journals, self._uncounted = [], 0

    def _flush_facts(self) -> None:
        for address, columns in self._rows.items():
            self._write(self._folder / FACTS / _place(address), COLUMNS, columns)
        self._rows, self._waiting = {}, 0

    def _write(
        self, folder: Path, types: Mapping[str, str], columns: Sequence[list[object]]
    ) -> None:
        arrow, parquet = _arrow()
        arrays = [
            arrow.array(values, _type(arrow, kind))
            for values, kind in zip(columns, types.values(), strict=True)
        ]
        table = arrow.Table.from_arrays(arrays, names=list(types))
        self._files += 1
        name = f"{self.run}-{self._files:06}.parquet"
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{name}"
        parquet.write_table(table, unfinished, compression="zstd")
        unfinished.rename(folder / name)


def row_of(address: Address, fact: Fact, run: str, seq: int) -> tuple[object, ...]:
    """Return a fact as a row with :data:`COLUMNS`."""
    fields = json.dumps(dict(fact.fields), separators=(",", ":"))
    place = (address_text(address), fact.member, run, seq)
    return (
        *place,
        fact.number,
        fact.at,
        fact.event,
        fields,
        fact.called,
        fact.polls,
    )


def _place(address: Address) -> Path:
    # For people, and for reading parts of it; the file itself has the valid name.
    group = quote(address.group, safe="") if address.group else _NOTHING
    if len(group) > _LONGEST:
        digest = hashlib.sha256(group.encode()).hexdigest()[:16]
        group = f"{re.sub('%.?$', '', group[:_LONGEST])}-{digest}"
    number = _NOTHING if address.partition < 0 else str(address.partition)
    topic = address.topic or _NOTHING
    return Path(f"group={group}", f"topic={topic}", f"partition={number}")


# ---------------------------------------------------------------- reading


class Packs:
    """
    Packs in folders of this machine, read together.

    If several packs have a process, the one with most of its entries counts. A pack
    that cannot be read, has a newer version, or lacks something is left out and
    reported; what the others prove remains true.

    Args:
        folders: the packs; one that is named twice counts once.

    Attributes:
        known: the record that counts for each member; removed ones are skipped.
        troubles: the packs that are left out, and why.

    Raises:
        JournalError: two processes have one name.
        MissingExtraError: pyarrow is missing.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.troubles: list[str] = []
        self._whole: dict[Path, dict[str, Known]] = {}
        for folder in {one.resolve(): one for one in folders}.values():
            try:
                self._whole[folder] = _whole(folder)
            except JournalError as error:
                self.troubles.append(str(error))
        self.known = newest(one for own in self._whole.values() for one in own.values())
        for folder, own in self._whole.items():
            self._compare(folder, own)

    def _compare(self, folder: Path, own: Mapping[str, Known]) -> None:
        # A copy of an operators' journal may have grown separately.
        older = [one for name, one in own.items() if self.known[name] != one]
        for (member, _), said in _said(folder, older).items():
            known = self.known[member]
            try:
                _compare(member, self.of_operators(known), said, own[member].entries)
            except JournalError as error:
                self.troubles.append(str(error))

    def of_operators(self, known: Known) -> Mapping[int, Fact]:
        """
        Return operators' entries in a journal, by number.

        Raises:
            JournalError: something is broken.
        """
        folder = next(
            folder
            for folder, own in self._whole.items()
            if own.get(known.member) == known
        )
        return _said(folder, [known])[known.member, known.run]

    def told(self, only: TopicPartition | None = None) -> Told:
        """
        Yield the facts of the journals, those of each member and address in order.

        Args:
            only: a partition; yields only its facts and those of operators.

        Raises:
            JournalError: something is broken.
        """
        for path, valid in self._files():
            for text, *rest in _rows(path, tuple(COLUMNS)):
                address = address_of(text)
                if only is not None and not is_about(address, only):
                    break  # a file is about one address
                if (rest[0], rest[1]) in valid:
                    yield address, fact_of(path, rest)

    def journals(self, tp: TopicPartition) -> list[Journal]:
        """
        Return journals with the facts about one partition.

        Raises:
            JournalError: something is broken.
        """
        return journals_of(self.told(tp), tp, self.known)

    def _files(self) -> Iterator[tuple[Path, set[tuple[str, str]]]]:
        # Packs with the records that count in them; a copy of a pack has none.
        left = dict(self.known)
        for folder, own in self._whole.items():
            here = [one for name, one in own.items() if left.get(name) == one]
            valid = {(one.member, one.run) for one in here}
            for one in here:
                del left[one.member]
            for path in _parquet(folder / FACTS) if valid else ():
                yield path, valid


def is_about(address: Address, tp: TopicPartition) -> bool:
    """Return whether facts concern a partition: its own, and those of operators."""
    return not address.topic or (address.topic, address.partition) == tp


def journals_of(
    told: Told, tp: TopicPartition, known: Mapping[str, Known]
) -> list[Journal]:
    """Return journals with the facts about a partition, and operators' about its groups."""
    found: dict[str, list[Entry]] = {name: [] for name in known}
    for address, fact in told:
        found[fact.member].append(_entry(address, fact, tp_text(tp)))
    return [
        Journal(
            member=name,
            group=known[name].group,
            entries=tuple(sorted(entries, key=lambda one: one.number)),
        )
        for name, entries in found.items()
    ]


def _entry(address: Address, fact: Fact, name: str) -> Entry:
    # As in the journal, as far as the entry was about this partition.
    if not address.topic:
        said = {**fact.fields, "group": address.group}
    elif fact.event in _OWNED:
        said = {"partitions": [name], **fact.fields}
    else:
        said = {"tp": name, **fact.fields}
    if "offset" in said:
        said["offsets"] = {name: said["offset"]}
    return Entry(fact.member, fact.number, fact.at, fact.event, said)


def fact_of(path: object, row: Sequence[Any]) -> Fact:
    """
    Return the fact of a row, which has all :data:`COLUMNS` but the first.

    Raises:
        JournalError: it cannot be read; the message names the path.
    """
    member, _, _, number, at, event, said, called, polls = row
    try:
        fields = json.loads(said)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{path} cannot be read: entry {number} of {member}: {error}"
        raise JournalError(message) from error
    return Fact(member, number, at, event, fields, called, polls)


def _whole(folder: Path) -> dict[str, Known]:
    known = newest(_known(folder))
    counts: Counter[tuple[str, str]] = Counter()
    for path in _parquet(folder / FACTS):
        counts.update(_rows(path, ("member", "run")))
    for trouble in missing(known, counts):
        message = f"{folder}: {trouble}"
        raise JournalError(message)
    return known


def _parquet(folder: Path) -> list[Path]:
    # Sorted by name, so that the facts of an address come in order.
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            message = f"{folder} cannot be listed: {error}"
            raise JournalError(message) from error

    return sorted(
        Path(place, name)
        for place, _, names in os.walk(folder, onerror=refuse)
        for name in names
        if name.endswith(".parquet") and not name.startswith(".")
    )


def _known(folder: Path) -> Iterator[Known]:
    for path in _parquet(folder / JOURNALS):
        for version, *values in _rows(path, tuple(OF_JOURNALS)):
            check_version(str(folder), version)
            yield Known(**dict(zip(list(OF_JOURNALS)[1:], values, strict=True)))


def check_version(name: str, version: int) -> None:
    """
    Check that a pack has a version that can be read.

    Raises:
        JournalError: it does not.
    """
    if version != VERSION:
        message = (
            f"{name} is a pack of version {version!r}; this program reads {VERSION}"
        )
        raise JournalError(message)


def _rows(path: Path, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    arrow, parquet = _arrow()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=list(names)):
                yield from zip(
                    *(batch.column(name).to_pylist() for name in names), strict=True
                )
    except (OSError, KeyError, arrow.ArrowException) as error:
        message = f"{path} cannot be read: {error}"
        raise JournalError(message) from error


def _type(arrow: Any, kind: str) -> Any:  # noqa: ANN401 - pyarrow is untyped
    if kind == "name":
        return arrow.dictionary(arrow.int32(), arrow.string())
    return getattr(arrow, kind)()


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise MissingExtraError(_NEEDS_PYARROW) from error
