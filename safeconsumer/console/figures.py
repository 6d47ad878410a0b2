"""
``/metrics``: what the console knows of groups, for Prometheus.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen
from kafka.errors import KafkaError
from starlette.requests import Request
from starlette.responses import Response

from safeconsumer.console.desk import Desk
from safeconsumer.console.problems import Problem
from safeconsumer.console.views import PartitionRow, View
from safeconsumer.errors import ControlTopicError
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.judging import Judge, Seat
from safeconsumer.group.picture import Picture
from safeconsumer.group.why import Level
from safeconsumer.metrics import table
from safeconsumer.metrics.prometheus import Base, answers_of, family
from safeconsumer.metrics.reading import Sample

_METRICS = {one.name: one for one in table.of("console")}


@frozen
class _Figure:
    name: str
    labels: dict[str, str]
    value: float


def metrics(request: Request) -> Response:
    """
    Answer Prometheus; nothing of groups where what is known is too old.
    """
    desk: Desk = request.app.state.desk
    answer = answers_of(_Figures(desk))
    kind, text = answer(request.headers.get("accept", ""))
    return Response(text, media_type=kind)


class _Figures(Base):
    """
    One scrape's figures.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def describe(self) -> Iterable[Any]:
        """
        Return nothing, so that it is not asked before it is scraped.
        """
        return []

    def collect(self) -> Iterator[Any]:
        """
        Yield what is known now.
        """
        found: dict[str, list[Sample]] = {}
        for one in _all(self._desk, self._desk.snapshot()):
            found.setdefault(one.name, []).append(Sample(one.labels, one.value))
        for name, metric in _METRICS.items():
            if name in found:
                names = tuple(label.name for label in metric.labels)
                yield family(metric, names, found[name])


def _all(desk: Desk, snapshot: Snapshot) -> Iterator[_Figure]:
    yield _Figure("console_snapshot_age_seconds", {}, snapshot.age)
    if not snapshot.is_complete or snapshot.is_old:
        return
    shown = omitted = 0
    ours = [one for one in snapshot.pictures.values() if one.standing or one.reports]
    # Held ones first: they are what it is for.
    ours.sort(key=lambda one: (not one.standing, one.group))
    views = {
        one.group: desk.looked(snapshot, one.group) for one in ours if one.standing
    }
    limits = _retention(desk, views.values())
    for picture in ours:
        figures = list(_group(picture, views.get(picture.group), limits))
        if shown + len(figures) > table.MOST_CONSOLE_SERIES:
            omitted += len(figures)
            continue
        shown += len(figures)
        yield from figures
    yield _Figure("console_omitted_series", {}, omitted)


def _retention(desk: Desk, views: Iterable[View]) -> Mapping[str, float | None]:
    # One question for all of them, whose answer stands for a minute.
    held = (row for view in views for row in view.partitions if row.holds)
    names = sorted({row.tp.topic for row in held})
    try:
        return desk.asked(
            ("retention", *names), lambda operator: operator.retention(names)
        )
    except (ControlTopicError, KafkaError, OSError, Problem):
        return {}  # nobody can tell


def _group(
    picture: Picture, view: View | None, limits: Mapping[str, float | None]
) -> Iterator[_Figure]:
    group = {"group": picture.group}
    judge = Judge(picture)
    if picture.is_heard:
        states = dict.fromkeys(table.MEMBER_STATES, 0)
        for seat in judge.seats:
            states[_state(seat)] += 1
        for state, count in states.items():
            yield _Figure("group_members", {**group, "state": state}, count)
    if picture.ends is not None:
        yield from _holds(picture, group)
    if view is None:
        flowing = len({*picture.facts.partitions, *judge.owned()})
        counts = {**dict.fromkeys(table.PARTITION_STATES, 0), "flowing": flowing}
        yield from _partitions(counts, group)
        return
    counts = dict.fromkeys(table.PARTITION_STATES, 0)
    for row in view.partitions:
        counts[_partition_state(row)] += 1
    yield from _partitions(counts, group)
    held: dict[str, list[PartitionRow]] = {}
    for row in view.partitions:
        if row.holds:
            held.setdefault(row.tp.topic, []).append(row)
    yield from _topics(held, group)
    yield from _margin(picture, held, limits)


def _state(seat: Seat) -> str:
    if seat.report is None:
        return "silent"
    if seat.report.state != "ready":
        return "unavailable"
    return "obeys" if seat.obeys else "behind"


def _partition_state(row: PartitionRow) -> str:
    if not row.holds:
        return "flowing"
    return {Level.ALARM: "held_flowing", Level.QUIET: "quiet"}.get(row.level, "unknown")


def _partitions(counts: dict[str, int], group: dict[str, str]) -> Iterator[_Figure]:
    for state, count in counts.items():
        yield _Figure("group_partitions", {**group, "state": state}, count)


def _holds(picture: Picture, group: dict[str, str]) -> Iterator[_Figure]:
    endless = [one for one in picture.standing if one.hold and one.hold.ttl_ms is None]
    for source in table.SOURCES:
        labels = {**group, "source": source}
        holds = [one for one in picture.standing if one.source == source]
        unlimited = [one for one in endless if one.source == source]
        yield _Figure("group_holds", labels, len(holds))
        yield _Figure("group_unlimited_holds", labels, len(unlimited))
    since = [one.since for one in endless if one.since is not None]
    if since:
        name = "group_oldest_unlimited_hold_timestamp_seconds"
        yield _Figure(name, group, min(since))
    ends = [one.expires_at for one in picture.lasting if one.expires_at is not None]
    if ends:
        yield _Figure("group_next_expiry_timestamp_seconds", group, min(ends))


def _topics(
    held: dict[str, list[PartitionRow]], group: dict[str, str]
) -> Iterator[_Figure]:
    for topic, rows in held.items():
        labels = {**group, "topic": topic}
        yield _Figure("group_topic_held", labels, 1)
        lags = [one.lag for one in rows if one.lag is not None]
        if len(lags) == len(rows):
            yield _Figure("group_held_lag_records", labels, sum(lags))


def _margin(
    picture: Picture,
    held: Mapping[str, list[PartitionRow]],
    limits: Mapping[str, float | None],
) -> Iterator[_Figure]:
    now = picture.now
    if now is None:
        return
    margins = [
        hold.since + limit - now
        for topic, rows in held.items()
        if (limit := limits.get(topic)) is not None
        for row in rows
        for hold in row.holds
        if hold.since is not None
    ]
    if margins:
        labels = {"group": picture.group}
        yield _Figure("group_retention_margin_seconds", labels, min(margins))
