"""
What commands about groups print; no input or output.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition

from safeconsumer.cli.durations import words_of
from safeconsumer.group import report_wire
from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.report_wire import Report
from safeconsumer.group.reports import ranges
from safeconsumer.holds.explain import utc

_MANY = 20


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """
    Return rows as lines, each column as wide as its widest cell.
    """
    rows = [tuple(row) for row in rows]
    if not rows:
        return []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        indent
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """
    Return partitions as ``orders:0-3,7 audit:0``, cut where it gets long.
    """
    parts = [
        topic + ":" + ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in several)
        for topic, several in ranges(partitions).items()
    ]
    if len(parts) > _MANY:
        parts = [*parts[:_MANY], f"and {len(parts) - _MANY} more topics"]
    return " ".join(parts)


def standing_row(one: Standing) -> tuple[str, ...]:
    """
    Return a hold as cells: scope, owner, since, until, why.
    """
    why = (one.hold.reason if one.hold else None) or ""
    owner = f"{one.source}:{one.key.owner}"
    since = "since unknown" if one.at is None else f"since {utc(one.at)}"
    return one.key.scope, owner, since, _until(one), why


def _until(one: Standing) -> str:
    if one.expires_at is not None:
        return f"until {utc(one.expires_at)}"
    if one.hold is not None and one.hold.ttl_ms is not None:
        return f"for {words_of(one.hold.ttl_ms / 1000)} after a member heard of it"
    return "until resumed"


def standing_document(one: Standing) -> dict[str, object]:
    """
    Return a hold as plain JSON values.
    """
    return {
        "group": one.key.group,
        "scope": one.key.scope,
        "source": one.source,
        "owner": one.key.owner,
        "is_held": one.hold is not None,
        "id": one.hold.hold_id if one.hold else None,
        "reason": one.hold.reason if one.hold else None,
        "at": one.at,
        "expires_at": one.expires_at,
        "offset": one.offset,
    }


def has_applied(report: Report, ends: Mapping[str, int]) -> bool:
    """
    Tell whether a member obeys everything below these offsets.
    """
    return all(report.applied.get(topic, -1) >= end for topic, end in ends.items())


def obeys_text(report: Report, ends: Mapping[str, int]) -> str:
    """
    Say how far a member has read the control topics.
    """
    if report.state != "ready":
        return f"{report.state}: keeps its last state"
    behind = sum(
        max(0, end - report.applied.get(topic, 0)) for topic, end in ends.items()
    )
    return "obeys all" if not behind else f"{behind} records behind"


def member_row(report: Report, ends: Mapping[str, int]) -> tuple[str, ...]:
    """
    Return a member as cells: client, host, what it obeys, quiet, waiting.
    """
    quiet, owned = (
        report_wire.count_of(report.quiet),
        report_wire.count_of(report.assigned),
    )
    waits = f"{report.gated} wait for the control topics" if report.gated else ""
    return (
        report.client_id,
        report.host,
        obeys_text(report, ends),
        "too many to list" if report.is_partial else f"{quiet} of {owned} quiet",
        waits,
    )


def held_rows(
    quiet_at: Mapping[TopicPartition, str],
    held: Sequence[TopicPartition],
    lags: Mapping[TopicPartition, int],
) -> list[tuple[str, ...]]:
    """
    Return held partitions as cells: partition, where it is quiet, its lag.
    """
    rows: list[tuple[str, ...]] = []
    for tp in held:
        where = quiet_at.get(tp)
        lag = f"lag {lags[tp]}" if tp in lags else "nothing committed"
        said = f"quiet at {where}" if where else "FLOWING or not reported"
        rows.append((f"{tp.topic}:{tp.partition}", said, lag))
    return rows


def quiet_at(reports: Iterable[Report]) -> dict[TopicPartition, str]:
    """
    Return by which member each quiet partition is kept so.
    """
    return {
        TopicPartition(topic, number): report.client_id
        for report in reports
        for topic, several in report.quiet.items()
        for first, last in several
        for number in range(first, last + 1)
    }


def assigned(reports: Iterable[Report]) -> frozenset[TopicPartition]:
    """
    Return what members say that they own.
    """
    return frozenset(
        TopicPartition(topic, number)
        for report in reports
        for topic, several in report.assigned.items()
        for first, last in several
        for number in range(first, last + 1)
    )


def status_lines(  # noqa: PLR0913, PLR0917 - all that an operator asks for
    group: str,
    facts: GroupFacts,
    standing: Sequence[Standing],
    reports: Sequence[Report],
    ends: Mapping[str, int],
    lags: Mapping[TopicPartition, int],
) -> list[str]:
    """
    Return the whole status of a group for people.
    """
    heading = (
        f"group {group}: {facts.state}, {facts.members} members, "
        f"{len(reports)} of them report"
    )
    lines = [heading]
    lines += ["holds" if standing else "holds: none"]
    lines += columns(standing_row(one) for one in standing)
    if reports:
        lines.append("members")
        lines += columns(member_row(one, ends) for one in reports)
    outages = [(one.client_id, line) for one in reports for line in one.outages]
    if outages:
        lines.append("paused by members' own workers")
        lines += columns(outages)
    held = [tp for tp in facts.partitions if any(one.covers(tp) for one in standing)]
    if held:
        lines.append("held partitions")
        shown = held_rows(quiet_at(reports), held[: 5 * _MANY], lags)
        lines += columns(shown)
        if len(held) > len(shown):
            lines.append(f"  and {len(held) - len(shown)} more")
    return lines


def status_document(  # noqa: PLR0913, PLR0917 - all that a script asks for
    group: str,
    facts: GroupFacts,
    standing: Sequence[Standing],
    reports: Sequence[Report],
    ends: Mapping[str, int],
    lags: Mapping[TopicPartition, int],
) -> dict[str, Any]:
    """
    Return the whole status of a group as plain JSON values.
    """
    where = quiet_at(reports)
    return {
        "group": group,
        "state": facts.state,
        "members": facts.members,
        "ends": dict(ends),
        "holds": [standing_document(one) for one in standing],
        "reports": [
            {
                "client_id": one.client_id,
                "member": one.member,
                "host": one.host,
                "state": one.state,
                "applied": dict(one.applied),
                "has_applied_all": has_applied(one, ends),
                "holds": one.holds,
                "skipped": one.skipped,
                "assigned": dict(one.assigned),
                "quiet": dict(one.quiet),
                "gated": one.gated,
                "is_partial": one.is_partial,
                "outages": list(one.outages),
            }
            for one in reports
        ],
        "held": [
            {
                "partition": f"{tp.topic}:{tp.partition}",
                "quiet_at": where.get(tp),
                "lag": lags.get(tp),
            }
            for tp in facts.partitions
            if any(one.covers(tp) for one in standing)
        ],
    }
