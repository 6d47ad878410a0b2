"""
Defines all metrics: the name, source, labels and meaning of each.

The metrics of Prometheus and OpenTelemetry, the reference page and the tests are
generated from this table; dashboard and alert rules use only its metrics. A metric's
name also contains its type and unit: the name of a counter ends in ``_total``, preceded
by the unit. Owners' names, reasons, scopes, hold ids, members, hosts, keys, offsets and
error texts are never labels.
"""

from typing import Literal, TypeAlias

from attrs import frozen

from safeconsumer.events.counts import ALARMS, CHANGES, HOLD_KINDS, MOVES, WORKER_ALARMS
from safeconsumer.holds.hold import KINDS

PREFIX = "safeconsumer_"
CONSUMER_LABELS = ("client_id", "group")
"""
Labels of consumers' and workers' metrics.
"""

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Source: TypeAlias = Literal["consumer", "control", "worker", "console"]

# Units and their names in UCUM, which puts names of counted things in braces.
_UNITS = {
    "seconds": "s",
    "bytes": "By",
    "records": "{record}",
    "partitions": "{partition}",
    "offsets": "{offset}",
    "topics": "{topic}",
    "members": "{member}",
}
# The owner names of a worker's own holds.
_WORKER_OWNERS = (
    "worker:backpressure",
    "worker:retry",
    "worker:drain",
    "worker:floor",
)
MEMBER_STATES = ("obeys", "behind", "unavailable", "silent", "unknown")
PARTITION_STATES = ("flowing", "quiet", "held_flowing", "unknown")


@frozen
class Label:
    """
    Distinguishes the values of one metric.

    Attributes:
        name: the label's name.
        values: all values of the label; empty if they depend on the cluster.
    """

    name: str
    values: tuple[str, ...] = ()


@frozen
class Metric:
    """
    A metric of the table.

    Attributes:
        name: the metric's name without the prefix.
        source: the object with the value: a ``consumer``, a consumer with ``control``,
            a ``worker`` or the ``console``.
        meaning: the description that people read.
        labels: the labels that distinguish the metric's values.
        is_histogram: whether the metric is a histogram.
    """

    name: str
    source: Source
    meaning: str
    labels: tuple[Label, ...] = ()
    is_histogram: bool = False

    @property
    def full_name(self) -> str:
        """The metric's name in Prometheus."""
        return f"{PREFIX}{self.name}"

    @property
    def kind(self) -> Kind:
        """The metric's type, as Prometheus names it."""
        if self.is_histogram:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """The unit of the values; empty for plain numbers, and for values of 0 or 1."""
        unit = self.name.removesuffix("_total").rpartition("_")[2]
        return unit if unit in _UNITS else ""


_GROUP, _TOPIC = Label("group"), Label("topic")

METRICS: tuple[Metric, ...] = (
    Metric(
        "consumer_assigned_partitions",
        "consumer",
        "Partitions that are assigned to the consumer.",
    ),
    Metric(
        "consumer_quiet_partitions",
        "consumer",
        "Assigned partitions whose records are not delivered: a hold covers them, or "
        "they wait for the control topics or the end of a poll.",
    ),
    Metric(
        "consumer_last_poll_timestamp_seconds",
        "consumer",
        "When the consumer last began a poll(), or continued to wait in one, since "
        "the epoch; max.poll.interval.ms limits its age. There is no value before the "
        "first poll.",
    ),
    Metric(
        "parked_bytes",
        "consumer",
        "Fetched data of quiet partitions that waits for their resume.",
    ),
    Metric(
        "holds",
        "consumer",
        "Holds in force, by who placed them: local calls, a worker, operators.",
        labels=(Label("kind", KINDS),),
    ),
    Metric(
        "hold_changes_total",
        "consumer",
        "Holds placed or changed, removed, expired, and ended with the assignment; a "
        "worker's own holds are not counted.",
        labels=(Label("kind", HOLD_KINDS), Label("change", CHANGES)),
    ),
    Metric(
        "rebalances_total",
        "consumer",
        "Completed joins of the group.",
    ),
    Metric(
        "partition_moves_total",
        "consumer",
        "Partitions that were assigned, revoked, or found lost when the consumer "
        "joined the group.",
        labels=(Label("how", MOVES),),
    ),
    Metric(
        "purged_bytes_total",
        "consumer",
        "Fetched data thrown away because the ownership of its partition had ended.",
    ),
    Metric(
        "parked_dropped_bytes_total",
        "consumer",
        "Parked data beyond parked_max_bytes, which was dropped and is fetched again.",
    ),
    Metric(
        "deleted_unread_offsets_total",
        "consumer",
        "Offsets whose records were deleted before they were read, by retention for "
        "example.",
    ),
    Metric(
        "alarms_total",
        "consumer",
        "Events of a consumer with the level warning or error that no other counter "
        "counts.",
        labels=(Label("event", ALARMS),),
    ),
    Metric(
        "hook_failures_total",
        "consumer",
        "Times a hook of the consumer raised.",
    ),
    Metric(
        "control_ready",
        "control",
        "1 if the control topics are read to their end, 0 if not; there is no value "
        "once the consumer is closed.",
    ),
    Metric(
        "control_gated_partitions",
        "control",
        "Assigned partitions that wait until the control topics are read.",
    ),
    Metric(
        "control_skipped_records_total",
        "control",
        "Records of the control topics that could not be read and were skipped.",
    ),
    Metric(
        "control_resets_total",
        "control",
        "Times a control topic was recreated or truncated.",
    ),
    Metric(
        "gates_opened_unread_total",
        "control",
        'Partitions that flow although control topics are unread: unavailable="run".',
    ),
    Metric(
        "worker_queued_records",
        "worker",
        "Polled records that wait for a handler.",
    ),
    Metric(
        "worker_running_records",
        "worker",
        "Records that handlers are working on now.",
    ),
    Metric(
        "worker_done_total",
        "worker",
        "Records that a worker completed: handled, written as dead letters, or "
        "skipped.",
    ),
    Metric(
        "worker_retries_total",
        "worker",
        "Times a worker retried a record.",
    ),
    Metric(
        "worker_dead_letters_total",
        "worker",
        "Records that failed permanently and were acknowledged as dead letters.",
    ),
    Metric(
        "worker_skipped_total",
        "worker",
        "Records that failed permanently and were skipped.",
    ),
    Metric(
        "worker_dropped_total",
        "worker",
        "Polled records dropped because their partition was revoked, lost or moved by a "
        "seek or a reset, or the worker stopped; unread records are fetched again.",
        labels=(Label("how", ("revoked", "lost", "moved", "stopped")),),
    ),
    Metric(
        "worker_refetched_total",
        "worker",
        "Polled records that waited and were given back, to make room for others; they "
        "are fetched again.",
    ),
    Metric(
        "worker_leaked_total",
        "worker",
        "Records that a poll gave a worker in spite of its own hold; a value above 0 "
        "is a defect.",
    ),
    Metric(
        "worker_commits_total",
        "worker",
        "Commits of a worker that succeeded.",
    ),
    Metric(
        "worker_commits_failed_total",
        "worker",
        "Commits of a worker that were refused or not sent.",
    ),
    Metric(
        "worker_commits_failing_seconds",
        "worker",
        "For how long no commit of a worker has succeeded although there is something "
        "to commit; 0 while commits succeed. It also counts the time in which a "
        "worker handles no record of a partition because its first commit fails.",
    ),
    Metric(
        "worker_commit_lag_offsets",
        "worker",
        "Offsets that a worker has completed but not committed.",
    ),
    Metric(
        "worker_lag_records",
        "worker",
        "Records that a worker has not completed, and offsets that it has not polled, "
        "by the last fetches. There is no value while a partition was never fetched, or "
        "is held by anything but the worker's own backpressure and retries.",
    ),
    Metric(
        "worker_breaker_open_topics",
        "worker",
        "Topics that a worker's breaker keeps stopped now.",
    ),
    Metric(
        "worker_pause_seconds_total",
        "worker",
        "For how long the worker held anything in the name of this owner.",
        labels=(Label("owner", _WORKER_OWNERS),),
    ),
    Metric(
        "worker_handler_seconds",
        "worker",
        "How long handlers took for a record, failed or not; each record of a batch "
        "counts with the batch's mean.",
        is_histogram=True,
    ),
    Metric(
        "worker_last_poll_timestamp_seconds",
        "worker",
        "When a worker's loop last ran, since the epoch; there is no value before it "
        "runs, and after a requested stop.",
    ),
    Metric(
        "worker_alarms_total",
        "worker",
        "Events of a worker with the level warning or error that no other counter "
        "counts.",
        labels=(Label("event", WORKER_ALARMS),),
    ),
    Metric(
        "worker_hook_failures_total",
        "worker",
        "Times a worker's on_event raised, or the code that makes its spans.",
    ),
    Metric(
        "console_snapshot_age_seconds",
        "console",
        "For how long the console has read nothing newer; all of its other figures "
        "are as old, and it leaves out those of groups once they are too old.",
    ),
    Metric(
        "group_members",
        "console",
        "Members of a group by what they report: they obey all holds, have not read "
        "all of them yet, cannot read them, or report nothing; or it is unknown, for "
        "example because reports cannot be read. There is no value while Kafka's list "
        "of the members is not known.",
        labels=(_GROUP, Label("state", MEMBER_STATES)),
    ),
    Metric(
        "group_partitions",
        "console",
        "Partitions of a group: not held, held and quiet, held but still delivered, "
        "or held and either not quiet yet or in an unknown state. There is no value "
        "while no partition of the group is known.",
        labels=(_GROUP, Label("state", PARTITION_STATES)),
    ),
    Metric(
        "group_quiet",
        "console",
        "1 if all held partitions of a group are quiet, as the commands status and "
        "wait report it; 0 if they are not, not yet, or it is unknown. There is no "
        "value if nothing is held, or if holds cover nothing.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_holds",
        "console",
        "Holds of a group.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_unlimited_holds",
        "console",
        "Holds of a group that never expire.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_oldest_unlimited_hold_timestamp_seconds",
        "console",
        "When the oldest hold of a group that never expires was placed, since the "
        "epoch; there is no value without such a hold, or if it is unknown.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_next_expiry_timestamp_seconds",
        "console",
        "When the next hold of a group expires, since the epoch; there is no value if "
        "no hold expires.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_expiring_holds",
        "console",
        "Holds of a group that expire within 15 minutes and were placed or extended "
        "longer ago than that.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_retention_margin_seconds",
        "console",
        "Time until retention by age may delete records that were written since the "
        "group's holds were placed: the smallest of its held topics; below 0 they may "
        "be deleted already. It counts from the holds in force: a lift of the oldest "
        "raises it, though older records may still be unread. There is no value "
        "without retention.ms, or if that is unknown; retention.bytes is not considered.",
        labels=(_GROUP,),
    ),
    Metric(
        "group_held_lag_records",
        "console",
        "Lag of a topic's held partitions: records that are not committed. There is "
        "no value if the lag of one of them is unknown.",
        labels=(_GROUP, _TOPIC),
    ),
    Metric(
        "group_topic_held",
        "console",
        "1 for each topic of a group that has held partitions.",
        labels=(_GROUP, _TOPIC),
    ),
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

    The unit and ``total`` are left out if OpenTelemetry adds them for Prometheus.
    """
    name = metric.name.removesuffix("_total")
    if metric.unit in {"seconds", "bytes"}:
        name = name.removesuffix(f"_{metric.unit}")
    return f"safeconsumer.{name}"


def unit_of(metric: Metric) -> str:
    """Return the unit of a metric's instrument; empty for a plain number."""
    return _UNITS.get(metric.unit, "")
