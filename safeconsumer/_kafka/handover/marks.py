"""
Reads and writes the mark of a pause in the metadata of a committed offset.

Its form is ``US "sc1:" generation ":" owner ";" user's metadata``. The user's own
metadata is kept behind the mark; readers without safeconsumer see the mark too.
"""

import re

from attrs import frozen

VERSION = 1

# Kafka's default of offset.metadata.max.bytes.
MAX_METADATA_BYTES = 4096
MAX_MARK_BYTES = 64

_START = "\x1f" + "sc"
_MARK = re.compile(r"\x1fsc(\d{1,4}):([0-9a-f]{1,8}):([0-9a-f]{8});", re.ASCII)
_LATER = re.compile(r"\x1fsc(\d{1,4}):[^;]{0,48};", re.ASCII)


@frozen
class Mark:
    """
    Says that the partition was paused by its owner when this was committed.

    Attributes:
        generation: the group's generation at that commit.
        owner: eight hexadecimal digits that distinguish members, for people.
        version: the mark's version. What a later version adds is unknown here; the
            partition is held.
    """

    generation: int = 0
    owner: str = "00000000"
    version: int = VERSION


def attach(mark: Mark, metadata: str | None) -> str | None:
    """Return the user's metadata with a mark before it; None if there is no room for both."""
    generation = mark.generation & 0xFFFFFFFF
    text = f"{_START}{mark.version}:{generation:x}:{mark.owner};{metadata or ''}"
    encoded = text.encode("utf-8", "surrogatepass")
    return text if len(encoded) <= MAX_METADATA_BYTES else None


def split(metadata: str | None) -> tuple[Mark | None, str]:
    """
    Take a mark off; the rest is the user's metadata. Never raises.

    A mark of a later version counts; text that merely begins like one is the user's.
    """
    if not isinstance(metadata, str) or not metadata.startswith(_START):
        return None, metadata if isinstance(metadata, str) else ""
    found = _MARK.match(metadata)
    if found is not None and int(found[1]) >= 1:
        mark = Mark(int(found[2], 16), found[3], int(found[1]))
        return mark, metadata[found.end() :]
    later = _LATER.match(metadata)
    if later is not None and int(later[1]) > VERSION:
        return Mark(version=int(later[1])), metadata[later.end() :]
    return None, metadata
