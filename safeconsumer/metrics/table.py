"""
Defines all metrics: name, type, unit, labels, meaning, and the most series of each.

Prometheus, OpenTelemetry, kafka-python's own ``metrics()``, the reference page, the
dashboard and their tests are made from this table. Owners' names, reasons, scopes,
hold ids, members, hosts, keys, offsets and error texts are never labels.
"""

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from attrs import field, frozen

from safeconsumer.events.counts import ALARMS, CHANGES, MOVES, WISHES, WORKER_ALARMS
from safeconsumer.holds.hold import KINDS

PREFIX = "safeconsumer_"
CONSUMER_LABELS = ("client_id", "group")
"""
Labels of consumers' and workers' metrics, if several consumers are read together.
"""
MOST_CONSOLE_SERIES = 1000
"""
The largest number of series of groups that a console shows; it counts the others.
"""

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Source: TypeAlias = Literal["consumer", "control", "worker", "spark", "console"]
Unit: TypeAlias = Literal[
    "seconds", "bytes", "records", "partitions", "offsets", "topics", "members"
]

# Units of UCUM; the others are counted things, which UCUM writes in braces.
_UNITS = {"seconds": "s", "bytes": "By"}
# Series of a worker's histogram: results.BOUNDS, +Inf, the sum and the count.
_HISTOGRAM_SERIES = 15
# The owners of a worker's own holds.
_WORKER_OWNERS = (
    "worker:backpressure",
    "worker:retry",
    "worker:drain",
    "worker:floor",
    "worker:unreadable",
    "worker:outage",
    "worker:breaker",
)
MEMBER_STATES = ("obeys", "behind", "unavailable", "silent", "unknown")
PARTITION_STATES = ("flowing", "quiet", "held_flowing", "unknown")
SOURCES = ("operator", "group")


@frozen
class Label:
    """
    Distinguishes the values of one metric.

    Attributes:
        name: the label's name.
        values: all its values; empty if they depend on the cluster.
    """

    name: str
    values: tuple[str, ...] = ()


@frozen(kw_only=True)
class Metric:
    """
    A metric of the table.

    Attributes:
        name: its name without the prefix; it ends in its unit, and in ``_total`` if it
            is a counter.
        source: the object that has it: a ``consumer``, one with ``control``, a
            ``worker``, a query of ``spark`` or the ``console``.
        kind: Prometheus's name of its type.
        unit: the unit of its values; None for plain numbers, and for 0 and 1.
        meaning: describes it for people.
        labels: the labels that distinguish its values.
        kafka: its name among kafka-python's metrics; None if it is not there, since
            those have no labels. KIP-1304's names become aliases here once that is
            accepted.
    """

    name: str
    source: Source
    kind: Kind
    meaning: str
    unit: Unit | None = None
    labels: tuple[Label, ...] = field(factory=tuple)
    kafka: str | None = None

    @property
    def full_name(self) -> str:
        """Its name in Prometheus."""
        return f"{PREFIX}{self.name}"

    @property
    def most(self) -> int | None:
        """
        The largest number of series that one member or console has of it.

        It is None if this depends on the cluster.
        """
        if any(not one.values for one in self.labels):
            return None
        if self.kind == "histogram":
            return _HISTOGRAM_SERIES
        return math.prod(len(one.values) for one in self.labels)


def _consumer() -> Iterator[Metric]:
    def metric(name: str, kind: Kind, meaning: str, **more: object) -> Metric:
        return Metric(name=name, source="consumer", kind=kind, meaning=meaning, **more)  # type: ignore[arg-type]  # attrs' fields, by name

    kind = Label("kind", KINDS)
    yield metric(
        "consumer_assigned_partitions",
        "gauge",
        "Partitions that are assigned to the consumer.",
        unit="partitions",
        kafka="assigned-partitions",
    )
    yield metric(
        "consumer_quiet_partitions",
        "gauge",
        "Assigned partitions whose records are not delivered: a hold covers them, or "
        "they wait for the control topics or the end of a poll.",
        unit="partitions",
        kafka="quiet-partitions",
    )
    yield metric(
        "consumer_last_poll_timestamp_seconds",
        "gauge",
        "When the consumer last began a poll(), or continued to wait in one, since the "
        "epoch; max.poll.interval.ms limits its age. There is no value before the "
        "first poll.",
        unit="seconds",
    )
    yield metric(
        "parked_bytes",
        "gauge",
        "Fetched data of quiet partitions that waits for their resume.",
        unit="bytes",
        kafka="parked-bytes",
    )
    yield metric(
        "holds",
        "gauge",
        "Holds in force, by who placed them: local calls, a worker, the group's "
        "members, operators.",
        labels=(kind,),
        kafka="holds",
    )
    yield metric(
        "holds_oldest_timestamp_seconds",
        "gauge",
        "When the oldest hold in force of each kind was placed, since the epoch; there "
        "is no value without a hold.",
        unit="seconds",
        labels=(kind,),
    )
    yield metric(
        "hold_changes_total",
        "counter",
        "Holds placed or changed, removed, expired, and ended with the assignment; a "
        "worker's own holds are not counted, see worker_pause_seconds_total.",
        labels=(Label("kind", WISHES), Label("change", CHANGES)),
        kafka="hold-changes-total",
    )
    yield metric(
        "rebalances_total",
        "counter",
        "Completed joins of the group.",
        kafka="rebalances-total",
    )
    yield metric(
        "partition_moves_total",
        "counter",
        "Partitions that were assigned, revoked, or found lost when the consumer "
        "joined the group.",
        labels=(Label("how", MOVES),),
    )
    yield metric(
        "purged_bytes_total",
        "counter",
        "Fetched data thrown away because the ownership of its partition had ended.",
        unit="bytes",
        kafka="purged-bytes-total",
    )
    yield metric(
        "parked_dropped_bytes_total",
        "counter",
        "Parked data beyond parked_max_bytes, which was dropped and is fetched again.",
        unit="bytes",
        kafka="parked-dropped-bytes-total",
    )
    yield metric(
        "deleted_unread_offsets_total",
        "counter",
        "Offsets whose records were deleted before they were read, by retention for "
        "example.",
        unit="offsets",
        kafka="deleted-unread-offsets-total",
    )
    yield metric(
        "alarms_total",
        "counter",
        "Events of a consumer with the level warning or error that no other counter "
        "counts.",
        labels=(Label("event", ALARMS),),
        kafka="alarms-total",
    )
    yield metric(
        "hook_failures_total",
        "counter",
        "Times a hook of the consumer raised.",
        kafka="hook-failures-total",
    )


def _control() -> Iterator[Metric]:
    def metric(name: str, kind: Kind, meaning: str, **more: object) -> Metric:
        return Metric(name=name, source="control", kind=kind, meaning=meaning, **more)  # type: ignore[arg-type]  # attrs' fields, by name

    yield metric(
        "control_ready",
        "gauge",
        "1 if the control topics are read to their end, 0 if not; there is no value "
        "once the consumer is closed.",
    )
    yield metric(
        "control_gated_partitions",
        "gauge",
        "Assigned partitions that wait until the control topics are read.",
        unit="partitions",
    )
    yield metric(
        "control_skipped_records_total",
        "counter",
        "Records of the control topics that could not be read and were skipped.",
        unit="records",
    )
    yield metric(
        "control_resets_total",
        "counter",
        "Times a control topic was recreated or truncated.",
    )
    yield metric(
        "gates_opened_unread_total",
        "counter",
        'Partitions that flow although control topics are unread: unavailable="run".',
    )


def _worker() -> Iterator[Metric]:
    def metric(name: str, kind: Kind, meaning: str, **more: object) -> Metric:
        return Metric(
            name=f"worker_{name}",
            source="worker",
            kind=kind,
            meaning=meaning,
            **more,  # type: ignore[arg-type]  # attrs' fields, by name
        )

    yield metric(
        "partitions",
        "gauge",
        "Partitions of which a worker has uncompleted records.",
        unit="partitions",
    )
    yield metric(
        "queued_records",
        "gauge",
        "Polled records that wait for a handler.",
        unit="records",
    )
    yield metric(
        "running_records",
        "gauge",
        "Records that handlers are working on now.",
        unit="records",
    )
    yield metric(
        "held_bytes",
        "gauge",
        "Bytes of the polled records that wait for a handler or are in one.",
        unit="bytes",
    )
    yield metric(
        "done_total",
        "counter",
        "Records that a worker completed: handled, written as dead letters, or "
        "skipped.",
    )
    yield metric("retries_total", "counter", "Times a worker tried a record again.")
    yield metric(
        "dead_letters_total",
        "counter",
        "Records that failed permanently and were acknowledged as dead letters.",
    )
    yield metric(
        "skipped_total", "counter", "Records that failed permanently and were skipped."
    )
    yield metric(
        "dropped_total",
        "counter",
        "Polled records dropped in a rebalance or at a stop; the next owner of their "
        "partitions gets them again.",
    )
    yield metric(
        "leaked_total",
        "counter",
        "Records that a poll gave a worker in spite of its own hold; a value above 0 "
        "is a defect.",
    )
    yield metric(
        "refetched_total",
        "counter",
        "Records that waited and were forgotten, to make room for partitions that had "
        "none; they are fetched again.",
    )
    yield metric("commits_total", "counter", "Commits of a worker that succeeded.")
    yield metric(
        "commits_failed_total",
        "counter",
        "Commits of a worker that were refused or not sent.",
    )
    yield metric(
        "commits_failing_seconds",
        "gauge",
        "For how long no commit of a worker has succeeded although there is something "
        "to commit; 0 while commits succeed. It also counts the time in which a worker "
        "handles nothing because its first commit fails.",
        unit="seconds",
    )
    yield metric(
        "commit_lag_offsets",
        "gauge",
        "Offsets that a worker has completed but not committed.",
        unit="offsets",
    )
    yield metric(
        "lag_records",
        "gauge",
        "Records that a worker has not completed, and offsets that it has not polled, "
        "by the last fetches. There is no value while a partition was never fetched.",
        unit="records",
    )
    yield metric(
        "span_records",
        "gauge",
        "The longest distance, among a worker's partitions, from the first uncompleted "
        "record to the last polled one.",
        unit="records",
    )
    yield metric("pauses_total", "counter", "Times a handler asked for a pause.")
    yield metric(
        "breaker_opened_total", "counter", "Times a worker's breaker stopped a topic."
    )
    yield metric(
        "breaker_open_topics",
        "gauge",
        "Topics that a worker's breaker keeps stopped now.",
        unit="topics",
    )
    yield metric(
        "pause_seconds_total",
        "counter",
        "For how long the worker held anything in the name of this owner.",
        unit="seconds",
        labels=(Label("owner", _WORKER_OWNERS),),
    )
    yield metric(
        "handler_seconds",
        "histogram",
        "How long handlers took for a record, failed or not; each record of a batch "
        "counts with the batch's mean.",
        unit="seconds",
    )
    yield metric(
        "drain_seconds_total",
        "counter",
        "How long a worker waited for running handlers, before rebalances and stops.",
        unit="seconds",
    )
    yield metric(
        "last_poll_timestamp_seconds",
        "gauge",
        "When a worker's loop last ran, since the epoch; there is no value before it "
        "runs, and after it has ended as it was asked to.",
        unit="seconds",
    )
    yield metric(
        "alarms_total",
        "counter",
        "Events of a worker with the level warning or error that no other counter "
        "counts.",
        labels=(Label("event", WORKER_ALARMS),),
    )
    yield metric(
        "hook_failures_total",
        "counter",
        "Times a worker's on_event raised, or the code that makes its spans.",
    )


def _spark() -> Iterator[Metric]:
    def metric(name: str, kind: Kind, meaning: str, unit: Unit | None = None) -> Metric:
        return Metric(
            name=f"spark_{name}",
            source="spark",
            kind=kind,
            meaning=meaning,
            unit=unit,
            labels=(Label("query"),),
        )

    yield metric(
        "held_partitions",
        "gauge",
        "Partitions that the last plan of a query did not read because they are held.",
        "partitions",
    )
    yield metric(
        "held_lag_offsets",
        "gauge",
        "How many offsets the held partitions of a query are behind the ends of their "
        "logs.",
        "offsets",
    )
    yield metric(
        "undecided",
        "gauge",
        "1 if it is unknown what is held, so that a query reads nothing; otherwise 0.",
    )
    yield metric(
        "batches_total",
        "counter",
        "Batches of a query that read something, since the listener was added.",
    )
    yield metric(
        "read_records_total",
        "counter",
        "Records of all sources that a query read, since the listener was added.",
    )


def _console() -> Iterator[Metric]:
    group = Label("group")

    def metric(
        name: str, meaning: str, *labels: Label, unit: Unit | None = None
    ) -> Metric:
        return Metric(
            name=name,
            source="console",
            kind="gauge",
            meaning=meaning,
            unit=unit,
            labels=labels,
        )

    yield metric(
        "console_snapshot_age_seconds",
        "For how long the console has read nothing newer; all of its other figures are "
        "as old, and it leaves out those of groups once they are too old.",
        unit="seconds",
    )
    yield metric(
        "console_omitted_series",
        f"Series beyond {MOST_CONSOLE_SERIES:,}, which are left out; they are those of "
        "topics that are held, and of groups that are not.",
    )
    yield metric(
        "group_members",
        "Members of a group by what they report: they obey all holds, have not read "
        "all of them yet, cannot read them, or report nothing; or it is unknown, for "
        "example because reports cannot be read.",
        group,
        Label("state", MEMBER_STATES),
        unit="members",
    )
    yield metric(
        "group_partitions",
        "Partitions of a group: not held, held and quiet, held but still delivered, or "
        "held and either not quiet yet or in an unknown state.",
        group,
        Label("state", PARTITION_STATES),
        unit="partitions",
    )
    yield metric(
        "group_quiet",
        "1 if all held partitions of a group are quiet, as the commands status and "
        "wait report it; 0 if they are not, not yet, or it is unknown. There is no "
        "value if nothing is held, or if holds cover nothing.",
        group,
    )
    yield metric(
        "group_holds",
        "Holds of a group, by the control topic that they are on.",
        group,
        Label("source", SOURCES),
    )
    yield metric(
        "group_unlimited_holds",
        "Holds of a group that never expire, by the control topic that they are on.",
        group,
        Label("source", SOURCES),
    )
    yield metric(
        "group_oldest_unlimited_hold_timestamp_seconds",
        "When the oldest hold of a group that never expires was placed, since the "
        "epoch; there is no value without such a hold, or if it is unknown.",
        group,
        unit="seconds",
    )
    yield metric(
        "group_next_expiry_timestamp_seconds",
        "When the next hold of a group expires, since the epoch; there is no value if "
        "no hold expires.",
        group,
        unit="seconds",
    )
    yield metric(
        "group_retention_margin_seconds",
        "Time until retention by age may delete records that were written since the "
        "group's holds were placed: the smallest of its held topics; below 0 they may "
        "be deleted already. There is no value without retention.ms, or if that is "
        "unknown; retention.bytes is not considered.",
        group,
        unit="seconds",
    )
    yield metric(
        "group_held_lag_records",
        "Lag of a topic's held partitions: records that are not committed. There is no "
        "value if the lag of one of them is unknown.",
        group,
        Label("topic"),
        unit="records",
    )
    yield metric(
        "group_topic_held",
        "1 for each topic of a group that has held partitions.",
        group,
        Label("topic"),
    )


METRICS: tuple[Metric, ...] = (
    *_consumer(),
    *_control(),
    *_worker(),
    *_spark(),
    *_console(),
)
"""
All metrics, in the order in which they are shown.
"""


def of(*sources: Source) -> tuple[Metric, ...]:
    """Return the metrics of these sources."""
    return tuple(one for one in METRICS if one.source in sources)


def name_of(metric: Metric) -> str:
    """
    Return the name of a metric's instrument in OpenTelemetry.

    Its unit and ``total`` are left out if OpenTelemetry adds them for Prometheus.
    """
    name = metric.name.removesuffix("_total")
    if metric.unit in _UNITS:
        name = name.removesuffix(f"_{metric.unit}")
    return f"safeconsumer.{name}"


def unit_of(metric: Metric) -> str:
    """Return the unit of a metric's instrument; empty for a plain number."""
    if metric.unit is None:
        return ""
    return _UNITS.get(metric.unit) or f"{{{metric.unit.removesuffix('s')}}}"
