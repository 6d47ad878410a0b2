"""Has the console's figures of groups, for Prometheus."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from attrs import frozen

from safeconsumer.console.state import State
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.verdicts import SILENT, Level, Verdict
from safeconsumer.group.view import Row, View
from safeconsumer.metrics import table
from safeconsumer.metrics.prometheus import Base, family
from safeconsumer.metrics.reading import Sample

_METRICS = {one.name: one for one in table.of("console")}

# Seconds that a scrape waits for a first answer; Prometheus gives a scrape ten.
_MOMENT = 1.0

# Seconds before the end of a hold from which on somebody should know of it.
_SOON = 900.0

_Topics: TypeAlias = Mapping[str, Sequence[Row]]
# Seconds after which topics delete records, by name; None if age deletes none.
_Limits: TypeAlias = Mapping[str, float | None]


@frozen
class _Figure:
    name: str
    labels: dict[str, str]
    value: float


class Figures(Base):
    """
    The console's figures, for a registry of prometheus-client.

    Args:
        state: the console's state.

    Thread rules: any.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def describe(self) -> Iterable[Any]:
        """Return nothing, so that the registry reads nothing before the first scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the present figures."""
        found: dict[str, list[Sample]] = {}
        for one in _all(self._state, self._state.snapshot()):
            found.setdefault(one.name, []).append(Sample(one.labels, one.value))
        for name, metric in _METRICS.items():
            if name in found:
                yield family(metric, found[name])


def _all(state: State, snapshot: Snapshot) -> Iterator[_Figure]:
    is_current = snapshot.is_complete and not snapshot.is_old
    figures = list(_groups(state, snapshot)) if is_current else []
    yield _Figure("console_snapshot_age_seconds", {}, snapshot.age)
    if not snapshot.is_old:  # it may have become old in the meantime
        yield from figures


def _groups(state: State, snapshot: Snapshot) -> Iterator[_Figure]:
    views = {group: one for group, one in snapshot.views.items() if one.holds}
    held = {group: _held_topics(view.held) for group, view in sorted(views.items())}
    limits = _limits(state, {topic for topics in held.values() for topic in topics})
    for group, topics in held.items():
        yield from _of_held(views[group], topics, limits)
        for topic, rows in topics.items():
            labels = {"group": group, "topic": topic}
            yield _Figure("group_topic_held", labels, 1)
            yield from _topic_lag(labels, rows)
    for group, view in sorted(snapshot.views.items()):
        if group not in held and view.reports:
            yield from _of_group(view, {_free_state(view): len(view.rows)})


def _limits(state: State, topics: AbstractSet[str]) -> _Limits:
    names = sorted(topics)
    if not names:
        return {}
    found = state.questions.asked(
        ("retention", *names), lambda one: one.retention(names), _MOMENT
    )
    state.limits.update(found or {})  # of what is not told again the last answer stays
    return state.limits


def _held_topics(rows: Iterable[Row]) -> _Topics:
    held: dict[str, list[Row]] = {}
    for row in rows:
        held.setdefault(row.tp.topic, []).append(row)
    return held


def _of_held(view: View, topics: _Topics, limits: _Limits) -> Iterator[_Figure]:
    free = _free_state(view)
    counts = Counter(_partition_state(row, free) for row in view.partitions)
    yield from _of_group(view, counts)
    if view.held or view.verdict.level is not Level.WAITING:
        is_quiet = view.verdict.level is Level.QUIET
        yield _Figure("group_quiet", {"group": view.group}, int(is_quiet))
    yield from _margin(view, topics, limits)


def _of_group(view: View, partitions: Mapping[str, int]) -> Iterator[_Figure]:
    members = Counter(_member_state(one.verdict) for one in view.present)
    for name, states, counts in (
        ("group_members", table.MEMBER_STATES, members),
        ("group_partitions", table.PARTITION_STATES, partitions),
    ):
        for state in states:
            labels = {"group": view.group, "state": state}
            yield _Figure(name, labels, counts.get(state, 0))
    yield from _holds(view)


def _member_state(verdict: Verdict) -> str:
    # A label's value is one word, and alerts name it.
    return "silent" if verdict.words == SILENT.words else verdict.words


def _free_state(view: View) -> str:
    return "unknown" if view.ends is None else "flowing"


def _partition_state(row: Row, free: str) -> str:
    if not row.holds:
        return free
    level = row.verdict.level
    return {Level.ALARM: "held_flowing", Level.QUIET: "quiet"}.get(level, "unknown")


def _holds(view: View) -> Iterator[_Figure]:
    if view.ends is None:
        return
    group = {"group": view.group}
    endless = [one for one in view.holds if one.hold and one.hold.ttl_ms is None]
    yield _Figure("group_holds", group, len(view.holds))
    yield _Figure("group_unlimited_holds", group, len(endless))
    since = [one.since for one in endless if one.since is not None]
    if since:
        name = "group_oldest_unlimited_hold_timestamp_seconds"
        yield _Figure(name, group, min(since))
    ends = [one.expires_at for one in view.lasting if one.expires_at is not None]
    if ends:
        yield _Figure("group_next_expiry_timestamp_seconds", group, min(ends))
    now = view.times.here
    soon = [one for one in view.lasting if _ends_soon(one, now)]
    yield _Figure("group_expiring_holds", group, len(soon))


def _ends_soon(hold: HoldRecord, now: float) -> bool:
    """Tell whether a hold ends soon, and nobody has chosen that end just now."""
    ends, written = hold.expires_at, hold.at
    if ends is None or written is None:
        return False
    return written + _SOON < now < ends < now + _SOON


def _topic_lag(labels: dict[str, str], rows: Sequence[Row]) -> Iterator[_Figure]:
    lags = [one.lag for one in rows if one.lag is not None]
    if len(lags) == len(rows):
        yield _Figure("group_held_lag_records", labels, sum(lags))


def _margin(view: View, topics: _Topics, limits: _Limits) -> Iterator[_Figure]:
    now = view.times.here
    margins = [
        hold.since + limit - now
        for topic, rows in topics.items()
        if (limit := limits.get(topic)) is not None
        for row in rows
        for hold in row.holds
        if hold.since is not None
    ]
    if margins:
        labels = {"group": view.group}
        yield _Figure("group_retention_margin_seconds", labels, min(margins))
