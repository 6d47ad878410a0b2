"""
What commands about groups print; no input or output.
"""

from collections.abc import Iterable, Mapping, Sequence

from kafka import TopicPartition

from safeconsumer.group import judging, report_wire
from safeconsumer.group.durations import words_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import Answer, Judge, Place
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report
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


def member_row(report: Report, ends: Mapping[str, int] | None) -> tuple[str, ...]:
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
        judging.obeys_text(report, ends),
        "too many to list" if report.is_partial else f"{quiet} of {owned} quiet",
        waits,
    )


def held_rows(
    picture: Picture, judge: Judge, held: Sequence[TopicPartition]
) -> list[tuple[str, ...]]:
    """
    Return held partitions as cells: partition, where it is quiet, its lag.
    """
    rows: list[tuple[str, ...]] = []
    for tp in held:
        place, lags = judge.place(tp), picture.lags
        lag = f"lag {lags[tp]}" if tp in lags else "nothing committed"
        rows.append((f"{tp.topic}:{tp.partition}", _place_text(place), lag))
    return rows


def _place_text(place: Place) -> str:
    said = {
        Answer.QUIET: f"quiet at {place.member}",
        Answer.UNOWNED: "nobody owns it",
        Answer.FLOWING: f"FLOWING at {place.member}",
        Answer.UNKNOWN: f"UNKNOWN at {place.member}" if place.member else "UNKNOWN",
    }[place.answer]
    return f"{said}: {place.why}" if place.why else said


def status_lines(picture: Picture) -> list[str]:
    """
    Return the whole status of a group for people.
    """
    facts, standing, reports = picture.facts, picture.standing, picture.reports
    judge = Judge(picture)
    heading = (
        f"group {picture.group}: {facts.state}, {len(facts.members)} members, "
        f"{len(reports)} of them report"
    )
    lines = [heading]
    lines += [f"not read: {one}" for one in picture.unread]
    if picture.ends is None:
        lines += ["holds: unknown"]
    else:
        lines += ["holds" if standing else "holds: none"]
    lines += columns(standing_row(one) for one in standing)
    silent = [(one.name, one.why) for one in judge.members if one.report is None]
    if reports or silent:
        lines.append("members")
        lines += columns(member_row(one, picture.ends) for one in reports)
        lines += columns(silent)
    outages = [(one.client_id, line) for one in reports for line in one.outages]
    if outages:
        lines.append("paused by members' own workers")
        lines += columns(outages)
    if held := picture.held:
        lines.append("held partitions")
        lines += columns(held_rows(picture, judge, held[: 5 * _MANY]))
        if len(held) > 5 * _MANY:
            lines.append(f"  and {len(held) - 5 * _MANY} more")
    return lines
