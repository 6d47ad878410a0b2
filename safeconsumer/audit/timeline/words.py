"""Puts a timeline into words: its title, its verdict, and what it leaves out."""

from collections.abc import Iterator
from datetime import UTC, datetime

from safeconsumer.audit.timeline.data import Held, Lane, Run, Timeline
from safeconsumer.holds.explain import counted


def title_of(timeline: Timeline) -> str:
    """Return the title."""
    groups = sorted({lane.case.group or "" for lane in timeline.lanes} - {""})
    return f"Deliveries and holds of {', '.join(groups) or 'no group'}"


def verdict_of(timeline: Timeline, trouble: str) -> str:
    """
    Return the verdict in one line.

    It begins with a cross where promises were broken or journals cannot be read, and
    with a tick only where every check was judged, and nothing was found anywhere.
    """
    limits = []
    if timeline.elsewhere:
        limits.append(f"{timeline.elsewhere:,} elsewhere")
    if timeline.unjudged:
        limits.append(f"not judged: {', '.join(timeline.unjudged)}")
    more = "".join(f", {one}" for one in limits)
    if trouble:
        return f"\u2717 not complete: {trouble}"
    if timeline.violations:
        total = counted(sum(timeline.violations.values()), "broken promise")
        return f"\u2717 {total}: {_times(timeline.violations)}{more}"
    good = "no promise broken" + " in this part" * (not timeline.is_whole)
    return f"{good}{more}" if more else f"\u2713 {good}"


def summary_of(timeline: Timeline) -> str:
    """Return the size of the timeline, in one line."""
    began = datetime.fromtimestamp(timeline.start, UTC)
    records = sum(lane.records for lane in timeline.lanes)
    return (
        f"{counted(len(timeline.lanes), 'partition')}, "
        f"{counted(len(timeline.members), 'member')}, "
        f"{lasting(timeline.end - timeline.start)} from {began:%Y-%m-%d %H:%M:%S} UTC, "
        f"{records:,} records delivered"
    )


def notes_on(timeline: Timeline, column: float) -> Iterator[str]:
    """Yield what is to be seen, and what is not; a bar stands for ``column`` seconds."""
    yield (
        "In each lane: holds, shaded while they bind; records, red while held; owners, "
        "with a cross where one was lost."
    )
    yield (
        f"Bars are records by {lasting(column)}, logarithmically. Not drawn: commits, "
        "producers, handlers; they are judged."
    )
    for check, whys in timeline.unjudged.items():
        where = counted(len(whys), "partition")
        yield f"Not judged: {check} on {where}, for {whys[0]}."


def lane_in_words(lane: Lane) -> str:
    """Return what is counted in a lane, in one line."""
    found = [f"{lane.records:,} records"]
    if lane.violations:
        found.append(_times(lane.violations))
    if lane.unjudged:
        found.append(f"not judged: {', '.join(lane.unjudged)}")
    return ", ".join(found)


def hold_in_words(held: Held) -> str:
    """Return a hold in one line."""
    owner = held.owner or "nobody named"
    return (
        f"hold {held.scope} of {owner}, {lasting(held.end - held.start)}, "
        f"for {held.member}"
    )


def bar_in_words(bar: Run) -> str:
    """Return the records of one column in one line."""
    held = f", {bar.wrong:,} of them while held" if bar.wrong else ""
    return f"{bar.count:,} records{held}, offsets {bar.first:,} to {bar.last:,}"


def lasting(seconds: float) -> str:
    """Return a duration in words."""
    return f"{seconds:,.3f} s"


def _times(violations: dict[str, int]) -> str:
    return ", ".join(f"{check} \u00d7{n:,}" for check, n in violations.items())
