"""Checks the fields of each kind of entry, so that readers of a journal can rely on them."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from safeconsumer.audit.reading import covering, is_topic, may_be_scope
from safeconsumer.errors import JournalError

# org.apache.kafka.common.protocol: an offset is an INT64.
_MAX_OFFSET = 2**63 - 1

# How much of a wrong value an error shows.
_SHOWN = 60

_MAX_DIGITS = 10

Check = Callable[[Any], bool]


def check(event: str, fields: Mapping[str, Any]) -> None:
    """
    Check that an entry has the fields of its kind; unknown kinds need few.

    Raises:
        JournalError: a field is missing or has another type; the message names it.
    """
    needed, rules = _OF.get(event, _OF_OTHERS)
    for name, value in fields.items():
        rule = rules.get(name)
        if rule is not None and not rule[1](value):
            _refuse(event, name, rule[0], value)
    for name in needed:
        if name not in fields:
            _refuse(event, name, rules[name][0], None)


def _refuse(event: str, name: str, what: str, value: object) -> NoReturn:
    shown = repr(value)[:_SHOWN]
    message = f"{event[:_SHOWN]!r}: {name} must be {what}, not {shown}"
    raise JournalError(message)


def is_time(value: object) -> bool:
    """Return whether a value is a point in time or a duration: a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= _MAX_OFFSET and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_OFFSET


def _is_offset(value: object) -> bool:
    return _is_whole(value) and value != _MAX_OFFSET


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_partition(value: object) -> bool:
    if not isinstance(value, str):
        return False
    topic, _, number = value.rpartition(":")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    return is_number and is_topic(topic)


def _is_scope(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        covering(value)
    except JournalError:
        return False
    return True


def _is_scope_of_group(value: object) -> bool:
    return isinstance(value, str) and may_be_scope(value)


def _is_key(value: object) -> bool:
    return isinstance(value, int | str)


def _all(is_right: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def _offsets(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_partition(name) and (offset is None or _is_whole(offset))
        for name, offset in value.items()
    )


def _records(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_partition(name) and _all(_is_whole)(offsets)
        for name, offsets in value.items()
    )


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_span(value: object) -> bool:
    if not isinstance(value, list) or len(value) != len(("start", "end")):
        return False
    return _is_whole(value[0]) and _is_whole(value[1]) and value[0] < value[1]


def _or_none(rule: tuple[str, Check]) -> tuple[str, Check]:
    what, is_right = rule
    return f"{what} or nothing", lambda value: value is None or is_right(value)


_TIME = ("a number", is_time)
_WHOLE = ("a whole number, 0 or more", _is_whole)
# The offset of a record, so that another record may follow.
_OFFSET = ("an offset, 0 or more, that another can follow", _is_offset)
_TEXT = ("text", _is_text)
_KEY = ("a whole number or text", _is_key)
_PARTITION = ("a partition, topic:number", _is_partition)
_PARTITIONS = ("a list of partitions", _all(_is_partition))
_SCOPE_OF_GROUP = ("a scope", _is_scope_of_group)
_SCOPES = ("a list of scopes", _all(_is_scope))
_SPANS = ("a list of spans, [start, end]", _all(_is_span))
_OFFSETS_OF_RECORDS = ("a list of offsets", _all(_is_offset))
_OFFSETS = ("offsets by partition", _offsets)

_CALL = {
    "op": _TEXT,
    "id": _KEY,
    "scopes": _or_none(_SCOPES),
    "owner": _or_none(_TEXT),
    "until": _or_none(_TIME),
    "lifetime": _or_none(_TEXT),
    "offsets": _or_none(_OFFSETS),
    "paused": _or_none(_PARTITIONS),
    "gated": _or_none(_PARTITIONS),
    "assigned": _or_none(_PARTITIONS),
    "seen": _or_none(_WHOLE),
    "seen_at": _or_none(_TIME),
}
_RECORD = {"tp": _PARTITION, "offset": _OFFSET}
_OWNED = {"partitions": _PARTITIONS}
_HOLD = {
    "scope": _SCOPE_OF_GROUP,
    "owner": _or_none(_TEXT),
    "until": _or_none(_TIME),
    "since": _or_none(_TIME),
    "why": _or_none(_TEXT),
    "written": _or_none(_TIME),
    "offset": _or_none(_WHOLE),
}

_EVERYWHERE = {"tp": _or_none(_PARTITION), "partitions": _or_none(_PARTITIONS)}
_KINDS: Mapping[str, Mapping[str, tuple[str, Check]]] = {
    "call": _CALL,
    "return": _CALL,
    "deliver": {
        "tp": _PARTITION,
        "from": _WHOLE,
        "next": _WHOLE,
        "first": _OFFSET,
        "last": _OFFSET,
        "count": _WHOLE,
        "gaps": _or_none(_SPANS),
        "peek": _or_none(("true or false", _is_flag)),
        "poll": _or_none(_KEY),
        "after": _or_none(_WHOLE),
        "asked": _or_none(_TIME),
        "created": _or_none(_TIME),
        "written": _or_none(_TIME),
    },
    "begins": {"tp": _PARTITION, "offset": _WHOLE},
    "moved": {"tp": _PARTITION, "from": _WHOLE, "next": _WHOLE},
    "assigned": {**_OWNED, "commits": _or_none(("true or false", _is_flag))},
    "revoked": _OWNED,
    "lost": _OWNED,
    "hold": _HOLD,
    "lift": _HOLD,
    "parked": {"tp": _PARTITION, "bytes": _WHOLE, "limit": _or_none(_WHOLE)},
    "purged": {"tp": _PARTITION, "count": _or_none(_WHOLE), "why": _or_none(_TEXT)},
    "group": {"group": _TEXT},
    "working": {"order": _TEXT},
    "handle": {
        **_RECORD,
        "offsets": _or_none(_OFFSETS_OF_RECORDS),
        "id": _KEY,
        "lane": _or_none(_TEXT),
        "attempt": _or_none(_WHOLE),
        "epoch": _or_none(_WHOLE),
    },
    "handled": {
        **_RECORD,
        "id": _KEY,
        "ok": ("true or false", _is_flag),
        "done": _or_none(_OFFSETS_OF_RECORDS),
    },
    "completed": {**_RECORD, "why": _TEXT, "epoch": _or_none(_WHOLE)},
    "dropped": {"tp": _PARTITION, "before": _WHOLE},
    "running": {"records": ("lists of offsets by partition", _records)},
    "acked": {"tp": _PARTITION, "first": _OFFSET, "last": _OFFSET},
    "kept": {"tp": _PARTITION, "first": _OFFSET},
    "fault": {
        "id": _KEY,
        "kind": _TEXT,
        "targets": ("a list of names", _all(_is_text)),
        "seconds": _TIME,
    },
    "heal": {"id": _KEY},
}

Rules = Mapping[str, tuple[str, Check]]


def _with_needed(rules: Rules) -> tuple[tuple[str, ...], Rules]:
    # The required fields; all others are checked only if they are there.
    return tuple(name for name, (_, is_right) in rules.items() if not is_right(None)), (
        rules
    )


_OF = {event: _with_needed({**_EVERYWHERE, **own}) for event, own in _KINDS.items()}
_OF_OTHERS = _with_needed(_EVERYWHERE)
