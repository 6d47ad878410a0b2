"""Encodes and decodes members' reports: versioned, bounded, and never trusted."""

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from safeconsumer.group.wire import (
    MAX_GROUP_LENGTH,
    VERSION,
    as_json,
    document_of,
    is_int,
    is_short_text,
)

_NUL = "\0"

# Seconds; no clock that is meant to be right is wrong by more.
_MOST_SKEW = 366 * 86_400.0

# The most holds of a worker that a report names, the most that it has and its topic
# lost (and topics that were recreated), and the most characters of each.
_FEW, _MOST_KEPT, _MOST_TEXT = 4, 100, 400

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
    document = {
        "v": VERSION,
        "group": report.group,
        "member": report.member,
        "client_id": for_people(report.client_id),
        "host": for_people(report.host),
        "state": report.state,
        "at_ms": report.at_ms,
        "applied": dict(report.applied),
        "holds": report.holds,
        "skipped": report.skipped,
        "assigned": dict(report.assigned),
        "quiet": dict(report.quiet),
        "gated": report.gated,
        "is_partial": report.is_partial,
        "outages": [cut(line) for line in report.outages[:_FEW]],
        "kept": [
            {"owner": one.owner, "scope": one.scope, "line": cut(one.line)}
            for one in report.kept[:_MOST_KEPT]
        ],
        "recreated": list(report.recreated[:_MOST_KEPT]),
        "member_id": report.member_id,
        "generation": report.generation,
        "resets": None
        if report.resets is None
        else [cut(line) for line in report.resets[:_MOST_KEPT]],
        "busy": dict(report.busy),
        "skew": report.skew,
        "kind": report.kind,
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
    group = document.get("group")
    shown = [document.get(name) for name in ("member", "client_id", "host")]
    numbers = [document.get(name) for name in ("at_ms", "holds", "skipped", "gated")]
    state = document.get("state")
    applied = _offsets(document.get("applied"))
    assigned, quiet = _ranges(document.get("assigned")), _ranges(document.get("quiet"))
    if not all(is_short_text(one, MAX_GROUP_LENGTH) for one in (group, state)):
        return None
    if not all(isinstance(one, str) and len(one) <= MAX_GROUP_LENGTH for one in shown):
        return None
    if not all(is_int(one) and 0 <= one < 2**63 for one in numbers):
        return None
    if applied is None or assigned is None or quiet is None:
        return None
    # Names with a tab in them, of an earlier version: a member that cannot be read
    # because of them is not waited for either, whatever its handlers do.
    member, client_id, host = (for_people(str(one)) for one in shown)
    at_ms, holds, skipped, gated = (int(one or 0) for one in numbers)
    return Report(
        group=str(group),
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
        outages=_lines(document.get("outages")),
        kept=_kept(document.get("kept")),
        recreated=_lines(document.get("recreated"), _MOST_KEPT),
        member_id=_member_id(document.get("member_id")),
        generation=_generation(document.get("generation")),
        resets=_resets(document.get("resets")),
        busy=_ranges(document.get("busy")) or {},
        skew=_skew(document.get("skew")),
        kind=_kind(document.get("kind")),
    )


def _member_id(value: object) -> str | None:
    is_one = is_short_text(value, MAX_GROUP_LENGTH)
    return str(value) if is_one else None  # None: of an earlier version


def _generation(value: object) -> int | None:
    return value if is_int(value) and -1 <= value < 2**31 else None


def _kind(value: object) -> str:
    return STREAM if value == STREAM else ""


def _skew(value: object) -> float | None:
    if not is_int(value) and not isinstance(value, float):
        return None
    return float(value) if 0 <= value <= _MOST_SKEW else None


def _resets(value: object) -> tuple[str, ...] | None:
    return _lines(value, _MOST_KEPT) if isinstance(value, list) else None


def _lines(value: object, most: int = _FEW) -> tuple[str, ...]:
    if not isinstance(value, list):  # of an earlier version
        return ()
    return tuple(line for line in value[:most] if is_short_text(line, _MOST_TEXT))


def _kept(value: object) -> tuple[Kept, ...]:
    several = value[:_MOST_KEPT] if isinstance(value, list) else []
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
