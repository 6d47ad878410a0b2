"""Encodes and decodes members' reports: versioned, bounded, and never trusted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import asdict, field, frozen

from safeconsumer.group.wire import (
    MAX_GROUP_LENGTH,
    VERSION,
    as_json,
    document_of,
    is_int,
    is_short_text,
)
from safeconsumer.holds.scope import TopicPartition

_NUL = "\0"

# Seconds; no clock that is meant to be right is wrong by more.
_MOST_SKEW = 366 * 86_400.0

# The most holds of a worker that a report names, the most that it has and its topic
# lost (and topics that were recreated), and the most characters of each.
_FEW, MOST_KEPT, _MOST_TEXT = 4, 100, 400

# Kinds of reporters other than members.
STREAM = "stream"

# The partitions of a longer report are left out. Producers compress their records.
MAX_REPORT_BYTES = 512 * 1024

# More partitions than a cluster has: a report with more is made to keep readers busy.
_MOST_PARTITIONS = 1_000_000


@frozen(kw_only=True, order=True)
class Kept:
    """
    A hold that a member obeys although its control topic was created again without it.

    Attributes:
        owner: its owner, as ``operator:alice``.
        scope: its scope.
        line: all of it, in words.
    """

    owner: str
    scope: str
    line: str


def kept_text(several: Sequence[Kept]) -> str:
    """Describe such holds, the first few of them."""
    more = [f"and {len(several) - _FEW} more"] if len(several) > _FEW else []
    return "; ".join([*(one.line for one in several[:_FEW]), *more])


@frozen(kw_only=True)
class Report:
    """
    The report of one member about itself.

    Attributes:
        group: its consumer group.
        member: a name that no other member has, the same in all its reports.
        client_id: Kafka's ``client_id``.
        host: where it runs.
        state: ``ready``, ``unavailable`` (no control topic), or ``stopped``.
        at_ms: when, by its own clock, in milliseconds since the epoch.
        applied: control topics with the offset up to which it has obeyed.
        holds: how many operator and group holds it obeys.
        skipped: how many control records it could not read.
        assigned: owned partitions, as ranges by topic.
        quiet: the owned partitions that deliver nothing, as ranges by topic.
        gated: how many partitions wait for the control topics.
        is_partial: whether the partitions did not fit, and are left out.
        outages: holds that its worker placed for an outage, in words.
        kept: holds that it obeys and their control topic does not have any more.
        recreated: topics that were deleted and recreated while it owned something of
            them, and of which it has read nothing since; at most a hundred.
        member_id: Kafka's id for the member; empty if it is not one, because it
            assigned its partitions itself or has not joined; None in an earlier
            version.
        generation: the generation of the group in which it is a member; -1 if it is not
            one; None in an earlier version.
        resets: why partitions of which a reset stands are not moved yet, each beginning
            with its partition; at most a hundred. None: it moves nothing, as it is of an
            earlier version or its settings forbid it.
        busy: partitions, owned or not, on whose records a handler works, as ranges by
            topic.
        skew: seconds by which it lifts holds late; None in an earlier version.
        kind: ``stream`` for a Spark stream, which is not a member of the group for
            Kafka; empty for a member.
        clock_offset: seconds by which the broker's clock is ahead of the member's;
            computed by the reader of the report, not written.
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
    kept: tuple[Kept, ...] = ()
    recreated: tuple[str, ...] = ()
    member_id: str | None = None
    generation: int | None = None
    resets: tuple[str, ...] | None = None
    busy: Mapping[str, tuple[tuple[int, int], ...]] = field(factory=dict)
    skew: float | None = None
    kind: str = ""
    clock_offset: float = 0.0


def encode_report_key(group: str, member: str) -> bytes:
    """Return the key of a member's reports."""
    return _NUL.join((str(VERSION), group, member)).encode()


def encode_report(report: Report) -> bytes:
    """Return a report as bytes; its partitions are left out if they do not fit."""
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
    """Read a report of this version or a later one; None if it is not one."""
    document = document_of(data, MAX_REPORT_BYTES)
    version = document.get("v")
    if not is_int(version) or version < 1:
        return None
    found = {name: read(document.get(name)) for name, read in _NEEDED.items()}
    if None in found.values():
        return None
    later = {name: read(document.get(name)) for name, read in _LATER.items()}
    return Report(**found, **later)


def _text(value: object) -> str | None:
    return str(value) if is_short_text(value, MAX_GROUP_LENGTH) else None


def _shown(value: object) -> str | None:
    # Names with a tab in them, of an earlier version: a member that cannot be read
    # because of them is not waited for either, whatever its handlers do.
    is_one = isinstance(value, str) and len(value) <= MAX_GROUP_LENGTH
    return for_people(str(value)) if is_one else None


def _count(value: object) -> int | None:
    return value if is_int(value) and 0 <= value < 2**63 else None


def _generation(value: object) -> int | None:
    return value if is_int(value) and -1 <= value < 2**31 else None


def _kind(value: object) -> str:
    return STREAM if value == STREAM else ""


def _skew(value: object) -> float | None:
    if not is_int(value) and not isinstance(value, float):
        return None
    return float(value) if 0 <= value <= _MOST_SKEW else None


def _resets(value: object) -> tuple[str, ...] | None:
    return _lines(value, MOST_KEPT) if isinstance(value, list) else None


def _lines(value: object, most: int = _FEW) -> tuple[str, ...]:
    if not isinstance(value, list):  # of an earlier version
        return ()
    return tuple(line for line in value[:most] if is_short_text(line, _MOST_TEXT))


def _kept(value: object) -> tuple[Kept, ...]:
    several = value[:MOST_KEPT] if isinstance(value, list) else []
    names = ("owner", "scope", "line")
    return tuple(
        Kept(**{name: one[name] for name in names})
        for one in several
        if isinstance(one, dict)
        and all(is_short_text(one.get(name), _MOST_TEXT) for name in names)
    )


def for_people(text: str) -> str:
    """
    Return text as a report shows it: short, and with unprintable characters escaped.

    Such are names that an application has chosen, with a tab or a line end in them.
    """
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return shown[:MAX_GROUP_LENGTH]


def cut(line: str) -> str:
    """Return as much of a line as fits into a report."""
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 3]}..."


def _offsets(value: object) -> dict[str, int] | None:
    if not isinstance(value, dict):
        return None
    ok = all(is_int(one) and 0 <= one < 2**63 for one in value.values())
    return dict(value) if ok else None


def _ranges(value: object) -> dict[str, tuple[tuple[int, int], ...]] | None:
    if not isinstance(value, dict):
        return None
    found = {}
    for topic, ranges in value.items():
        if not isinstance(ranges, list) or not all(map(_is_range, ranges)):
            return None
        found[topic] = tuple((first, last) for first, last in ranges)
    return found if count_of(found) <= _MOST_PARTITIONS else None


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2  # noqa: PLR2004 - first and last
        and all(map(is_int, value))
        and 0 <= value[0] <= value[1] < 2**31
    )


def ranges(
    partitions: Iterable[TopicPartition],
) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """Return partitions as ranges of numbers by topic."""
    numbers: dict[str, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp[0], []).append(tp[1])
    return {topic: ranges_of(found) for topic, found in sorted(numbers.items())}


def ranges_of(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as sorted, disjoint ranges, both ends included."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def count_of(ranges: Mapping[str, tuple[tuple[int, int], ...]]) -> int:
    """Return how many numbers such ranges have, over all topics."""
    return sum(
        last - first + 1 for several in ranges.values() for first, last in several
    )


# How each value is read; without one of the first, or if one cannot be read, it is no
# report.
_NEEDED: Mapping[str, Callable[[object], Any]] = {
    "group": _text,
    "member": _shown,
    "client_id": _shown,
    "host": _shown,
    "state": _text,
    "at_ms": _count,
    "applied": _offsets,
    "holds": _count,
    "skipped": _count,
    "assigned": _ranges,
    "quiet": _ranges,
    "gated": _count,
}
# Reports of earlier versions lack some of these.
_LATER: Mapping[str, Callable[[object], Any]] = {
    "is_partial": lambda value: value is True,
    "outages": _lines,
    "kept": _kept,
    "recreated": lambda value: _lines(value, MOST_KEPT),
    "member_id": _text,
    "generation": _generation,
    "resets": _resets,
    "busy": lambda value: _ranges(value) or {},
    "skew": _skew,
    "kind": _kind,
}
