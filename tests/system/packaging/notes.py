"""Prints the section of CHANGELOG.md of a release: ``... v1.2.3``; fails if it has none."""

import re
import sys
from pathlib import Path

import safeconsumer

CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"


class NotReadyError(Exception):
    """Tag, version and changelog do not agree; the message names the difference."""


def notes(tag, version, changelog):
    """
    Return the changelog's section of the version that the tag names.

    Raises:
        NotReadyError: the package has another version, or the section lacks a date or a text.
    """
    if tag != f"v{version}":
        message = f"the tag is {tag}, safeconsumer.__version__ is {version}"
        raise NotReadyError(message)
    heading = rf"^## {re.escape(version)}, (.*)\n((?:(?!## ).*\n?)*)"
    found = re.search(heading, changelog, re.MULTILINE)
    if found is None:
        message = f"CHANGELOG.md has no line '## {version}, YYYY-MM-DD'"
        raise NotReadyError(message)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        message = f"CHANGELOG.md: {version} is {found[1]}; it needs the date"
        raise NotReadyError(message)
    if not found[2].strip():
        message = f"CHANGELOG.md says nothing of {version}"
        raise NotReadyError(message)
    return found[2].strip()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give the tag: python -m tests.system.packaging.notes v0.1.0")
    try:
        text = notes(sys.argv[1], safeconsumer.__version__, CHANGELOG.read_text())
    except NotReadyError as error:
        sys.exit(str(error))
    sys.stdout.write(text + "\n")
