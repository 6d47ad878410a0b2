"""
The journals that a command is given, read as far as they can be.
"""

from collections.abc import Sequence
from pathlib import Path

from safeconsumer.audit.journal import Journal
from safeconsumer.audit.stream import sources
from safeconsumer.errors import JournalError


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
