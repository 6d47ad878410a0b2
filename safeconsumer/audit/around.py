"""Shows the journal entries around the one that proves a violation."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from safeconsumer.audit.entries import Entry, Other
from safeconsumer.audit.stream import Source
from safeconsumer.errors import JournalError

_BEFORE, _AFTER = 6, 3
_SHOWN = 8  # of a long list


def around(
    journals: Iterable[Source], group: str, member: str, number: int
) -> Iterator[str]:
    """
    Yield lines about the entries around one, which begins with ``>``.

    Args:
        journals: the journals, of which one is the member's.
        group: the group in which the member was judged.
        member: the member.
        number: the number of the entry.
    """
    for journal in journals:
        if journal.member == member:
            of = f" of {group}" if group else ""
            yield f"  {member}{of}"
            for entry in _near(journal, number):
                mark = ">" if entry.n == number else " "
                yield f"  {mark} {entry.n:>6}  {entry.at:.3f}  {_text(entry)}"


def _near(journal: Source, number: int) -> Iterator[Entry | Other]:
    entries = iter(journal.entries)
    before: deque[Entry | Other] = deque(maxlen=_BEFORE + 1)
    try:
        for entry in entries:
            before.append(entry)
            if entry.n == number:
                yield from before
                yield from islice(entries, _AFTER)
                return
    except JournalError:
        return  # broken further on; this was reported when it was judged


def _text(entry: Entry | Other) -> str:
    fields = msgspec.to_builtins(entry)
    shown = (
        f"{name}={_value(value)}"
        for name, value in fields.items()
        if name not in {"n", "at", "e"} and value is not None
    )
    return "  ".join([entry.event, *shown])


def _value(value: object) -> str:
    if isinstance(value, list):
        shown = ",".join(map(str, value[:_SHOWN]))
        return shown if len(value) <= _SHOWN else f"{shown},... ({len(value)})"
    return str(value)
