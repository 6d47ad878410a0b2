"""Encodes and decodes members' reports, which are versioned, bounded and never trusted."""

from collections.abc import Iterable, Mapping, Sequence

from attrs import asdict, field, frozen

from safeconsumer.group.wire import (
    MAX_GROUP_LENGTH,
    OFFSET,
    PARTITION,
    VERSION,
    Read,
    as_json,
    by_topic,
    document_of,
    fields_of,
    number,
    of_type,
    pairs,
    several,
    text,
    version_of,
    within,
)
from safeconsumer.holds.explain import printable
from safeconsumer.holds.scope import TopicPartition

_NUL = "\0"

# Seconds; the largest clock skew that a report may contain.
_MOST_SKEW = 366 * 86_400.0

# Limits for a report: a worker's outage holds; kept holds, recreated topics and resets;
# and the characters in each line.
_FEW, MOST_KEPT, _MOST_TEXT = 4, 100, 400

# Kinds of reporters other than members.
STREAM = "stream"

# A report that would be longer leaves out its partitions. Producers compress their
# records.
MAX_REPORT_BYTES = 512 * 1024

# More partitions than any cluster has; a larger report would only keep readers busy.
_MOST_PARTITIONS = 1_000_000


@frozen(kw_only=True, order=True)
class KeptHold:
    """
    A hold that a member still obeys although the recreated holds topic lacks it.

    Attributes:
        owner: its owner, in the form ``operator:alice``.
        scope: its scope.
        line: a description for people.
    """

    owner: str
    scope: str
    line: str


def kept_holds_text(several: Sequence[KeptHold]) -> str:
    """Return text that describes the first few of the kept holds."""
    more = [f"and {len(several) - _FEW} more"] if len(several) > _FEW else []
    return "; ".join([*(one.line for one in several[:_FEW]), *more])


@frozen(kw_only=True)
class Report:
    """
    A member's report about itself.

    Attributes:
        group: the consumer group.
        member: a unique name of the member, the same in all its reports.
        client_id: Kafka's ``client_id``.
        host: the host that the member runs on.
        state: ``ready``, ``unavailable`` (no control topic), or ``stopped``.
        at_ms: when the report was created, by the member's clock, in milliseconds since
            the epoch.
        applied: by control topic, the offset up to which the member obeys the records.
        holds: the number of operators' holds that it obeys.
        skipped: the number of control records that it could not read.
        assigned: owned partitions, as ranges by topic.
        quiet: the owned partitions that are not delivered, as ranges by topic.
        gated: the number of partitions that are gated until the control topics are
            read.
        is_partial: whether the partitions are left out because they did not fit.
        outages: descriptions of the holds that the member's worker placed because of an
            outage.
        kept: the holds that the member obeys although they are no longer on the holds
            topic.
        recreated: topics that were deleted and recreated while the member owned
            partitions of them, and from which it has not read any new records; at most
            a hundred.
        member_id: the member's id in Kafka; empty if it is not in the group, because it
            assigned its partitions itself or has not joined; None in reports from
            earlier versions.
        generation: the group generation that the member belongs to; -1 if it is not in
            the group; None in reports from earlier versions.
        resets: lines that start with a partition, each with the reason why the
            partition has not been reset yet; at most a hundred. None if the member does
            not carry out resets, because its version is too old or its settings forbid
            that.
        busy: partitions, owned or not, whose records a handler is processing, as ranges
            by topic.
        skew: the seconds by which the member lifts holds late; None in reports from
            earlier versions.
        kind: ``stream`` for a Spark stream, which Kafka does not count as a member;
            empty for a member.
        clock_offset: seconds by which the broker's clock is ahead of the member's;
            computed by the reader of the report, and not part of the record.
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
    outages: tuple[str, ...] = ()
    kept: tuple[KeptHold, ...] = ()
    recreated: tuple[str, ...] = ()
    member_id: str | None = None
    generation: int | None = None
    resets: tuple[str, ...] | None = None
    busy: Mapping[str, tuple[tuple[int, int], ...]] = field(factory=dict)
    skew: float | None = None
    kind: str = ""
    clock_offset: float = 0.0


def encode_report_key(group: str, member: str) -> bytes:
    """Return the record key for a member's reports."""
    return _NUL.join((str(VERSION), group, member)).encode()


def encode_report(report: Report) -> bytes:
    """Return a report as bytes, without its partitions if they do not fit."""
    document = {"v": VERSION, **asdict(report, recurse=False)}
    del document["clock_offset"]
    document |= {
        "client_id": for_people(report.client_id),
        "host": for_people(report.host),
        "outages": [cut(line) for line in report.outages[:_FEW]],
        "kept": [
            {"owner": one.owner, "scope": one.scope, "line": cut(one.line)}
            for one in report.kept[:MOST_KEPT]
        ],
        "recreated": report.recreated[:MOST_KEPT],
        "resets": None
        if report.resets is None
        else [cut(line) for line in report.resets[:MOST_KEPT]],
    }
    data = as_json(document)
    if len(data) <= MAX_REPORT_BYTES:
        return data
    left_out: dict[str, object] = {"assigned": {}, "quiet": {}, "busy": {}}
    return as_json({**document, **left_out, "is_partial": True})


def decode_report(data: object) -> Report | None:
    """Decode a report of this version or a later one; return None for other data."""
    document = document_of(data, MAX_REPORT_BYTES)
    found = fields_of(document, _NEEDED, _LATER) if version_of(document) else None
    return None if found is None else Report(**found)


def for_people(name: str) -> str:
    """
    Return text as reports store it: truncated, with unprintable characters escaped.

    An application may choose names that contain tabs or newlines.
    """
    return printable(name)[:MAX_GROUP_LENGTH]


def place(tp: tuple[str, int]) -> str:
    """Return a partition's name for report lines; partition 3 of topic ``re`` is ``re:3``."""
    topic, number = tp
    return f"{topic}:{number}"


def cut(line: str) -> str:
    """Return a line, truncated to the maximum length in reports."""
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 3]}..."


def ranges(
    partitions: Iterable[TopicPartition],
) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Return partitions as ranges of partition numbers by topic."""
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp[0], []).append(tp[1])
    return {topic: ranges_of(found) for topic, found in sorted(numbers.items())}


def ranges_of(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as sorted, disjoint ranges, both ends included."""
    found: list[tuple[int, int]] = []
    for one in sorted(numbers):
        if found and one <= found[-1][1] + 1:
            found[-1] = (found[-1][0], one)
        else:
            found.append((one, one))
    return tuple(found)


def count_of(ranges: Mapping[str, tuple[tuple[int, int], ...]]) -> int:
    """Return the total count of partitions in ranges by topic."""
    return sum(
        last - first + 1 for several in ranges.values() for first, last in several
    )


# ---------------------------------------------------------------- fields


def _shown(value: object) -> str:
    # Reports from an earlier version may contain names with tabs. If a tab made such a
    # report unreadable, commands would not wait for its member.
    found = of_type(str, value)
    within(len(found), 0, MAX_GROUP_LENGTH)
    return for_people(found)


def _kept(value: object) -> KeptHold:
    found = fields_of(value, _KEPT, {})
    return KeptHold(**of_type(dict, found))


def _ranges(value: object) -> Mapping[str, tuple[tuple[int, int], ...]]:
    found: dict[str, tuple[tuple[int, int], ...]]
    found = by_topic(pairs(PARTITION, PARTITION))(value)
    for ends in found.values():
        for first, last in ends:
            within(first, 0, last)
    within(count_of(found), 0, _MOST_PARTITIONS)
    return found


def _skew(value: object) -> float:
    seconds = value if isinstance(value, float) else of_type(int, value)
    return within(float(seconds), 0.0, _MOST_SKEW)


_LINE, _NAME = text(_MOST_TEXT), text(MAX_GROUP_LENGTH)
_KEPT: Mapping[str, Read] = {"owner": _LINE, "scope": _LINE, "line": _LINE}

# A record in which one of these fields is missing or unreadable is not a report.
_NEEDED: Mapping[str, Read] = {
    "group": _NAME,
    "member": _shown,
    "client_id": _shown,
    "host": _shown,
    "state": _NAME,
    "at_ms": OFFSET,
    "applied": by_topic(OFFSET),
    "holds": OFFSET,
    "skipped": OFFSET,
    "assigned": _ranges,
    "quiet": _ranges,
    "gated": OFFSET,
}
# Reports from earlier versions lack some of these fields.
_LATER: Mapping[str, Read] = {
    "is_partial": lambda value: value is True,
    "outages": several(_LINE, _FEW),
    "kept": several(_kept, MOST_KEPT),
    "recreated": several(_LINE, MOST_KEPT),
    "member_id": _NAME,
    "generation": number(-1, 2**31 - 1),
    "resets": several(_LINE, MOST_KEPT),
    "busy": _ranges,
    "skew": _skew,
    "kind": lambda value: STREAM if value == STREAM else "",
}
