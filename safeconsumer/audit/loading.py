"""Opens journal files, judges them in this process, and lists the unreadable ones."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from attrs import frozen

from safeconsumer.audit.entries import Entry, Other
from safeconsumer.audit.facts import Fact
from safeconsumer.audit.findings import Address
from safeconsumer.audit.judge import Judge
from safeconsumer.audit.process import Process
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.results import Settings
from safeconsumer.audit.stream import Joined, Source, sources
from safeconsumer.errors.base import JournalError


@frozen(kw_only=True)
class Journals:
    """
    The journals in some files, joined from their parts.

    Attributes:
        opened: the journals that can be read, at least in part.
        troubles: the files that cannot be read, each with the reason.
    """

    opened: Sequence[Joined]
    troubles: Sequence[str]

    def __len__(self) -> int:
        """Return the number of journals that can be read, at least in part."""
        return len(self.opened)

    def near(self, member: str, first: int, last: int) -> Sequence[Entry | Other]:
        """Return a member's entries from a first to a last number."""
        found: list[Entry | Other] = []
        for journal in self.opened:
            if journal.member == member:
                # judged() reports the broken line
                with suppress(JournalError):
                    upto = takewhile(lambda entry: entry.n <= last, journal.entries)
                    found.extend(entry for entry in upto if entry.n >= first)
        return found

    def partitions(self) -> set[TopicPartition]:
        """Return every partition that the journals name."""
        named: set[TopicPartition] = set()

        def takes(about: Address) -> Callable[[Fact], None]:
            named.add(about.tp)
            return lambda _: None

        for one in self.opened:
            with suppress(JournalError):  # judged() reports the broken journal
                process = Process(one.member, one.group, takes)
                process.read(one.entries)
        return {tp for tp in named if tp[0]}

    def judged(
        self, settings: Settings, more: Sequence[Source] = ()
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """
        Return one row per check and case, and the reasons for unreadable journals.

        Args:
            settings: the judge's settings.
            more: further journals, for example of topics.
        """
        judge = Judge(settings)
        troubles = self.read_by(judge.read, more)
        rows = (row for one in judge.results().values() for row in rows_of(one))
        return tuple(rows), tuple(troubles)

    def read_by(
        self, read: Callable[[Source], object], more: Sequence[Source] = ()
    ) -> list[str]:
        """
        Call a function on every journal; return the reasons why some cannot be read.

        Args:
            read: reads one journal, and raises a JournalError if it is broken somewhere.
            more: further journals.
        """
        troubles = list(self.troubles)
        for journal in (*self.opened, *more):
            try:
                read(journal)
            except JournalError as error:
                troubles.append(str(error))
        return troubles


def load(given: Iterable[Path]) -> Journals:
    """Open the journals in files and folders; ``troubles`` lists the unreadable ones."""
    given = tuple(given)
    paths, troubles = files(given)
    troubles = [*_empty(given, paths), *troubles]
    return open_files({str(path): path for path in paths}, troubles)


def open_files(paths: Mapping[str, Path], troubles: Sequence[str] = ()) -> Journals:
    """
    Open the journals in files.

    Two processes with the same name cannot be distinguished: the journal of the first
    is opened, and the other journal is added to ``troubles``.

    Args:
        paths: the files, each once, by the names that error messages use for them.
        troubles: the files that are already known to be unreadable.
    """
    found, unread = sources(paths)
    troubles = [*troubles, *unread]
    opened: list[Joined] = []
    began: dict[tuple[str, str], float] = {}
    for journal in found:
        name = journal.member, journal.group
        if began.setdefault(name, journal.began) == journal.began:
            opened.append(journal)
        else:
            troubles.append(
                f"there is another journal of a process with the name {journal.member}"
            )
    return Journals(opened=opened, troubles=troubles)


def files(given: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """
    Return the journals among files and folders, and the folders that cannot be listed.

    The journals in a folder are all ``*.journal`` files at any depth, each once.
    """
    found: list[Path] = []
    failed: list[OSError] = []
    for path in given:
        if not path.is_dir():
            found.append(path)
            continue
        for folder, deeper, names in os.walk(path, onerror=failed.append):
            deeper.sort()
            inside = (name for name in sorted(names) if name.endswith(".journal"))
            found += (Path(folder, name) for name in inside)
    once = {one.resolve(): one for one in reversed(found)}
    troubles = [f"{one.filename} cannot be listed: {one.strerror}" for one in failed]
    return [one for one in found if once[one.resolve()] is one], troubles


def _empty(given: Iterable[Path], journals: Iterable[Path]) -> list[str]:
    known = {folder for one in journals for folder in one.parents}
    return [
        f"there is no journal in {path}"
        for path in given
        if path.is_dir() and path not in known and os.access(path, os.R_OK | os.X_OK)
    ]
