"""Shows the journal entries around the entry that proves a violation."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from safeconsumer.audit.entries import Entry, Other

_BEFORE, _AFTER = 6, 3
_SHOWN = 8  # how many items of a long list are shown


Near = Callable[[str, int, int], Iterable[Entry | Other]]


def around(near: Near, group: str, member: str, number: int) -> Iterator[str]:
    """
    Yield a line for an entry, marked with ``>``, and for each of the entries around it.

    Args:
        near: returns a member's entries from a first to a last number.
        group: the group in which the member was judged.
        member: the member.
        number: the number of the entry.
    """
    of = f" of {group}" if group else ""
    yield f"  {member}{of}"
    for entry in near(member, number - _BEFORE, number + _AFTER):
        mark = ">" if entry.n == number else " "
        yield f"  {mark} {entry.n:>6}  {entry.at:.3f}  {_text(entry)}"


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
