"""
Decodes the control topics' records for the judge, and computes when groups were held.

This module shares no code with the modules that write and obey these records. A key is
``version, group, owner, scope``, joined by NUL; a value is JSON with ``ttl_ms``; a
record without a value lifts the hold. All times are those at which the broker appended
the records, so all spans use one clock. Records of one topic are ordered by their
offsets.

Kafka's log cleaner removes a record once a later record with the same key exists, and
leaves a gap at its offset. So the log is complete from the record after the last gap;
before that, the log only shows which holds were in force. The cleaner's delay,
``min.compaction.lag.ms``, proves nothing, because it may have been shorter in the past.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from safeconsumer.audit.reading import may_be_scope, partition_of
from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import tp_text

# The prefix that members put before the owner names from the holds topic.
_OPERATOR = "operator"

_VERSION = 1
_VERSIONS = re.compile("[1-9][0-9]{0,8}")
_KEY_FIELDS = 3
_EVERYTHING = "@all"

# A record with a larger key or value is not a control record.
_MAX_KEY_BYTES = 20_000
_MAX_VALUE_BYTES = 64 * 1024
_MAX_GROUP = 1024
_MAX_OWNER = 249
_MAX_REASON = 1024  # bytes
_MAX_TTL_MS = 10 * 366 * 24 * 3600 * 1000


@frozen(kw_only=True)
class Record:
    """
    The content of one control record.

    Attributes:
        group: the consumer group.
        holder: the owner of the hold as members name it, such as ``operator:alice``.
        scope: the scope that the record's key names.
        covers: the partitions that the hold covers, in scope notation.
        at: when the broker appended the record, seconds since the epoch.
        is_held: whether the record places a hold; if not, it lifts the hold.
        end: when the hold expires; ``inf`` if it does not expire.
        more: the other fields of the key: its version, and fields of a later version.
            Records whose keys differ in these fields belong to different holds.
        targets: partitions, such as ``orders:3``, with the offsets to which the hold
            moves the group while it is in force.
    """

    group: str
    holder: str
    scope: str
    covers: str
    at: float
    is_held: bool
    end: float = math.inf
    more: tuple[str, ...] = (str(_VERSION),)
    targets: tuple[tuple[str, int], ...] = ()


@frozen(kw_only=True)
class Span:
    """
    A period in which a scope of a group was held without a gap, by the broker's clock.

    Attributes:
        group: the consumer group.
        holder: the owner of the hold as members name it, such as ``operator:alice``.
        scope: the held scope, in scope notation.
        start: when the record of the hold was appended.
        end: when the hold was lifted or expired; ``inf`` if neither is known.
    """

    group: str
    holder: str
    scope: str
    start: float
    end: float


Target = tuple[str, str, str, int]
"""
A group, the owner of a hold, a partition as text, and the offset to which it is moved.
"""


@frozen(kw_only=True)
class Control:
    """
    The content of the control topics, as far as they were read.

    Attributes:
        spans: the periods in which a scope was held, sorted.
        since: the time after which all records are known, seconds since the epoch.
        until: the time up to which the topics were read, seconds since the epoch;
            ``inf`` if they were read just now.
        group: the only group whose records were read; None for all groups.
        groups: the groups of the records that were read.
        trouble: the reason why the times prove nothing; "" if they can be used.
        cluster: the id of the cluster; None if it is not known.
        targets: the offsets to which operators moved groups, and the periods in which
            these holds were in force, by the broker's clock.
    """

    spans: tuple[Span, ...] = ()
    targets: Mapping[Target, Sequence[tuple[float, float]]] = field(factory=dict)
    since: float = -math.inf
    until: float = math.inf
    group: str | None = None
    groups: frozenset[str] = frozenset()
    trouble: str = ""
    cluster: str | None = None

    def is_about(self, group: str | None) -> bool:
        """Return whether the holds of a group were read."""
        return self.group in {None, group}

    def may_lack(self, at: float, skew: float) -> bool:
        """Return whether the topics may have been read only up to an earlier time."""
        return at > self.until - skew


@frozen
class Place:
    """
    The position of a record in a topic's log.

    Attributes:
        offset: the record's offset.
        at: when the broker appended the record, seconds since the epoch.
        key: the record's key.
        goes_on: whether the record lifts or extends a hold that an earlier record with
            the same key placed.
    """

    offset: int
    at: float
    key: object
    goes_on: bool


def complete_since(places: Iterable[Place], end: int, now: float) -> float:
    """
    Return the time after which no record of a topic is missing; 0 if none is missing.

    If an offset has no record, any record may have been there. If a record lifts or
    extends a hold and the record that placed the hold is missing, the hold may have
    been in force until then.

    Args:
        places: the topic's records, in order.
        end: the topic's end offset; records just before it may have been removed.
        now: seconds since the epoch.
    """
    since, following = 0.0, 0
    keys: set[object] = set()
    for one in places:
        is_hole = following < one.offset
        if is_hole or (since and one.goes_on and one.key not in keys):
            since = one.at
        keys.add(one.key)
        following = one.offset + 1
    return now if following < end else since


@frozen
class Topic:
    """
    A control topic that was read.

    Attributes:
        name: the topic's name.
        timestamp_type: ``LogAppendTime`` if the records have the broker's times,
            ``CreateTime`` if they have the producers' times; None if the topic's
            settings are unknown.
        complete_since: the time after which no record was compacted away, seconds since
            the epoch; None if the topic's settings are unknown.
    """

    name: str
    timestamp_type: str | None
    complete_since: float | None

    @property
    def trouble(self) -> str:
        """The reason why the topic's times prove nothing; "" if they can be used."""
        if self.timestamp_type is None or self.complete_since is None:
            return f"the settings of {self.name} are unknown: no right to describe them"
        if self.timestamp_type != "LogAppendTime":
            return f"the records of {self.name} have their writers' times"
        return ""


def control_of(
    topics: Sequence[Topic],
    records: Iterable[Record],
    group: str | None = None,
    cluster: str | None = None,
    until: float = math.inf,
) -> Control:
    """
    Return the content of control topics.

    Args:
        topics: the topics.
        records: all records of the topics, in the order of each topic's log.
        group: the only group whose records were read; None for all groups.
        cluster: the id of the cluster; None if it is not known.
        until: as in :class:`Control`.
    """
    records = tuple(records)
    known = [one.complete_since for one in topics if one.complete_since is not None]
    return Control(
        spans=holds_of(records),
        targets=targets_of(records),
        since=max(known, default=-math.inf),
        until=until,
        group=group,
        groups=frozenset(one.group for one in records),
        trouble=next(filter(None, (one.trouble for one in topics)), ""),
        cluster=cluster,
    )


def place_of(offset: int, key: bytes | None, value: bytes | None, at: float) -> Place:
    """Return the position of a record, whatever the record contains."""
    try:
        document = json.loads(value or b"{}")
    except (ValueError, RecursionError):
        document = None
    is_extended = isinstance(document, dict) and document.get("since_ms") is not None
    return Place(offset, at, key, goes_on=value is None or is_extended)


def decode(key: bytes | None, value: bytes | None, at: float) -> Record | None:
    """
    Return a decoded record; None if it is no control record, so members ignore it.

    A record of a later version counts as a hold without an end. If its key has more
    fields, or its scope cannot be parsed, the hold covers everything.
    """
    fields = _fields(key)
    end = math.inf if value is None else _end(value, at)
    if fields is None or end is None:
        return None
    group, owner, scope, covers, more = fields
    return Record(
        group=group,
        holder=f"{_OPERATOR}:{owner}",
        scope=scope,
        covers=covers,
        at=at,
        is_held=value is not None,
        end=end,
        more=more,
        targets=() if value is None else _targets(value),
    )


def _targets(value: bytes) -> tuple[tuple[str, int], ...]:
    # _end() has already parsed the value. A hold that expires does not move partitions.
    document = json.loads(value)
    reset = document.get("reset") if document.get("ttl_ms") is None else None
    to = reset.get("to") if isinstance(reset, dict) else None
    pairs = to if isinstance(to, dict) else {}
    try:
        return tuple(
            (f"{topic}:{int(partition)}", int(offset))
            for topic, several in pairs.items()
            for partition, offset in several
        )
    except (TypeError, ValueError):  # in this case members do not move the partition
        return ()


def _fields(key: bytes | None) -> tuple[str, str, str, str, tuple[str, ...]] | None:
    text = _text(key or b"", _MAX_KEY_BYTES)
    number, *fields = text.split("\0")
    if not _VERSIONS.fullmatch(number) or len(fields) < _KEY_FIELDS:
        return None
    group, owner, scope, *more = fields
    is_named = _is_text(group, _MAX_GROUP) and _is_text(owner, _MAX_OWNER)
    if not (group and owner.strip() and scope and is_named):
        return None
    is_readable = not more and may_be_scope(scope)
    if int(number) == _VERSION and not is_readable:
        return None
    covers = scope if is_readable else _EVERYTHING
    return group, owner, scope, covers, (number, *more)


def _end(value: bytes, at: float) -> float | None:
    try:
        document = json.loads(_text(value, _MAX_VALUE_BYTES))
    except (ValueError, RecursionError):
        return None
    version = document.get("v") if isinstance(document, dict) else None
    if type(version) is not int or version < _VERSION:
        return None
    if version > _VERSION:
        return math.inf
    hold_id, reason, ttl = (document.get(name) for name in ("id", "reason", "ttl_ms"))
    if not (_is_text(hold_id, _MAX_OWNER) and _is_reason(reason)):
        return None
    if ttl is None:
        return math.inf
    is_ttl = type(ttl) is int and 0 < ttl <= _MAX_TTL_MS
    return at + ttl / 1000 if is_ttl else None


def _text(data: bytes, limit: int) -> str:
    try:
        return data.decode() if len(data) <= limit else ""
    except UnicodeDecodeError:
        return ""


def _is_text(value: object, limit: int) -> bool:
    return isinstance(value, str) and value.isprintable() and len(value) <= limit


def _is_reason(value: object) -> bool:
    if value is None:
        return True
    is_text = isinstance(value, str) and value.isprintable()
    return is_text and len(str(value).encode("utf-8", "surrogatepass")) <= _MAX_REASON


def holds_of(records: Iterable[Record]) -> tuple[Span, ...]:
    """
    Return the spans of holds, from all records in the order of each topic's log.

    A hold that is placed again while it is in force continues, with the new end.
    """
    standing: dict[tuple[object, ...], Span] = {}
    over: list[Span] = []
    for one in records:
        key = one.group, one.holder, one.scope, one.more
        before = standing.pop(key, None)
        if before is not None and (before.end <= one.at or not one.is_held):
            over.append(evolve(before, end=min(before.end, one.at)))
            before = None
        if one.is_held:
            standing[key] = Span(
                group=one.group,
                holder=one.holder,
                scope=one.covers,
                start=one.at if before is None else before.start,
                end=one.end,
            )
    found = [*over, *standing.values()]
    return tuple(sorted(found, key=lambda span: (span.start, span.holder, span.scope)))


def targets_of(
    records: Iterable[Record],
) -> dict[Target, list[tuple[float, float]]]:
    """
    Return the reset targets of holds and their periods, from records in log order.

    A record that places a hold again replaces the earlier record and its targets.
    """
    standing: dict[tuple[object, ...], tuple[float, dict[Target, float]]] = {}
    found: dict[Target, list[tuple[float, float]]] = {}
    for one in records:
        key = one.group, one.holder, one.scope, one.more
        end, before = standing.pop(key, (-math.inf, {}))
        since = {}
        for place in one.targets if one.is_held else ():
            target = one.group, one.holder, *place
            goes_on = target in before and one.at < end
            since[target] = before.pop(target) if goes_on else one.at
        for target, start in before.items():
            found.setdefault(target, []).append((start, min(end, one.at)))
        standing[key] = one.end, since
    for end, since in standing.values():
        for target, start in since.items():
            found.setdefault(target, []).append((start, end))
    return found


def history_in(path: str | os.PathLike[str]) -> Control:
    """
    Read a file or a pipe with the output of ``safeconsumer history -o json``.

    Raises:
        JournalError: the file cannot be read, or is not output of that command.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the history cannot be read: {error}"
        raise JournalError(message) from error
    return from_history(os.fspath(path), text)


def from_history(name: str, text: str) -> Control:
    """
    Read the output of ``safeconsumer history -o json``.

    Args:
        name: the name of the document in error messages.
        text: the output.

    Raises:
        JournalError: the text is not output of that command.
    """
    try:
        document = json.loads(text)
        return control_of(
            [
                Topic(one["topic"], one["timestamp_type"], one["complete_since"])
                for one in document["topics"]
            ],
            _records(document["records"]),
            group=document["group"],
            cluster=document["cluster"],
            until=float(document["until"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{name} is not output of `safeconsumer history -o json`: {error!r}"
        raise JournalError(message) from error


def _records(documents: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    for one in documents:
        end = one["expires_at"]
        yield Record(
            group=one["group"],
            holder=f"{_OPERATOR}:{one['owner']}",
            scope=one["scope"],
            covers=one["covers"],
            at=float(one["at"] or 0),
            is_held=one["is_held"] is True,
            end=math.inf if end is None else float(end),
            more=(str(one["version"]), *one["extra"]),
            targets=tuple(
                (tp_text(partition_of(name)), offset)
                for name, offset in (one.get("reset") or {"to": {}})["to"].items()
            ),
        )
