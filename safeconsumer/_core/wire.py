"""
What control topics carry, as bytes: versioned, bounded, and never trusted.

Decoders answer None for what is not ours; they never raise. A record of a version to
come counts as held: its key names group, owner and scope in every version.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeGuard

from attrs import frozen

from safeconsumer._core.holds import MAX_OWNER_LENGTH, MAX_REASON_BYTES

VERSION = 1

# A pattern has at most 4,096 characters of up to 4 bytes.
MAX_KEY_BYTES = 20_000
MAX_VALUE_BYTES = 64 * 1024
# Kafka's group ids are strings of a length that fits an INT16; people's are short.
MAX_GROUP_LENGTH = 1024
# Ten years and a bit: beyond any purpose, below what a date can hold.
MAX_TTL_MS = 10 * 366 * 24 * 3600 * 1000

_NUL = "\0"
_KEY_FIELDS = 4


@frozen
class ControlKey:
    """
    Which hold a control record is about.

    Attributes:
        group: the consumer group.
        owner: who placed it, without ``operator:`` or ``group:``; the topic tells.
        scope: what it covers, in the one notation, not parsed yet.
        extra: fields of a version to come.
        version: of the key.
    """

    group: str
    owner: str
    scope: str
    extra: tuple[str, ...] = ()
    version: int = VERSION


@frozen
class ControlHold:
    """
    What a control record says about its hold.

    Attributes:
        hold_id: names this placing, for people.
        reason: why, or None.
        ttl_ms: milliseconds after the broker's time of the record, or None.
        version: of the value; one above ours was not understood but holds.
    """

    hold_id: str = ""
    reason: str | None = None
    ttl_ms: int | None = None
    version: int = VERSION


def encode_key(key: ControlKey) -> bytes:
    """
    Return a key as bytes.
    """
    fields = (str(key.version), key.group, key.owner, key.scope, *key.extra)
    return _NUL.join(fields).encode()


def decode_key(data: object) -> ControlKey | None:
    """
    Read a key; None if it is not one.
    """
    text = _text(data, MAX_KEY_BYTES)
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
    """
    Return a value as bytes; the same hold always as the same bytes.
    """
    document = {
        "v": hold.version,
        "id": hold.hold_id,
        "reason": hold.reason,
        "ttl_ms": hold.ttl_ms,
    }
    return _json(document)


def decode_hold(data: object) -> ControlHold | None:
    """
    Read a value; None if it is not one. What a later version says is a hold for good.
    """
    document = _document(data)
    version = document.get("v")
    if not _is_int(version) or version < 1:
        return None
    hold_id, reason = document.get("id"), document.get("reason")
    if version > VERSION:
        known = reason if _is_reason(reason) else None
        return ControlHold(reason=known, version=min(version, 2**31))
    ttl_ms = document.get("ttl_ms")
    if not isinstance(hold_id, str) or not _is_short_text(hold_id, MAX_OWNER_LENGTH):
        return None
    if not (reason is None or _is_reason(reason)):
        return None
    if ttl_ms is not None and not (_is_int(ttl_ms) and 0 < ttl_ms <= MAX_TTL_MS):
        return None
    return ControlHold(hold_id, reason, ttl_ms)


# ---------------------------------------------------------------- status reports


@frozen(kw_only=True)
class Report:
    """
    What one member tells of itself.

    Attributes:
        group: its consumer group.
        member: a name that no other member has, the same in all its reports.
        client_id: Kafka's ``client_id``.
        host: where it runs.
        state: ``ready``, ``unavailable`` (no control topic), or ``stopped``.
        at_ms: when, by its own clock, milliseconds since the epoch.
        applied: control topics with the offset up to which it has obeyed.
        holds: how many operator and group holds it obeys.
        skipped: how many control records it could not read.
        assigned: owned partitions, as ranges by topic.
        quiet: those of them that deliver nothing, as ranges by topic.
        gated: how many wait for the control topics.
        is_partial: the partitions did not fit and are left out.
        clock_offset: seconds by which the broker's clock is ahead of the member's;
            found by the reader of the report, not written.
    """

    group: str
    member: str
    client_id: str = ""
    host: str = ""
    state: str = "ready"
    at_ms: int = 0
    applied: Mapping[str, int]
    holds: int = 0
    skipped: int = 0
    assigned: Mapping[str, tuple[tuple[int, int], ...]]
    quiet: Mapping[str, tuple[tuple[int, int], ...]]
    gated: int = 0
    is_partial: bool = False
    clock_offset: float = 0.0


def encode_report_key(group: str, member: str) -> bytes:
    """
    Return the key of a member's reports.
    """
    return _NUL.join((str(VERSION), group, member)).encode()


def encode_report(report: Report) -> bytes:
    """
    Return a report as bytes; partitions are left out if they do not fit.
    """
    document = {
        "v": VERSION,
        "group": report.group,
        "member": report.member,
        "client_id": report.client_id,
        "host": report.host,
        "state": report.state,
        "at_ms": report.at_ms,
        "applied": dict(report.applied),
        "holds": report.holds,
        "skipped": report.skipped,
        "assigned": dict(report.assigned),
        "quiet": dict(report.quiet),
        "gated": report.gated,
        "is_partial": report.is_partial,
    }
    data = _json(document)
    if len(data) <= MAX_VALUE_BYTES:
        return data
    return _json({**document, "assigned": {}, "quiet": {}, "is_partial": True})


def decode_report(data: object) -> Report | None:
    """
    Read a report of our version or a later one; None if it is not one.
    """
    document = _document(data)
    version = document.get("v")
    if not _is_int(version) or version < 1:
        return None
    texts = [document.get(name) for name in ("group", "member", "client_id", "host")]
    numbers = [document.get(name) for name in ("at_ms", "holds", "skipped", "gated")]
    state = document.get("state")
    applied = _offsets(document.get("applied"))
    assigned, quiet = _ranges(document.get("assigned")), _ranges(document.get("quiet"))
    if not all(_is_short_text(one, MAX_GROUP_LENGTH) for one in (*texts, state)):
        return None
    if not all(_is_int(one) and 0 <= one < 2**63 for one in numbers):
        return None
    if applied is None or assigned is None or quiet is None:
        return None
    group, member, client_id, host = map(str, texts)
    at_ms, holds, skipped, gated = (int(one or 0) for one in numbers)
    return Report(
        group=group,
        member=member,
        client_id=client_id,
        host=host,
        state=str(state),
        at_ms=at_ms,
        applied=applied,
        holds=holds,
        skipped=skipped,
        assigned=assigned,
        quiet=quiet,
        gated=gated,
        is_partial=document.get("is_partial") is True,
    )


# ---------------------------------------------------------------- pieces


def is_group(group: object) -> bool:
    """
    Tell whether control records can name such a group.
    """
    return _is_short_text(group, MAX_GROUP_LENGTH) and bool(group)


def _is_owner(owner: object) -> bool:
    return _is_short_text(owner, MAX_OWNER_LENGTH) and bool(str(owner).strip())


def _is_reason(reason: object) -> bool:
    return (
        isinstance(reason, str)
        and reason.isprintable()
        and len(reason.encode("utf-8", "surrogatepass")) <= MAX_REASON_BYTES
    )


def _is_short_text(text: object, limit: int) -> bool:
    return isinstance(text, str) and len(text) <= limit and text.isprintable()


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(data: object, limit: int) -> str | None:
    if not isinstance(data, bytes) or len(data) > limit:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 - an INT32
    return int(text) if is_number and not text.startswith("0") else None


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "replace"
    )


def _document(data: object) -> dict[str, Any]:
    text = _text(data, MAX_VALUE_BYTES)
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _offsets(value: object) -> dict[str, int] | None:
    if not isinstance(value, dict):
        return None
    ok = all(_is_int(one) and 0 <= one < 2**63 for one in value.values())
    return dict(value) if ok else None


def _ranges(value: object) -> dict[str, tuple[tuple[int, int], ...]] | None:
    if not isinstance(value, dict):
        return None
    found = {}
    for topic, ranges in value.items():
        if not isinstance(ranges, list) or not all(map(_is_range, ranges)):
            return None
        found[topic] = tuple((first, last) for first, last in ranges)
    return found


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2  # noqa: PLR2004 - first and last
        and all(map(_is_int, value))
        and 0 <= value[0] <= value[1] < 2**31
    )


def ranges_of(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """
    Return numbers as sorted, disjoint ranges, both ends included.
    """
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def count_of(ranges: Mapping[str, tuple[tuple[int, int], ...]]) -> int:
    """
    Return how many numbers such ranges hold, over all topics.
    """
    return sum(
        last - first + 1 for several in ranges.values() for first, last in several
    )
