"""
The journals that a command is given, read as far as they can be.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from safeconsumer.audit.checker import Court, Settings
from safeconsumer.audit.facts import facts
from safeconsumer.audit.journal import Journal, Source
from safeconsumer.audit.packs import Packs, is_pack
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.stream import Joined, sources
from safeconsumer.errors import JournalError


@frozen(kw_only=True)
class Papers:
    """
    Journals and packs that a command is given.

    Attributes:
        journals: of files.
        packs: what is packed and is none of these.
        troubles: what cannot be read, and why.
    """

    journals: Sequence[Joined]
    packs: Packs
    troubles: Sequence[str]

    def __len__(self) -> int:
        """
        How many journals there are.
        """
        return len(self.journals) + len(self.packs.known) + len(self.troubles)

    def about(self, tp: TopicPartition) -> Sequence[Source]:
        """
        Return the journals, with at least what they say of one partition.
        """
        return [*self.journals, *self.packs.journals(tp)]

    def partitions(self) -> set[TopicPartition]:
        """
        Return every partition that they name.
        """
        named: set[TopicPartition] = set()
        for one in self.journals:
            with suppress(JournalError):  # it is named where it is judged
                named.update((about.topic, about.partition) for about, _ in facts(one))
        named.update((about.topic, about.partition) for about, _ in self.packs.told())
        return {tp for tp in named if tp[0]}

    def judged(
        self, settings: Settings, more: Sequence[Source] = ()
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """
        Return one row per check and case, and why some could not be read.

        Args:
            settings: what may be assumed.
            more: journals that were made meanwhile.
        """
        court = Court(settings)
        troubles = list(self.troubles)
        journals: list[Source] = [*self.journals, *more]
        for journal in journals:
            try:
                court.hear(journal)
            except JournalError as error:
                troubles.append(str(error))
        for address, fact in self.packs.told():
            court.take(address, fact)
        rows = (row for one in court.verdicts().values() for row in rows_of(one))
        return tuple(rows), tuple(troubles)


def papers(given: Sequence[Path]) -> Papers:
    """
    Open journals, folders of journals, and packs.

    A journal that is packed and also there as files is read from the pack, unless it
    went on.

    Raises:
        MissingExtraError: there is a pack, and pyarrow is missing.
    """
    folders = [path for path in given if is_pack(path)]
    found, troubles = sources(files([path for path in given if path not in folders]))
    try:
        packs = Packs(folders)
    except JournalError as error:
        packs = Packs(())
        troubles.append(str(error))
    journals: list[Joined] = []
    for one in found:
        known = packs.known.get(one.member)
        if known is None or (known.began, known.size) != (one.began, one.size):
            journals.append(one)
            packs.known.pop(one.member, None)
    return Papers(journals=journals, packs=packs, troubles=troubles)


def files(given: Sequence[Path], *patterns: str) -> list[Path]:
    """
    Return the files themselves, and those of folders: ``*.journal``, or as named.
    """
    found: list[Path] = []
    for path in given:
        inside = (one for name in patterns or ("*.journal",) for one in path.glob(name))
        found.extend(sorted(inside) if path.is_dir() else [path])
    return found


def read_all(paths: Sequence[Path]) -> tuple[list[Journal], list[str]]:
    """
    Return the journals that can be read, and why the others cannot.
    """
    found, troubles = sources(paths)
    journals: list[Journal] = []
    for one in found:
        try:
            entries = tuple(one.entries)
        except JournalError as error:
            troubles.append(str(error))
        else:
            journals.append(
                Journal(member=one.member, group=one.group, entries=entries)
            )
    return journals, troubles
