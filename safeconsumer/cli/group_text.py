"""Formats what commands about groups print; it does no input or output."""

from collections.abc import Iterable, Mapping, Sequence

from kafka import TopicPartition

from safeconsumer.cli.backlog import Backlog
from safeconsumer.cli.saying import printable
from safeconsumer.group import judging, report_wire
from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import Answer, Judge, Place, Seat
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report
from safeconsumer.holds.explain import counted, utc

_MANY = 20


def columns(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return rows as lines, each column as wide as its widest cell, all of it printable."""
    rows = [tuple(map(printable, row)) for row in rows]
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


def member_row(
    seat: Seat, report: Report, ends: Mapping[str, int] | None
) -> tuple[str, ...]:
    """Return a reporting member as cells: client, host, what it obeys, quiet, waiting."""
    obeys = seat.why or judging.obeys_text(report, ends)
    quiet, owned = (
        report_wire.count_of(report.quiet),
        report_wire.count_of(report.assigned),
    )
    waits = f"{report.gated} wait for the control topics" if report.gated else ""
    return (
        report.client_id,
        report.host,
        "is not in the group any more" if seat.has_gone else obeys,
        "too many to list" if report.is_partial else f"{quiet} of {owned} quiet",
        waits,
    )


def held_rows(
    judge: Judge, held: Sequence[TopicPartition], backlog: Backlog
) -> list[tuple[str, ...]]:
    """Return held partitions as cells: partition, where it is quiet, what waits."""
    rows: list[tuple[str, ...]] = []
    for tp in held:
        lag = f"lag {backlog.lags[tp]:,}" if tp in backlog.lags else "nothing committed"
        since = f"{backlog.since[tp]:,} since the hold" if tp in backlog.since else ""
        holds = [one for one in judge.picture.standing if one.covers(tp)]
        place = _over_text(judge.picture, holds) or _place_text(judge.place(tp))
        rows.append((f"{tp.topic}:{tp.partition}", place, lag, since))
    return rows


def _place_text(place: Place) -> str:
    said = {
        Answer.QUIET: f"quiet at {place.member}",
        Answer.UNOWNED: "nobody owns it",
        Answer.FLOWING: f"FLOWING at {place.member}" if place.member else "FLOWING",
        Answer.UNKNOWN: f"UNKNOWN at {place.member}" if place.member else "UNKNOWN",
    }[place.answer]
    return f"{said}: {place.why}" if place.why else said


def _over_text(picture: Picture, holds: Sequence[Standing]) -> str:
    by = picture.lifted_by(holds)
    return "" if by is None else f"over; members lift it until {utc(by)}"


def _members_text(picture: Picture) -> str:
    count, reporting = picture.facts.member_count, picture.reporting
    if count is None:
        return "members unknown"
    if reporting is None:
        return f"{counted(count, 'member')}, which of them report is unknown"
    return f"{counted(count, 'member')}, {reporting} of them report"


def status_lines(
    picture: Picture, backlog: Backlog, *, is_wide: bool = False
) -> list[str]:
    """Return the whole status of a group for people."""
    facts, standing, reports = picture.facts, picture.standing, picture.reports
    judge = Judge(picture)
    lines = [f"group {picture.group}: {facts.state}, {_members_text(picture)}"]
    lines += [f"not read: {one}" for one in picture.unread]
    if picture.ends is None:
        lines += ["holds: unknown"]
    else:
        lines += ["holds" if standing else "holds: none"]
    lines += columns(
        (*one.cells(is_wide=is_wide), _over_text(picture, [one])) for one in standing
    )
    silent = [(one.name, one.why) for one in judge.members if one.report is None]
    if reports or silent:
        lines.append("members")
        lines += columns(
            member_row(one, one.report, picture.ends)
            for one in sorted((*judge.members, *judge.others), key=lambda one: one.name)
            if one.report is not None
        )
        lines += columns(silent)
    lines += [f"  {judging.gone_text(one)}" for one in picture.gone]
    kept = [(one.client_id, line) for one in reports for line in one.kept]
    if kept:
        lines.append(
            "obeyed, but not on the topics, which were made again: resume SCOPE --owner"
        )
        lines += columns(kept)
    outages = [(one.client_id, line) for one in reports for line in one.outages]
    if outages:
        lines.append("paused by members' own workers")
        lines += columns(outages)
    if held := picture.held:
        lines.append("held partitions")
        most = len(held) if is_wide else 5 * _MANY
        lines += columns(held_rows(judge, held[:most], backlog))
        if len(held) > most:
            lines.append(f"  and {len(held) - most} more")
    return [*lines, *backlog.lines()]
