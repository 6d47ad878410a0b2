"""
The journals that a command is given, read as far as they can be.
"""

from collections.abc import Sequence
from pathlib import Path

from safeconsumer.audit.journal import Journal, read
from safeconsumer.errors import JournalError


def files(given: Sequence[Path]) -> list[Path]:
    """
    Return the files themselves, and the ``*.journal`` files of folders.
    """
    found: list[Path] = []
    for path in given:
        found.extend(sorted(path.glob("*.journal")) if path.is_dir() else [path])
    return found


def read_all(paths: Sequence[Path]) -> tuple[list[Journal], list[str]]:
    """
    Return the journals that can be read, and why the others cannot.
    """
    journals: list[Journal] = []
    troubles: list[str] = []
    for path in paths:
        try:
            journals.append(read(path))
        except JournalError as error:
            troubles.append(str(error))
    return journals, troubles
