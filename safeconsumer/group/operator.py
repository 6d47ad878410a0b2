"""
What an operator does and sees: placing and lifting holds, and who obeys them.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from attrs import evolve, frozen
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer._core import wire
from safeconsumer._core.scopes import Scope
from safeconsumer._core.wire import ControlHold, ControlKey, Report
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import clients, patterns, topics
from safeconsumer.group.publisher import Acknowledged, Change, publish
from safeconsumer.group.reports import LazyProducer
from safeconsumer.group.settings import Control

OPERATOR = "operator"
GROUP = "group"

# A member that said nothing for as long is gone, or cannot reach the broker.
SILENT_AFTER = 15.0
_WRITE_TIMEOUT = 10.0
_READ_TIMEOUT = 30.0
# Where a broker cannot look up times: more than the reports of the last seconds.
_LAST_RECORDS = 20_000


@frozen(kw_only=True)
class Standing:
    """
    A hold as it stands in a control topic, or a tombstone.

    Attributes:
        source: ``operator`` or ``group``: which topic it is on.
        key: group, owner and scope.
        hold: what it says; None for a tombstone.
        at: the broker's time of the record, seconds since the epoch.
        offset: its place in the topic.
    """

    source: str
    key: ControlKey
    hold: ControlHold | None
    at: float
    offset: int

    @property
    def expires_at(self) -> float | None:
        """
        When it expires by the broker's clock, seconds since the epoch.
        """
        if self.hold is None or self.hold.ttl_ms is None:
            return None
        return self.at + self.hold.ttl_ms / 1000

    def covers(self, tp: TopicPartition) -> bool:
        """
        Tell whether it covers a partition, for members of this version.
        """
        read = patterns.read(self.key.scope)
        return read is None or read.scope.covers(tp)


@frozen(kw_only=True)
class GroupFacts:
    """
    What the cluster knows of a consumer group.

    Attributes:
        state: Kafka's name for it; ``Dead`` if there is no such group.
        members: how many.
        assigned: what its members own.
        committed: committed offsets.
    """

    state: str
    members: int
    assigned: frozenset[TopicPartition]
    committed: Mapping[TopicPartition, int]

    @property
    def is_known(self) -> bool:
        """
        Whether there is such a group.
        """
        return self.state != "Dead" or bool(self.committed)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """
        Everything it owns or has committed for, sorted.
        """
        return tuple(sorted(self.assigned | set(self.committed)))


class Operator:
    """
    A connection for commands. A context manager; everything waits for the broker.

    Args:
        base: how to reach the cluster, in kafka-python's keys.
        settings: which control topics.

    Raises:
        KafkaError: from every method, if the broker cannot be reached or refuses.
    """

    def __init__(self, base: Mapping[str, Any], settings: Control) -> None:
        self.settings = settings
        self._base = {"client_id": "safeconsumer-cli", **base}
        self._producer = LazyProducer(
            lambda: clients.producer(self._base, _WRITE_TIMEOUT)
        )
        self._admin: KafkaAdminClient | None = None

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
        return publish(self._producer(), topic, changes, _WRITE_TIMEOUT)

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
        for record in self._read(self.settings.topics):
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
                        at=record.timestamp / 1000,
                        offset=record.offset,
                    )
                )
        return tuple(sorted(found, key=lambda one: one.at))

    # ------------------------------------------------------------ members

    def reports(self, group: str, now: float | None = None) -> tuple[Report, ...]:
        """
        Return the last report of every member that said something lately.

        Times are compared on the broker's clock, by the records' own times.
        """
        topic = self.settings.status_topic
        if topic is None:
            return ()
        last: dict[str, tuple[float, Report]] = {}
        newest = 0.0
        for record in self._read((topic,), since=SILENT_AFTER):
            newest = max(newest, record.timestamp / 1000)
            report = wire.decode_report(record.value)
            if report is not None and report.group == group:
                at = record.timestamp / 1000
                report = evolve(report, clock_offset=at - report.at_ms / 1000)
                last[report.member] = (at, report)
        now = max(newest, time.time() if now is None else now)
        live = [
            report
            for at, report in last.values()
            if report.state != "stopped" and now - at <= SILENT_AFTER
        ]
        return tuple(sorted(live, key=lambda one: (one.client_id, one.member)))

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
        return tuple(
            tp
            for one in sorted(described, key=lambda one: str(one["name"]))
            for number in range(len(one["partitions"]))
            if any(
                scope.covers(tp := TopicPartition(one["name"], number))
                for scope in scopes
            )
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
        consumer = clients.asker(self._base)
        try:
            partitions = [TopicPartition(name, 0) for name in self.settings.topics]
            ends = consumer.end_offsets(partitions, timeout_ms=_READ_TIMEOUT * 1000)
        finally:
            consumer.close(autocommit=False)
        return {tp.topic: end for tp, end in ends.items()}

    def _read(self, names: Sequence[str], since: float | None = None) -> list[Any]:
        """
        Return all records of single-partition topics, or those of the last seconds.
        """
        consumer = clients.reader(self._base)
        try:
            partitions = [TopicPartition(name, 0) for name in names]
            consumer.assign(partitions)
            timeout_ms = _READ_TIMEOUT * 1000
            firsts = consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
            ends = consumer.end_offsets(partitions, timeout_ms=timeout_ms)
            if since is not None:
                firsts = _since(consumer, since, firsts, ends)
            for tp, first in firsts.items():
                consumer.seek(tp, first)
            return list(_to_the_end(consumer, ends))
        finally:
            consumer.close(autocommit=False)


def _since(
    consumer: KafkaConsumer,
    seconds: float,
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    at_ms = int((time.time() - 2 * seconds) * 1000)
    try:
        found = consumer.offsets_for_times(dict.fromkeys(firsts, at_ms))
    except (KafkaError, ValueError):  # a broker that cannot look up times
        found = {}
    return {
        tp: one.offset
        if (one := found.get(tp)) is not None and one.offset >= 0
        else max(first, ends[tp] - _LAST_RECORDS)
        for tp, first in firsts.items()
    }


def _to_the_end(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> Any:  # noqa: ANN401 - records
    deadline = time.monotonic() + _READ_TIMEOUT
    while any(consumer.position(tp) < end for tp, end in ends.items()):
        if time.monotonic() > deadline:
            message = f"the control topics could not be read in {_READ_TIMEOUT:.0f} s"
            raise KafkaError(message)
        for records in consumer.poll(100).values():
            yield from records


def _assigned(member: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    assignment = member.get("member_assignment")
    if not isinstance(assignment, Mapping):
        return ()
    found: Sequence[Mapping[str, Any]] = assignment.get("assigned_partitions") or ()
    return found


def _may_cover(scope: Scope, topic: str) -> bool:
    named = getattr(scope, "topic", None)
    return named == topic if named is not None else scope.covers((topic, 0))
