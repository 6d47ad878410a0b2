"""The table says what there is; everything else follows it."""

import re

from attrs import fields

from safeconsumer import events
from safeconsumer.events import counts
from safeconsumer.metrics import METRICS, Metric, figures, reading, table
from safeconsumer.worker import Stats
from safeconsumer.worker.durations import BOUNDS
from safeconsumer.worker.loop import OWNERS
from tests.harness.listing import each

NAME = re.compile(r"[a-z][a-z_]*[a-z]")
FORBIDDEN = {
    *("owner_name", "reason", "scope", "hold", "hold_id", "member", "member_id"),
    *("host", "key", "offset", "error", "partition"),
}
# Events of these levels that have a counter of their own.
COUNTED = {
    *("control_records_skipped", "control_topic_reset", "gates_opened_unread"),
    *("commit_rejected", "work_dropped", "work_paused"),
    *("breaker_opened", "breaker_closed", "unread_records_deleted"),
}


@each("metric", METRICS)
def test_a_name_says_what_it_is(metric: Metric) -> None:
    """A unit at its end, ``_total`` behind that of a counter, and plain letters."""
    assert NAME.fullmatch(metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    base = metric.name.removesuffix("_total")
    if metric.unit in {"seconds", "bytes"} or metric.kind != "counter":
        assert metric.unit is None or base.endswith(metric.unit) or _is_first(metric)
    for unit in ("seconds", "bytes"):
        assert base.endswith(unit) == (metric.unit == unit)
    assert metric.meaning.endswith(".")
    assert not {one.name for one in metric.labels} & FORBIDDEN


def _is_first(metric: Metric) -> bool:
    # "quiet_partitions" and "partitions", "group_members": the unit is the thing.
    return metric.unit in metric.name.split("_")


def test_names_are_there_once() -> None:
    """No two metrics have one name, here or among kafka-python's."""
    names = [one.name for one in METRICS]
    assert len(names) == len(set(names))
    known = [one.kafka for one in METRICS if one.kafka]
    assert len(known) == len(set(known))


def test_a_member_stays_below_a_hundred_series() -> None:
    """By the table's own bounds: consumer, control and worker together."""
    most = [one.most for one in table.of("consumer", "control", "worker")]
    assert None not in most
    assert sum(one or 0 for one in most) < 100


def test_everything_in_the_table_is_read() -> None:
    """And nothing else: of a consumer, and of a worker's numbers."""
    of_consumers = {one.name for one in table.of("consumer", "control")}
    assert set(figures._READ) == of_consumers
    assert set(reading._FIELDS) == {one.name for one in table.of("worker")}
    numbers = {one.name for one in fields(Stats)}
    elsewhere = {"gone"}  # its consumer's: deleted_unread_offsets_total
    untold = {"state", "paused", "poll_gap"}
    assert numbers - set(reading._FIELDS.values()) == untold | elsewhere


def test_labels_are_those_of_the_code() -> None:
    """Owners of a worker's holds, and the bounds of its histogram."""
    (owners,) = [one for one in METRICS if one.name == "worker_pause_seconds_total"]
    assert set(OWNERS) < set(owners.labels[0].values)
    assert len(BOUNDS) + 3 == table._HISTOGRAM_SERIES


def test_every_alarm_is_counted_once() -> None:
    """Each event of the level warning or error: as an alarm, or by its own counter."""
    every = [getattr(events, name) for name in events.__all__]
    loud = {
        one
        for one in every
        if isinstance(one, type)
        and issubclass(one, events.Event)
        and one.level in {"warning", "error"}
    }
    of_workers = {one.name for one in loud if issubclass(one, events.WorkerEvent)}
    others = {one.name for one in loud} - of_workers
    assert set(counts.ALARMS) == others - COUNTED
    assert set(counts.WORKER_ALARMS) == of_workers - COUNTED
