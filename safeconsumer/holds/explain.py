"""Explains in words why a partition is quiet."""

from collections.abc import Collection
from datetime import UTC, datetime
from itertools import islice

from safeconsumer.holds.hold import WHOLE, Hold, Lifetime, with_beneath
from safeconsumer.holds.scope import Partition, TopicPartition
from safeconsumer.holds.view import View

# datetime supports years up to 9999; the very last day is avoided because of time
# zones.
_END_OF_CALENDAR = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def explain_lines(view: View, tp: TopicPartition, now: float) -> tuple[str, ...]:
    """
    Return one line per hold that covers the partition, narrowest scope first.

    A plain pause, the strict hold in its ``beneath`` and a closed gate get a line each.
    If nothing covers the partition and it is not assigned here, a single line says so.

    Args:
        view: the holds and the quiet partitions.
        tp: the partition.
        now: the current time on the monotonic clock, in seconds.
    """
    lines = [hold_line(one) for one in with_beneath(view.holds.covering(tp), now)]
    if tp in view.gates:
        lines.append(f"gate: {view.gates[tp]}")
    if not lines and not view.owns(tp):
        lines.append(f"{Partition(*tp)} is not assigned to this consumer")
    return tuple(lines)


def counted(count: int, what: str) -> str:
    """Return ``1 member``, ``2 members``, ``1,000 members``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def first_of(names: Collection[str], most: int = 5) -> str:
    """Return the first names as text, followed by the number of further names."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more


def hold_line(hold: Hold) -> str:
    """Return a line that describes one hold, with times in UTC."""
    parts = [f"{hold.scope} held by {hold.owner}", f"since {utc(hold.placed_at)}"]
    if hold.reason:
        parts.append(f"because {hold.reason}")
    parts.append(_until(hold))
    return ", ".join(parts)


def _until(hold: Hold) -> str:
    if hold.owner == WHOLE:
        lasts = "until the application's next resume"
    elif hold.lifetime is Lifetime.UNTIL_RESUMED:
        lasts = "until resumed" if hold.expires_at is None else ""
    elif hold.lifetime is Lifetime.PLAIN:
        lasts = "until a join leaves it out"
    else:
        lasts = "while assigned here"
    if hold.expires_at is None:
        return lasts
    limit = f"until {utc(hold.expires_at)}"
    return f"{lasts}, at most {limit}" if lasts else limit


def printable(text: str) -> str:
    """
    Return text with every invisible character shown as an escape.

    Names come from other programs and people. An escape sequence in a name could
    control a terminal, and a line break could fake a line of output.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def utc(seconds: float) -> str:
    """Return a time, given in seconds since 1970, as human-readable text."""
    if seconds >= _END_OF_CALENDAR:
        return "a time beyond the year 9999"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
