"""
What an operator does and sees: placing and lifting holds, and who obeys them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import kafka.errors as kafka_errors
from attrs import evolve
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.errors import ControlTopicError
from safeconsumer.group import clients, report_wire, topics, whole, wire
from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.publisher import Acknowledged, Change, publish
from safeconsumer.group.report_wire import Report
from safeconsumer.group.reports import LazyProducer
from safeconsumer.group.settings import Control
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.scope import Scope

OPERATOR = "operator"
GROUP = "group"

# A member that said nothing for as long is gone, or cannot reach the broker.
SILENT_AFTER = 15.0
_WRITE_TIMEOUT = 10.0


class Operator:
    """
    A connection for commands. A context manager; everything waits for the broker.

    Args:
        base: how to reach the cluster, in kafka-python's keys.
        settings: which control topics.
        clock: tells the broker's time.

    Raises:
        KafkaError: from every method, if the broker cannot be reached or refuses.
        ControlTopicError: from every method that reads a control topic, if there is
            none.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        settings: Control,
        clock: LogClock | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock or LogClock()
        self._base = {"client_id": "safeconsumer-cli", **base}
        self._producer = LazyProducer(
            lambda: clients.producer(self._base, _WRITE_TIMEOUT)
        )
        self._admin: KafkaAdminClient | None = None
        self._there: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()
        if self._admin is not None:
            self._admin.close()

    @property
    def admin(self) -> KafkaAdminClient:
        """
        The client for everything that is no record.
        """
        if self._admin is None:
            self._admin = clients.admin(self._base)
        return self._admin

    # ------------------------------------------------------------ holds

    def check(self) -> None:
        """
        Return if the control topics keep holds for good, as far as can be told.

        Raises:
            ControlTopicError: they do not; the message says what to do.
        """
        if self.settings.trust_topic:
            return
        found = topics.ask(self.admin, self.settings.topics)
        faults = [fault for facts in found for fault in topics.faults(facts)]
        if faults:
            raise ControlTopicError("; ".join(faults))

    def _require(self, *names: str) -> None:
        # Asking a topic that is not there for its offsets waits until the timeout.
        names = tuple(one for one in names if one not in self._there)
        if not names:
            return
        try:
            topics.require(self.admin, names)
        except kafka_errors.UnknownTopicOrPartitionError as error:
            raise ControlTopicError(*error.args) from error
        self._there.update(names)

    def topic_of(self, source: str) -> str:
        """
        Return the control topic of operators' or of the group's own holds.
        """
        return dict(zip((OPERATOR, GROUP), self.settings.topics, strict=True))[source]

    def write(self, source: str, changes: Sequence[Change]) -> tuple[Acknowledged, ...]:
        """
        Place or lift holds; each is acknowledged by all replicas on return.

        Raises:
            ControlWriteError: one was not; running it again is safe.
        """
        topic = self.topic_of(source)
        return publish(self._producer, topic, changes, _WRITE_TIMEOUT)

    def standing(self, group: str | None = None) -> tuple[Standing, ...]:
        """
        Return the holds that stand on the topics, of one group or of all.
        """
        last: dict[tuple[str, ControlKey], Standing] = {}
        for one in self.records(group):
            last[one.source, one.key] = one
        return tuple(one for one in last.values() if one.hold is not None)

    def records(self, group: str | None = None) -> tuple[Standing, ...]:
        """
        Return what is still on the control topics, oldest first, tombstones too.
        """
        sources = dict(zip(self.settings.topics, (OPERATOR, GROUP), strict=True))
        found = []
        self._require(*self.settings.topics)
        for record in whole.read(self._base, self.settings.topics):
            key = wire.decode_key(record.key)
            value = record.value
            hold = None if value is None else wire.decode_hold(value)
            if key is None or (value is not None and hold is None):
                continue
            if group is None or key.group == group:
                found.append(
                    Standing(
                        source=sources[record.topic],
                        key=key,
                        hold=hold,
                        at=whole.time_of(record),
                        offset=record.offset,
                    )
                )
        return tuple(sorted(found, key=lambda one: one.at or 0.0))

    # ------------------------------------------------------------ members

    def reports(self, group: str) -> tuple[Report, ...]:
        """
        Return the last report of every member that said something lately.

        Times are compared on the broker's clock, by the records' own times. Where ours
        differs, this waits once for somebody's next report, two intervals at most.
        """
        topic = self.settings.status_topic
        if topic is None:
            return ()
        self._require(topic)
        last: dict[str, tuple[float, Report]] = {}
        newest = 0.0
        for record in whole.read(self._base, (topic,), since=SILENT_AFTER):
            at = whole.time_of(record) or 0.0
            newest = max(newest, at)
            report = report_wire.decode_report(record.value)
            if report is not None and report.group == group:
                report = evolve(report, clock_offset=at - report.at_ms / 1000)
                last[report.member] = (at, report)
        there = [one for one in last.values() if one[1].state != "stopped"]
        if not there:
            return ()
        now = self._clock.now(newest, lambda: self._next_report_at(topic))
        live = [report for at, report in there if now - at <= SILENT_AFTER]
        return tuple(sorted(live, key=lambda one: (one.client_id, one.member)))

    def _next_report_at(self, topic: str) -> float | None:
        timeout = 2 * self.settings.status_interval + 0.5
        return whole.next_time(self._base, topic, timeout)

    def group(self, group: str) -> GroupFacts:
        """
        Ask the cluster about a consumer group.
        """
        described = self.admin.describe_groups([group])[group]
        committed = self.admin.list_group_offsets(group)[group]
        assigned = {
            TopicPartition(one["topic"], number)
            for member in described["members"]
            for one in _assigned(member)
            for number in one["partitions"]
        }
        return GroupFacts(
            state=described["group_state"],
            members=len(described["members"]),
            assigned=frozenset(assigned),
            committed={tp: one.offset for tp, one in committed.items()},
        )

    def topics(self) -> tuple[str, ...]:
        """
        Return the names of all topics that this principal may see.
        """
        return tuple(self.admin.list_topics())

    def partitions(self, scopes: Iterable[Scope]) -> tuple[TopicPartition, ...]:
        """
        Return the existing partitions that scopes cover.
        """
        scopes = tuple(scopes)
        names = [
            name
            for name in self.topics()
            if any(_may_cover(scope, name) for scope in scopes)
        ]
        described = self.admin.describe_topics(names) if names else []
        there = (
            TopicPartition(one["name"], number)
            for one in described
            for number in range(len(one["partitions"]))
        )
        return tuple(
            sorted(tp for tp in there if any(one.covers(tp) for one in scopes))
        )

    def lags(
        self, facts: GroupFacts, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """
        Return how many records wait in partitions for which the group has committed.
        """
        wanted = [tp for tp in partitions if tp in facts.committed]
        if not wanted:
            return {}
        consumer = clients.asker(self._base)
        try:
            ends = consumer.end_offsets(wanted)
        finally:
            consumer.close(autocommit=False)
        return {tp: max(0, ends[tp] - facts.committed[tp]) for tp in wanted}

    # ------------------------------------------------------------ reading

    def broker_version(self) -> tuple[int, ...]:
        """
        Return the Kafka version whose protocols the cluster speaks.
        """
        consumer = clients.asker(self._base)
        try:
            return tuple(consumer.config["api_version"])
        finally:
            consumer.close(autocommit=False)

    def ends(self) -> dict[str, int]:
        """
        Return where the control topics end.
        """
        self._require(*self.settings.topics)
        consumer = clients.asker(self._base)
        try:
            partitions = [TopicPartition(name, 0) for name in self.settings.topics]
            ends = consumer.end_offsets(
                partitions, timeout_ms=whole.READ_TIMEOUT * 1000
            )
        finally:
            consumer.close(autocommit=False)
        return {tp.topic: end for tp, end in ends.items()}


def _assigned(member: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    assignment = member.get("member_assignment")
    if not isinstance(assignment, Mapping):
        return ()
    found: Sequence[Mapping[str, Any]] = assignment.get("assigned_partitions") or ()
    return found


def _may_cover(scope: Scope, topic: str) -> bool:
    named = getattr(scope, "topic", None)
    return named == topic if named is not None else scope.covers((topic, 0))
