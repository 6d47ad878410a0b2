"""Formats the output of commands about groups, without any input or output."""

from collections.abc import Iterable, Iterator, Sequence

from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import movements, summaries
from safeconsumer.group.partitions import folded, partitions_text
from safeconsumer.group.verdicts import (
    HOLD_ENDED,
    MAY_HAVE_ENDED,
    Level,
    Verdict,
    lost_stream_text,
)
from safeconsumer.group.view import UNCOMMITTED, Member, Row, View
from safeconsumer.holds.explain import counted, printable

_MANY = 100
_ENDED = {HOLD_ENDED.words, MAY_HAVE_ENDED.words}


def columns(
    rows: Iterable[Sequence[str]], indent: str = "  ", widths: list[int] | None = None
) -> list[str]:
    """
    Return rows as printable lines, each column as wide as its widest cell.

    Args:
        rows: rows with the same number of cells.
        indent: the text at the start of each line.
        widths: the widths of the columns in earlier rows, which the call updates; for
            rows that are printed in pieces.
    """
    rows = [tuple(map(printable, row)) for row in rows]
    if not rows:
        return []
    before = widths or [0] * len(rows[0])
    now = [
        max(least, *map(len, cells))
        for least, cells in zip(before, zip(*rows, strict=True), strict=True)
    ]
    if widths is not None:
        widths[:] = now
    return [
        indent
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, now, strict=True)
        ).rstrip()
        for row in rows
    ]


def status_lines(view: View) -> list[str]:
    """Return the whole status of a group as lines for people."""
    lines = [f"group {view.group}: {view.facts.state}, {_members_text(view)}"]
    lines += [f"not read: {one}" for one in view.unread]
    lines.append(verdict_text(view.verdict))
    if view.holds:
        lines.append("holds")
    lines += _hold_lines(view)
    if view.members:
        lines.append("members")
    lines += columns(map(_member_row, view.members))
    lines += [f"  {lost_stream_text(one)}" for one in view.lost_streams]
    if held := view.held:
        lines.append("held partitions")
        lines += _first_rows([_held_row(one, view) for one in held])
    lines += _reset_lines(view)
    if unasked := view.without_lag:
        lines.append(f"lag unknown: {partitions_text(unasked)} cannot be queried")
    elif view.facts.committed and (several := view.uncommitted):
        lines.append(f"lag unknown: {UNCOMMITTED} for {partitions_text(several)}")
    elif view.whole_lag is not None:
        lines.append(f"lag {view.whole_lag:,}")
    return lines


def _first_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from columns(rows[:_MANY])
    if len(rows) > _MANY:
        yield f"  and {len(rows) - _MANY} more: -o json shows all"


def _reset_lines(view: View) -> Iterator[str]:
    found = movements(view)
    if found:
        yield "resets"
        yield from (f"  {line}" for line in summaries(found))
        left = [one for one in found if not one.is_moved]
        yield from _first_rows([(one.name, one.sentence()) for one in left])


def _hold_lines(view: View) -> Iterator[str]:
    """
    Yield a line for each hold, then why some holds have or may have ended.

    If there are many holds, those that differ only in partition share a line.
    """
    over: dict[str, list[HoldRecord]] = {}
    rows, scopes = [], []
    for one in view.holds:
        verdict = view.ended([one])
        words = "" if verdict is None else verdict.words
        rows.append((*one.cells(), words))
        scopes.append(one.scope)
        # If the group's verdict is the same, the group's line gives the reason.
        if words and words != view.verdict.words:
            over.setdefault(words, []).append(one)
    yield from _first_rows(folded(rows, scopes))
    for holds in over.values():
        if (verdict := view.ended(holds)) is not None:
            yield f"  {verdict_text(verdict)}"


def short_verdict(verdict: Verdict) -> str:
    """Return a verdict as text for a cell next to a hold's expiry."""
    return verdict.words if verdict.words in _ENDED else verdict_text(verdict)


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict as text: its label, and its sentence if it has one."""
    return ": ".join(filter(None, (verdict.words, verdict.reason)))


def _members_text(view: View) -> str:
    count, reporting = view.facts.member_count, view.reporting
    if count is None:
        return "members unknown"
    if not count:
        return "0 members"
    if reporting is None:
        return f"{counted(count, 'member')}; which of them report is unknown"
    return f"{counted(count, 'member')}, {reporting_text(reporting)}"


def reporting_text(count: int) -> str:
    """Return text saying how many members report, such as ``1 reports``."""
    return f"{count} {'reports' if count == 1 else 'report'}"


def _member_row(one: Member) -> tuple[str, ...]:
    count = "unknown" if one.quiet_count is None else f"{one.quiet_count}"
    quiet = f"{count} of {len(one.owned)} quiet"
    return one.name, one.host, one.verdict.words, quiet, one.more


def _held_row(one: Row, view: View) -> tuple[str, ...]:
    lag = view.lag_words(one)
    lag = lag if lag == UNCOMMITTED else f"lag {lag}"
    owner = "owner unknown" if one.owner is None else one.owner or "nobody"
    is_quiet = one.verdict.level is Level.QUIET
    is_over = one.verdict.words in _ENDED  # the hold lines give the reason
    why = "" if is_quiet or is_over else one.own_reason
    return one.name, one.verdict.words, owner, lag, why
