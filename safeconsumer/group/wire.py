"""
Encodes and decodes control records, which are versioned, bounded and never trusted.

Decoders return None for records that they do not recognize; they never raise. A record
from a later version still counts as a hold, because the key contains group, owner and
scope in every version.
"""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar

from attrs import frozen

from safeconsumer.holds.hold import MAX_OWNER_LENGTH, MAX_REASON_BYTES

VERSION = 1

# A pattern has at most 4,096 characters of up to 4 bytes.
MAX_KEY_BYTES = 20_000
MAX_VALUE_BYTES = 64 * 1024
# Kafka's group ids are strings whose length fits an INT16; the ids in use are short.
MAX_GROUP_LENGTH = 1024
# A DNS name has at most 253 characters; a principal may be a certificate's subject.
MAX_NAME_LENGTH = 255
# Kafka's own limit for topic names.
_MAX_TOPIC_LENGTH = 249
# Slightly over ten years in milliseconds: more than any hold needs, less than dates
# allow.
MAX_TTL_MS = 10 * 366 * 24 * 3600 * 1000

# The end of the year 9999.
_MAX_TIME_MS = 253_402_300_799_000

_NUL = "\0"
Kind = TypeVar("Kind")
Number = TypeVar("Number", int, float)
_KEY_FIELDS = 4


@frozen
class ControlKey:
    """
    Identifies the hold that a control record is about.

    Attributes:
        group: the consumer group.
        owner: the owner, without the ``operator:`` prefix that members add.
        scope: the scope, in scope notation, not parsed yet.
        extra: fields added by a later version.
        version: the version of the key.
    """

    group: str
    owner: str
    scope: str
    extra: tuple[str, ...] = ()
    version: int = VERSION


@frozen
class Reset:
    """
    Offsets to which a group is reset while the hold is in force.

    The offsets are absolute: the command that writes them resolves them once, so that
    every owner of a partition resets it to the same offset.

    Attributes:
        to: topic, partition, and the offset of the next record to read; each partition
            once, sorted.
        topic_ids: the topics' ids at that time, in Kafka's notation; members do not
            reset a topic that has been deleted and recreated since.
        asked: the target that the operator typed; empty if different targets were
            typed.
        texts: if different targets were typed, the topic, partition and known target of
            each; sorted. Versions before 0.9 do not write this field.
    """

    to: tuple[tuple[str, int, int], ...]
    topic_ids: tuple[tuple[str, str], ...] = ()
    asked: str = ""
    texts: tuple[tuple[str, int, str], ...] = ()

    def typed(self) -> dict[tuple[str, int], str]:
        """Return the text that an operator typed as each partition's target, where known."""
        if self.asked:
            return {(topic, number): self.asked for topic, number, _ in self.to}
        return {(topic, number): one for topic, number, one in self.texts}


@frozen
class ControlHold:
    """
    The content of a control record.

    Attributes:
        hold_id: an id of this placement of the hold, for people.
        reason: the reason, or None.
        ttl_ms: milliseconds from the record's timestamp until the hold expires, or
            None.
        version: the value's version; a value from a later version is not understood,
            but its scope is held.
        host: the name of the machine that placed the hold, or None.
        principal: the user that the writer claims to be, or None. The topic's ACLs
            determine which users may write.
        since_ms: when the partitions became held, in the broker's time, if this record
            extended, renewed or replaced a hold with the same owner and scope that was
            in force; otherwise None.
        reset: the offsets to which the group is reset while the hold is in force; None
            for no reset. Members with versions before 0.6 obey the hold, but do not
            carry out the reset. A hold that expires has no reset, because it might
            expire too early.
    """

    hold_id: str = ""
    reason: str | None = None
    ttl_ms: int | None = None
    version: int = VERSION
    host: str | None = None
    principal: str | None = None
    since_ms: int | None = None
    reset: Reset | None = None


def encode_key(key: ControlKey) -> bytes:
    """Return a record key as bytes."""
    fields = (str(key.version), key.group, key.owner, key.scope, *key.extra)
    return _NUL.join(fields).encode()


def decode_key(data: object) -> ControlKey | None:
    """Decode a record key; return None if the data is not a key."""
    joined = _text_of(data, MAX_KEY_BYTES)
    if joined is None:
        return None
    first, *fields = joined.split(_NUL)
    version = _version(first)
    if version is None or len(fields) < _KEY_FIELDS - 1:
        return None
    group, owner, scope, *extra = fields
    if extra and version <= VERSION:
        return None
    if not (is_group(group) and _is_text(owner, MAX_OWNER_LENGTH) and owner.strip()):
        return None
    if not scope:
        return None
    return ControlKey(group, owner, scope, tuple(extra), version)


def encode_hold(hold: ControlHold) -> bytes:
    """Return a record value as bytes; the same hold always gives the same bytes."""
    document: dict[str, object] = {
        "v": hold.version,
        "id": hold.hold_id,
        "reason": hold.reason,
        "ttl_ms": hold.ttl_ms,
    }
    # Members of earlier versions ignore these fields.
    claims = {
        "host": hold.host,
        "principal": hold.principal,
        "since_ms": hold.since_ms,
        "reset": None if hold.reset is None else _reset_document(hold.reset),
    }
    known = {name: value for name, value in claims.items() if value is not None}
    return as_json({**document, **known})


def decode_hold(data: object) -> ControlHold | None:
    """Decode a record value, or return None; a later version's value never expires."""
    return _decoded(data) if isinstance(data, bytes) else None


# Several readers in one process decode the same values.
@lru_cache(maxsize=64)
def _decoded(data: bytes) -> ControlHold | None:
    document = document_of(data)
    version = version_of(document)
    if not version:
        return None
    if version > VERSION:
        found = fields_of(document, {}, {"reason": _reason})
        return (
            None if found is None else ControlHold(version=min(version, 2**31), **found)
        )
    found = fields_of(document, _HOLD, _CLAIMS)
    if found is None:
        return None
    hold_id, reset = found.pop("id"), found.pop("reset", None)
    # A hold that expires cannot have a reset.
    return ControlHold(hold_id, reset=None if found["ttl_ms"] else reset, **found)


def _reset_document(reset: Reset) -> dict[str, object]:
    offsets: dict[str, list[list[int]]] = {}
    for topic, partition, offset in reset.to:
        offsets.setdefault(topic, []).append([partition, offset])
    ids = dict(reset.topic_ids)
    found = {"to": offsets, "topic_ids": ids, "asked": reset.asked}
    texts: dict[str, dict[str, list[int]]] = {}
    for topic, partition, one in reset.texts:
        texts.setdefault(one, {}).setdefault(topic, []).append(partition)
    return {**found, "texts": texts} if texts else found


def _reset(value: object) -> Reset:
    # A reset that is partly unreadable is ignored as a whole, but its hold counts.
    found = fields_of(value, _RESET, _TEXTS)
    offsets = {
        (topic, partition): offset
        for topic, places in (found or {"to": {}})["to"].items()
        for partition, offset in places
    }
    if found is None or not offsets:
        raise ValueError
    return Reset(
        tuple((*tp, offset) for tp, offset in sorted(offsets.items())),
        tuple(sorted(found["topic_ids"].items())),
        found.get("asked", ""),
        found.get("texts", ()),
    )


def _texts(value: object) -> tuple[tuple[str, int, str], ...]:
    read = text(MAX_NAME_LENGTH)
    return tuple(
        sorted(
            (topic, partition, read(one))
            for one, topics in of_type(dict, value).items()
            for topic, numbers in _PARTITIONS(topics).items()
            for partition in numbers
        )
    )


def is_group(group: object) -> bool:
    """Return whether control records can store a group's name."""
    return _is_text(group, MAX_GROUP_LENGTH, 1)


def _reason(value: object) -> str | None:
    if value is None:
        return None
    reason: str = text(MAX_REASON_BYTES)(value)
    within(len(reason.encode()), 0, MAX_REASON_BYTES)
    return reason


# ---------------------------------------------------------------- fields

Read = Callable[[object], Any]
"""Returns a field's value; raises ValueError or TypeError if a field cannot have it."""


def fields_of(
    document: object, needed: Mapping[str, Read], others: Mapping[str, Read]
) -> dict[str, Any] | None:
    """
    Return the values of a document's fields; None if a needed field is unreadable.

    Other fields are left out if they are missing or unreadable.
    """
    found: dict[str, Any] = {}
    for name, read in (*needed.items(), *others.items()):
        try:
            found[name] = read(of_type(dict, document).get(name))
        except (TypeError, ValueError):
            if name in needed:
                return None
    return found


def of_type(kind: type[Kind], value: object) -> Kind:
    """Return a value if it has the given type; True and False are not numbers."""
    if not isinstance(value, kind) or isinstance(value, bool):
        message = f"no {kind.__name__}"
        raise TypeError(message)
    return value


def within(value: Number, least: float, most: float) -> Number:
    """Return a number if it is between two inclusive limits."""
    if not least <= value <= most:
        raise ValueError
    return value


def number(least: float, most: float) -> Read:
    """Return a reader for whole numbers between two inclusive limits."""
    return lambda value: within(of_type(int, value), least, most)


def text(most: int, least: int = 0) -> Read:
    """Return a reader for printable text of limited length, without lone surrogates."""

    def read(value: object) -> str:
        if not _is_text(value, most, least):
            raise ValueError
        return value

    return read


def _is_text(value: object, most: int, least: int = 0) -> TypeGuard[str]:
    is_short = isinstance(value, str) and least <= len(value) <= most
    return is_short and str(value).isprintable()


def several(read: Read, most: int) -> Read:
    """Return a reader for a list; it keeps the first items and skips unreadable ones."""

    def read_all(value: object) -> tuple[Any, ...]:
        found = []
        for one in of_type(list, value)[:most]:
            with suppress(TypeError, ValueError):
                found.append(read(one))
        return tuple(found)

    return read_all


def pairs(first: Read, second: Read) -> Read:
    """Return a reader for a list of pairs."""
    return lambda value: tuple(
        (first(one), second(other)) for one, other in of_type(list, value)
    )


def by_topic(read: Read) -> Read:
    """Return a reader for a mapping from topic names to values."""
    name = text(_MAX_TOPIC_LENGTH, 1)
    return lambda value: {
        name(topic): read(one) for topic, one in of_type(dict, value).items()
    }


def version_of(document: object) -> int:
    """Return a document's version; 0 if it has no version."""
    found = fields_of(document, {"v": number(1, math.inf)}, {})
    return 0 if found is None else int(found["v"])


PARTITION, OFFSET = number(0, 2**31 - 1), number(0, 2**63 - 1)

# A record in which one of these fields is missing or unreadable is not a hold.
_HOLD: Mapping[str, Read] = {
    "id": text(MAX_OWNER_LENGTH),
    "reason": _reason,
    "ttl_ms": lambda value: value if value is None else number(1, MAX_TTL_MS)(value),
}
# These fields are for people, or do not change the hold; invalid ones are left out.
_CLAIMS: Mapping[str, Read] = {
    "host": text(MAX_NAME_LENGTH),
    "principal": text(MAX_NAME_LENGTH),
    "since_ms": number(0, _MAX_TIME_MS),
    "reset": _reset,
}
_PARTITIONS = by_topic(lambda value: tuple(map(PARTITION, of_type(list, value))))
# Only later commands use these fields.
_TEXTS: Mapping[str, Read] = {"asked": text(MAX_NAME_LENGTH), "texts": _texts}
_RESET: Mapping[str, Read] = {
    "to": by_topic(pairs(PARTITION, OFFSET)),
    "topic_ids": by_topic(text(MAX_NAME_LENGTH)),
}

# ---------------------------------------------------------------- bytes


def _text_of(data: object, limit: int) -> str | None:
    if not isinstance(data, bytes) or len(data) > limit:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _version(shown: str) -> int | None:
    is_number = shown.isascii() and shown.isdigit() and len(shown) < 10  # noqa: PLR2004 - an INT32
    return int(shown) if is_number and not shown.startswith("0") else None


def as_json(document: Mapping[str, object]) -> bytes:
    """Return a document as bytes; the same document always gives the same bytes."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )


def document_of(data: object, most: int = MAX_VALUE_BYTES) -> object:
    """Parse JSON of at most this many bytes; return None for anything else."""
    try:
        return json.loads(_text_of(data, most) or "")
    except (ValueError, RecursionError):
        return None
