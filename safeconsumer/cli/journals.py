"""Opens the journals that a command is given, and reads as much as it can."""

import functools
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from safeconsumer.audit.checker import Court, Settings
from safeconsumer.audit.facts import facts
from safeconsumer.audit.journal import Source
from safeconsumer.audit.packs import Packs, check_copy, is_pack
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.report import Row, rows_of
from safeconsumer.audit.stream import Joined, sources
from safeconsumer.errors import JournalError

_OF_A_PART = re.compile(r"\.\d{6}$")


@frozen(kw_only=True)
class Papers:
    """
    The journals and packs that a command is given.

    Attributes:
        files: every journal that exists as files.
        journals: those of them that are read.
        packs: the packed journals that are not among these.
        troubles: what cannot be read, and why.
        empty: folders without a journal.
        lost: how many journals cannot be read at all.
    """

    files: Sequence[Joined]
    journals: Sequence[Joined]
    packs: Packs
    troubles: Sequence[str]
    empty: Sequence[str] = ()
    lost: int = 0

    def __len__(self) -> int:
        """How many journals there are, without those in folders that cannot be listed."""
        return len(self.journals) + len(self.packs.known) + self.lost

    def about(self, tp: TopicPartition) -> Sequence[Source]:
        """Return the journals, at least with their entries about one partition."""
        return [*self.journals, *self.packs.journals(tp)]

    def partitions(self) -> set[TopicPartition]:
        """Return every partition that the journals name."""
        named: set[TopicPartition] = set()
        for one in self.journals:
            with suppress(JournalError):  # judged() names it
                named.update((about.topic, about.partition) for about, _ in facts(one))
        named.update((about.topic, about.partition) for about, _ in self.packs.told())
        return {tp for tp in named if tp[0]}

    def judged(
        self, settings: Settings, more: Sequence[Source] = ()
    ) -> tuple[tuple[Row, ...], tuple[str, ...]]:
        """
        Return one row per check and case, and why some journals could not be read.

        Args:
            settings: the assumptions.
            more: further journals, for example of topics.
        """
        court = Court(settings)
        troubles = [*self.empty, *self.troubles]
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


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what the judge assumes; it is called with ``settings``."""

    @click.option(
        "--drained",
        is_flag=True,
        help="Every written record should have been delivered.",
    )
    @click.option(
        "--clock-skew",
        type=float,
        default=0.0,
        callback=_allowance,
        metavar="SECONDS",
        help="By how much the clocks of any two hosts may differ, brokers too.",
    )
    @click.option(
        "--patience",
        type=float,
        default=5.0,
        show_default=True,
        callback=_allowance,
        metavar="SECONDS",
        help="How long records may take to come after a resume, and an operator's hold "
        "to reach members that own the partition already.",
    )
    @functools.wraps(command)
    def with_settings(
        *args: Any,  # noqa: ANN401 - the command's own
        drained: bool,
        clock_skew: float,
        patience: float,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        settings = Settings(
            patience=patience, clock_skew=clock_skew, is_drained=drained
        )
        return command(*args, settings=settings, **kwargs)

    return with_settings


def _allowance(
    _context: click.Context, _parameter: click.Parameter, value: float
) -> float:
    if not 0 <= value < math.inf:
        message = f"{value} is not a number of seconds, 0 or more"
        raise click.BadParameter(message)
    return value


def papers(given: Sequence[Path]) -> Papers:
    """
    Open journals, folders of journals, and packs.

    A journal that is packed and also exists as files is read from the pack, unless the
    files have more. Two processes with one name cannot be distinguished: the first is
    read, and the other is reported as a trouble.

    Raises:
        MissingExtraError: there is a pack, and pyarrow is missing.
    """
    paths, unlisted = files(given)
    found, troubles = sources(paths)
    troubles += unlisted
    read = {name for one in found for name in one.names}
    unread = {_whose(one) for one in paths if str(one) not in read}
    lost = len(unread - {_whose(Path(name)) for name in read})
    packed, empty = _folders(given, paths)
    try:
        packs = Packs(packed)
    except JournalError as error:
        packs = Packs(())
        troubles.append(str(error))
    troubles += packs.troubles
    journals: list[Joined] = []
    began: dict[tuple[str, str], float] = {}
    for one in packs.known.values():
        began[one.member, one.group] = one.began
    for journal in found:
        if began.setdefault((journal.member, journal.group), journal.began) != (
            journal.began
        ):
            name = journal.member
            troubles.append(
                f"there is another journal of a process with the name {name}"
            )
            lost += 1
        elif _is_more(journal, packs, troubles):
            journals.append(journal)
            packs.known.pop(journal.member, None)
    return Papers(
        files=found,
        journals=journals,
        packs=packs,
        troubles=troubles,
        empty=empty,
        lost=lost,
    )


def files(given: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """
    Return the journals among files and folders, and the folders that cannot be listed.

    In a folder these are all ``*.journal``, however deep, each once.
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


def _folders(
    given: Sequence[Path], journals: Sequence[Path]
) -> tuple[list[Path], list[str]]:
    """Return the packs, and a sentence about each folder that has no journal."""
    packs: list[Path] = []
    empty: list[str] = []
    known = {folder for one in journals for folder in one.parents}
    for path in given:
        if not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
            continue  # files() has said that it cannot be listed
        if is_pack(path):
            packs.append(path)
        elif path not in known:
            empty.append(f"there is no journal in {path}")
    return packs, empty


def _whose(path: Path) -> Path:
    # The journal to which a later part belongs: its name says so if nothing else does.
    return path.with_name(_OF_A_PART.sub("", path.stem))


def _is_more(journal: Joined, packs: Packs, troubles: list[str]) -> bool:
    known = packs.known.get(journal.member)
    if known is None:
        return True
    try:
        if journal.is_shared:
            check_copy(journal, known, packs.of_operators(known))
        if journal.size == known.size:
            return False
        last = max((one.number for one in journal.entries), default=0)
    except JournalError as error:  # its pack is complete
        troubles.append(str(error))
        return False
    return last > known.entries
