"""Puts a timeline into words: its title, its verdict, and what it leaves out."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from safeconsumer.audit.timeline.data import Bar, Held, Lane, Timeline
from safeconsumer.holds.explain import counted

# Characters that XML 1.0 cannot have, and lone surrogates, which UTF-8 cannot have.
_ILLEGAL = re.compile("[^\t -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def legal(text: str) -> str:
    """Return a text without the characters that XML or UTF-8 cannot have."""
    return _ILLEGAL.sub("\ufffd", text)


def title_of(timeline: Timeline) -> str:
    """Return the default title."""
    groups = sorted({lane.case.group or "" for lane in timeline.lanes} - {""})
    whose = f" of {', '.join(groups[:3])}" if groups else ""
    more = f" and {len(groups) - 3} more groups" if len(groups) > 3 else ""  # noqa: PLR2004 - named above
    return f"Deliveries and holds{whose}{more}"


def verdict_of(timeline: Timeline, trouble: str = "") -> tuple[str, str]:
    """Return the verdict in one line, and its look: good, bad or open."""
    if trouble:
        return f"not complete: {trouble}", "bad"
    limits = []
    if timeline.elsewhere:
        limits.append(f"{timeline.elsewhere:,} elsewhere")
    if timeline.unjudged:
        limits.append(f"not judged: {', '.join(timeline.unjudged)}")
    more = "".join(f", {one}" for one in limits)
    if timeline.violations:
        total = counted(sum(timeline.violations.values()), "broken promise")
        return f"\u2717 {total}{more}", "bad"
    good = "no promise broken" + " in this part" * (not timeline.is_whole)
    return (f"{good}{more}", "open") if more else (f"\u2713 {good}", "good")


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


def description_of(timeline: Timeline, trouble: str = "") -> str:
    """Describe the timeline for people who cannot see it."""
    verdict, _ = verdict_of(timeline, trouble)
    checks = "; ".join(f"{check}: {n}" for check, n in timeline.violations.items())
    held = sum(len(lane.held) for lane in timeline.lanes)
    more = f" {checks}." if checks else ""
    return (
        f"{summary_of(timeline)}; {held:,} holds. {verdict}.{more} One lane for each "
        "partition: holds above, deliveries as bars, owners at the foot."
    )


def notes_on(timeline: Timeline, column: float) -> Iterator[str]:
    """Yield what is left out; ``column`` is how many seconds one bar stands for."""
    yield (
        f"Deliveries are counted by {lasting(column)}, tall bars logarithmically. Not "
        "drawn: commits, producers, handlers; they are judged."
    )
    for check, whys in timeline.unjudged.items():
        where = counted(len(whys), "partition")
        yield f"Not judged: {check} on {where}, for {whys[0]}."
    undated = sum(one.at is None for lane in timeline.lanes for one in lane.findings)
    if undated:
        yield f"{undated:,} violations have no moment: they are counted at the right."
    if timeline.left_out:
        yield f"{timeline.left_out:,} more partitions were not asked for."
    before, after = timeline.start - timeline.origin, timeline.until - timeline.end
    if before > 0 or after > 0:
        yield (
            f"Left out: {lasting(max(0.0, before))} before and "
            f"{lasting(max(0.0, after))} after, and what was found there."
        )


def violations_of(lane: Lane) -> str:
    """Return the promises that were broken in a lane, and how often."""
    return ", ".join(f"{check} \u00d7{n:,}" for check, n in lane.violations.items())


def hold_in_words(held: Held) -> str:
    """Return a hold in one line."""
    owner = held.owner or "nobody named"
    lasts = lasting(held.end - held.start)
    return (
        f"{held.level.value} hold {held.scope} of {owner}, {lasts}, for {held.member}"
    )


def bar_in_words(bar: Bar) -> str:
    """Return the records of one column in one line."""
    held = f", {bar.wrong:,} of them while held" if bar.wrong else ""
    return f"{bar.count:,} records{held}, offsets {bar.first:,} to {bar.last:,}"


def lasting(seconds: float) -> str:
    """Return a duration in words: 20 ms, 4.5 s, 2 min 5 s, 3 h 20 min, 52 h."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:  # noqa: PLR2004 - of a minute
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - of an hour
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def shortened(text: str, most: int) -> str:
    """Return a text with its middle left out if it is longer than so many characters."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}\u2026{text[len(text) - half :]}"
