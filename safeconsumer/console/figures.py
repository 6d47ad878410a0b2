"""Computes the console's group metrics for Prometheus."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

from safeconsumer.console.state import State
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.verdicts import SILENT, Level, Verdict
from safeconsumer.group.view import Row, View
from safeconsumer.metrics import table
from safeconsumer.metrics.prometheus import Base, Sample, family

_METRICS = {one.name: one for one in table.of("console")}

# Seconds that a scrape waits for the first answer from the cluster; Prometheus allows
# ten seconds for a scrape.
_FIRST_ANSWER_SECONDS = 1.0

# Seconds; a hold that expires within this time, and was written longer ago than this,
# counts as expiring.
_SOON = 900.0

# By topic, the seconds after which it deletes records; None if it does not delete
# records by age.
_Limits: TypeAlias = Mapping[str, float | None]


# A metric's name and one of its samples.
_Figure: TypeAlias = tuple[str, Sample]


class Figures(Base):
    """
    The console's metrics as a collector for a prometheus-client registry.

    Args:
        state: the console's state.

    Thread rules: any thread may use this.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def describe(self) -> Iterable[Any]:
        """Return nothing, so that the registry does not collect values before a scrape."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics."""
        found: dict[str, list[Sample]] = {}
        for name, sample in _all(self._state, self._state.snapshot()):
            found.setdefault(name, []).append(sample)
        for name, metric in _METRICS.items():
            if name in found:
                yield family(metric, found[name])


def _all(state: State, snapshot: Snapshot) -> Iterator[_Figure]:
    is_current = snapshot.is_complete and not snapshot.is_old
    figures = list(_groups(state, snapshot)) if is_current else []
    yield "console_snapshot_age_seconds", Sample({}, snapshot.age)
    if not snapshot.is_old:  # the snapshot may have become too old by now
        yield from figures


def _groups(state: State, snapshot: Snapshot) -> Iterator[_Figure]:
    views = sorted(snapshot.views.items())
    rows = [row for _, view in views if view.holds for row in view.held]
    limits = _limits(state, {row.tp.topic for row in rows})
    for _, view in views:
        if view.holds:
            yield from _of_held(view, limits)
        elif view.reports:
            yield from _of_group(view, {_free_state(view): len(view.rows)})


def _limits(state: State, topics: AbstractSet[str]) -> _Limits:
    names = sorted(topics)
    if not names:
        return {}
    found = state.questions.asked(
        ("retention", *names), lambda one: one.retention(names), _FIRST_ANSWER_SECONDS
    )
    state.limits.update(found or {})  # without an answer, keep the last limits
    return state.limits


def _of_held(view: View, limits: _Limits) -> Iterator[_Figure]:
    group, free = {"group": view.group}, _free_state(view)
    counts = Counter(_partition_state(row, free) for row in view.partitions)
    yield from _of_group(view, counts)
    if view.held or view.verdict.level is not Level.WAITING:
        yield "group_quiet", Sample(group, int(view.verdict.level is Level.QUIET))
    lags: dict[str, list[int | None]] = {}
    for row in view.held:
        lags.setdefault(row.tp.topic, []).append(row.lag)
    for topic, each in lags.items():
        labels = {**group, "topic": topic}
        yield "group_topic_held", Sample(labels, 1)
        known = [one for one in each if one is not None]
        if len(known) == len(each):
            yield "group_held_lag_records", Sample(labels, sum(known))
    margins = [
        hold.since + limit - view.times.here
        for row in view.held
        if (limit := limits.get(row.tp.topic)) is not None
        for hold in row.holds
        if hold.since is not None
    ]
    if margins:
        yield "group_retention_margin_seconds", Sample(group, min(margins))


def _of_group(view: View, partitions: Mapping[str, int]) -> Iterator[_Figure]:
    members = Counter(_member_state(one.verdict) for one in view.present)
    every: list[tuple[str, tuple[str, ...], Mapping[str, int]]] = []
    if view.facts.member_count is not None:
        every.append(("group_members", table.MEMBER_STATES, members))
    if not view.has_unknown_rows:
        every.append(("group_partitions", table.PARTITION_STATES, partitions))
    for name, states, counts in every:
        for state in states:
            labels = {"group": view.group, "state": state}
            yield name, Sample(labels, counts.get(state, 0))
    if view.ends is not None:
        yield from _holds(view)


def _member_state(verdict: Verdict) -> str:
    # Label values are single words, which alerts refer to.
    return "silent" if verdict.words == SILENT.words else verdict.words


def _free_state(view: View) -> str:
    return "unknown" if view.ends is None else "flowing"


def _partition_state(row: Row, free: str) -> str:
    if not row.holds:
        return free
    level = row.verdict.level
    return {Level.ALARM: "held_flowing", Level.QUIET: "quiet"}.get(level, "unknown")


def _holds(view: View) -> Iterator[_Figure]:
    group = {"group": view.group}
    endless = [one for one in view.holds if one.hold and one.hold.ttl_ms is None]
    soon = [one for one in view.lasting if _ends_soon(one, view.times.here)]
    yield "group_holds", Sample(group, len(view.holds))
    yield "group_unlimited_holds", Sample(group, len(endless))
    yield "group_expiring_holds", Sample(group, len(soon))
    for name, times in (
        ("oldest_unlimited_hold", [one.since for one in endless]),
        ("next_expiry", [view.next_expiry]),
    ):
        if known := [one for one in times if one is not None]:
            yield f"group_{name}_timestamp_seconds", Sample(group, min(known))


def _ends_soon(hold: HoldRecord, now: float) -> bool:
    """Return whether a hold expires soon although it was not written recently."""
    ends, written = hold.expires_at, hold.at
    if ends is None or written is None:
        return False
    return written + _SOON < now < ends < now + _SOON
