"""Prints the section of CHANGELOG.md for a release; the argument is a tag such as v1.2.3."""

import re
import sys
from pathlib import Path

import safeconsumer

CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"


class NotReadyError(Exception):
    """The tag, the version and the changelog do not agree; the message says how."""


def notes(tag, version, changelog):
    """
    Return the changelog's section for the version in the tag.

    Raises:
        NotReadyError: the package has another version, the section is missing, or the
            section has no date or no text.
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
