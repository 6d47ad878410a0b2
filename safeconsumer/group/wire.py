"""
Encodes and decodes control records: versioned, bounded, and never trusted.

Decoders return None for records that are not ours; they never raise. A record of a
later version counts as held: its key names group, owner and scope in every version.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeGuard

from attrs import frozen

from safeconsumer.holds.hold import MAX_OWNER_LENGTH, MAX_REASON_BYTES

VERSION = 1

# A pattern has at most 4,096 characters of up to 4 bytes.
MAX_KEY_BYTES = 20_000
MAX_VALUE_BYTES = 64 * 1024
# Kafka's group ids are strings whose length fits an INT16; those in use are short.
MAX_GROUP_LENGTH = 1024
# A DNS name has 253 characters; a principal may be a certificate's subject.
MAX_NAME_LENGTH = 255
# Milliseconds; a bit over ten years, longer than needed and below what dates hold.
MAX_TTL_MS = 10 * 366 * 24 * 3600 * 1000

# The end of the year 9999.
_MAX_TIME_MS = 253_402_300_799_000

_NUL = "\0"
_KEY_FIELDS = 4


@frozen
class ControlKey:
    """
    Identifies the hold that a control record is about.

    Attributes:
        group: the consumer group.
        owner: who placed it, without ``operator:``, which members put before it.
        scope: what it covers, in scope notation, not parsed yet.
        extra: fields of a later version.
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
    Offsets to which a group is moved for as long as a hold of it stands.

    They are absolute: the command that writes them asks the brokers once, so that every
    owner of a partition moves it to the same place.

    Attributes:
        to: topic, partition, and the offset of the next record to be read there; each
            partition once, sorted.
        topic_ids: topics with the ids, as Kafka writes them, that they had then: a topic
            that was deleted and recreated since is left alone.
        asked: what the operator asked for, as text for people.
    """

    to: tuple[tuple[str, int, int], ...]
    topic_ids: tuple[tuple[str, str], ...] = ()
    asked: str = ""


@frozen
class ControlHold:
    """
    What a control record says about its hold.

    Attributes:
        hold_id: identifies this placing, for people.
        reason: why, or None.
        ttl_ms: milliseconds after the broker's time of the record, or None.
        version: the value's version; one above ours is not understood, but held.
        host: where it was placed, by that machine's own name, or None.
        principal: how its writer logged in, as it claims, or None. The topic's ACLs
            decide who may write it.
        since_ms: the broker's time of the record that placed it, if a later record of
            its owner and scope came before it ended: it was extended, renewed or
            replaced, and what it covers is held since then. Otherwise None.
        reset: where the group is moved while it stands; None if it is not. Members of
            versions before 0.6 hold, and do not move. A hold that ends by itself has
            none: what is not moved by then never would be.
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
    """Return a key as bytes."""
    fields = (str(key.version), key.group, key.owner, key.scope, *key.extra)
    return _NUL.join(fields).encode()


def decode_key(data: object) -> ControlKey | None:
    """Read a key; None if it is not one."""
    text = text_of(data, MAX_KEY_BYTES)
    if text is None:
        return None
    number, *fields = text.split(_NUL)
    version = _number(number)
    if version is None or len(fields) < _KEY_FIELDS - 1:
        return None
    group, owner, scope, *extra = fields
    if extra and version <= VERSION:
        return None
    if not is_group(group) or not _is_owner(owner) or not scope:
        return None
    return ControlKey(group, owner, scope, tuple(extra), version)


def encode_hold(hold: ControlHold) -> bytes:
    """Return a value as bytes; the same hold always gives the same bytes."""
    document: dict[str, object] = {
        "v": hold.version,
        "id": hold.hold_id,
        "reason": hold.reason,
        "ttl_ms": hold.ttl_ms,
    }
    # Members of earlier versions ignore these fields.
    told = {
        "host": hold.host,
        "principal": hold.principal,
        "since_ms": hold.since_ms,
        "reset": None if hold.reset is None else _reset_document(hold.reset),
    }
    known = {name: value for name, value in told.items() if value is not None}
    return as_json({**document, **known})


def decode_hold(data: object) -> ControlHold | None:
    """Read a value; None if it is not one. A later version's value is a hold without end."""
    return _decoded(data) if isinstance(data, bytes) else None


# The records of one command have the same value: ten thousand are decoded once.
@lru_cache(maxsize=64)
def _decoded(data: bytes) -> ControlHold | None:
    document = document_of(data)
    version = document.get("v")
    if not is_int(version) or version < 1:
        return None
    hold_id, reason = document.get("id"), document.get("reason")
    if version > VERSION:
        known = reason if _is_reason(reason) else None
        return ControlHold(reason=known, version=min(version, 2**31))
    ttl_ms = document.get("ttl_ms")
    if not isinstance(hold_id, str) or not is_short_text(hold_id, MAX_OWNER_LENGTH):
        return None
    if not (reason is None or _is_reason(reason)):
        return None
    if ttl_ms is not None and not (is_int(ttl_ms) and 0 < ttl_ms <= MAX_TTL_MS):
        return None
    host, principal = _name(document.get("host")), _name(document.get("principal"))
    since = document.get("since_ms")
    return ControlHold(
        hold_id,
        reason,
        ttl_ms,
        host=host,
        principal=principal,
        since_ms=since if is_int(since) and 0 <= since <= _MAX_TIME_MS else None,
        reset=None if ttl_ms is not None else _reset(document.get("reset")),
    )


def _reset_document(reset: Reset) -> dict[str, object]:
    offsets: dict[str, list[list[int]]] = {}
    for topic, partition, offset in reset.to:
        offsets.setdefault(topic, []).append([partition, offset])
    ids = dict(reset.topic_ids)
    return {"to": offsets, "topic_ids": ids, "asked": reset.asked}


def _reset(value: object) -> Reset | None:
    # One that cannot be read whole moves nothing, and its hold counts.
    document = value if isinstance(value, dict) else {}
    to, ids, asked = (document.get(name) for name in ("to", "topic_ids", "asked"))
    if not isinstance(to, dict) or not isinstance(ids, dict):
        return None
    found: dict[tuple[str, int], int] = {}
    for topic, pairs in to.items():
        if not isinstance(pairs, list) or not all(map(_is_place, pairs)):
            return None
        found |= {(topic, partition): offset for partition, offset in pairs}
    if not found or not all(
        is_short_text(one, MAX_NAME_LENGTH) for one in ids.values()
    ):
        return None
    return Reset(
        tuple((*tp, offset) for tp, offset in sorted(found.items())),
        tuple(sorted((topic, str(one)) for topic, one in ids.items())),
        str(asked) if is_short_text(asked, MAX_NAME_LENGTH) else "",
    )


def _is_place(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2  # noqa: PLR2004 - a partition and an offset
        and all(map(is_int, value))
        and 0 <= value[0] < 2**31
        and 0 <= value[1] < 2**63
    )


def _name(value: object) -> str | None:
    # It is a claim, for people: an illegal one is left out, and the hold counts.
    is_name = isinstance(value, str) and is_short_text(value, MAX_NAME_LENGTH)
    return value if is_name and isinstance(value, str) else None


# ---------------------------------------------------------------- pieces


def is_group(group: object) -> bool:
    """Tell whether control records can name such a group."""
    return is_short_text(group, MAX_GROUP_LENGTH) and bool(group)


def _is_owner(owner: object) -> bool:
    return is_short_text(owner, MAX_OWNER_LENGTH) and bool(str(owner).strip())


def _is_reason(reason: object) -> bool:
    return (
        isinstance(reason, str)
        and reason.isprintable()
        and len(reason.encode("utf-8", "surrogatepass")) <= MAX_REASON_BYTES
    )


def is_short_text(text: object, limit: int) -> bool:
    """Tell whether it is printable text of at most ``limit`` characters."""
    return isinstance(text, str) and len(text) <= limit and text.isprintable()


def is_int(value: object) -> TypeGuard[int]:
    """Tell whether it is a whole number, and not True or False."""
    return isinstance(value, int) and not isinstance(value, bool)


def text_of(data: object, limit: int) -> str | None:
    """Return text of so many bytes at most; None if it is not such text."""
    if not isinstance(data, bytes) or len(data) > limit:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 - an INT32
    return int(text) if is_number and not text.startswith("0") else None


def as_json(document: Mapping[str, object]) -> bytes:
    """Return a document as bytes; the same document always gives the same bytes."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )


def document_of(data: object, most: int = MAX_VALUE_BYTES) -> dict[str, Any]:
    """Read a JSON object of so many bytes at most; an empty one if it is not one."""
    text = text_of(data, most)
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
