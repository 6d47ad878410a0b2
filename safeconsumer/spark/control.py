"""Reads holds from the control topics in the driver, up to date at every plan."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

from safeconsumer.errors.base import (
    ClientPropertyError,
    ControlTopicError,
    HoldsUnreadableError,
    SafeConsumerError,
)
from safeconsumer.events.dispatch import Hook
from safeconsumer.group import events as control_events
from safeconsumer.group import topics as topic_facts
from safeconsumer.group.fold import Written
from safeconsumer.group.reports import ControlStatus
from safeconsumer.group.state import ControlState
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import Holds
from safeconsumer.spark.java_clients import JavaClients, errors, java_class, root_cause

_SHIM = "safeconsumer.spark.SafeKafkaProvider"
_KAFKA = "org.apache.kafka"
# Seconds; a poll ends at the first record, so this only limits how late a read ends.
_POLL = 0.2
# Seconds between checks of the topics' settings, as for members.
_CHECK = 300.0
# Those that are judged; each costs a call into the JVM.
_SETTINGS = (
    "cleanup.policy",
    "message.timestamp.type",
    "unclean.leader.election.enable",
)
_MISSING = "UnknownTopicOrPartitionException"
_REFUSED = "AuthorizationException"
_SILENT = (
    "no broker answered in time; do the topics exist (safeconsumer control init), and "
    "is holds.control.kafka.* right?"
)


class TopicReader:
    """
    Reads the control topics step by step, with a consumer of Java's.

    Thread rules: one thread at a time.

    Args:
        clients: makes the clients.
        names: the control topics.

    Attributes:
        positions: the offsets below which everything was read.
    """

    def __init__(self, clients: JavaClients, names: tuple[str, ...]) -> None:
        self._clients = clients
        self._names = names
        self._consumer: Any = None
        self._admin: Any = None
        self._partitions: dict[str, Any] = {}
        self._to_ends: Any = None  # what to ask for: made once, as each call costs
        self._ids: dict[str, str] = {}
        self.positions: dict[str, int] = {}

    def connect(self) -> bool:
        """Make the clients, if there are none; return whether they were made."""
        if self._consumer is not None:
            return False
        self._admin = self._admin or self._clients.admin()
        self._consumer = self._clients.consumer()
        self._partitions = {one: self._clients.partition(one) for one in self._names}
        self._to_ends = self._clients.ends_of(self._partitions.values())
        self._consumer.assign(list(self._partitions.values()))
        return True

    def facts(self, until: float) -> tuple[topic_facts.Facts, ...]:
        """Return the topics' facts."""
        described = self._described(until)
        settings = self._settings(until)
        return tuple(
            topic_facts.Facts(
                name, described[name].partitions().size(), settings.get(name)
            )
            for name in self._names
        )

    def ends(self, until: float) -> dict[str, int]:
        """Return where the topics end now."""
        asked = self._admin.listOffsets(self._to_ends)
        return {
            name: int(self._clients.result(asked.partitionResult(one), until).offset())
            for name, one in self._partitions.items()
        }

    def made_again(self, ends: Mapping[str, int], until: float) -> dict[str, int]:
        """
        Return the topics that were created again, or cut; they are read from 0.

        With each comes the offset below which the old one was read.
        """
        described = self._described(until)
        ids = {name: str(described[name].topicId()) for name in self._names}
        found = {
            name: self.positions.get(name, 0)
            for name in self._names
            if self._ids.get(name, ids[name]) != ids[name]
            or ends[name] < self.positions.get(name, 0)
        }
        self._ids = ids
        if found:  # its consumer knows the old one
            self.close()
            self.connect()
        for name in found:
            self.positions.pop(name, None)
        return found

    def begin(self, until: float) -> None:
        """Go on where it was, in a new consumer."""
        for name, partition in self._partitions.items():
            if name in self.positions:
                self._consumer.seek(partition, self.positions[name])
            else:
                self._consumer.seekToBeginning([partition])
        self._note_positions(until)

    def read(self, until: float) -> Iterator[tuple[str, Written]]:
        """Yield the next records, with their topics, once they have come."""
        polled = self._consumer.poll(self._clients.duration(_POLL))
        if not polled.isEmpty():
            text = java_class(self._clients.jvm, _SHIM).asText(polled)
            yield from map(_record, text.split("\n"))
        self._note_positions(until)

    def close(self) -> None:
        """Close the clients; what was read stays known."""
        clients = [one for one in (self._consumer, self._admin) if one is not None]
        self._consumer = self._admin = None
        for one in clients:
            try:
                self._clients.close(one)
            except errors():
                continue  # the JVM has ended, or Kafka could not say goodbye

    def _note_positions(self, until: float) -> None:
        left = self._clients.duration(max(0.001, until - time.monotonic()))
        for name, partition in self._partitions.items():
            self.positions[name] = int(self._consumer.position(partition, left))

    def _described(self, until: float) -> Any:  # noqa: ANN401 - Java's
        asked = self._admin.describeTopics(list(self._names)).allTopicNames()
        return self._clients.result(asked, until)

    def _settings(self, until: float) -> dict[str, dict[str, str]]:
        kind = java_class(self._clients.jvm, f"{_KAFKA}.common.config.ConfigResource")
        wanted = [kind(kind.Type.TOPIC, name) for name in self._names]
        try:
            asked = self._admin.describeConfigs(wanted).all()
            found = self._clients.result(asked, until)
        except errors() as error:
            if root_cause(error)[0].endswith(_REFUSED):
                return {}  # the right to see them is lacking
            raise
        return {
            resource.name(): {
                name: str(one.value())
                for name in _SETTINGS
                if (one := config.get(name)) is not None
            }
            for resource, config in found.items()
        }


class ControlFollower:
    """
    Reads the holds that operators and members have placed for one consumer group.

    A plan reads the topics up to an end that is asked for after the plan began: so it
    obeys every hold that was acknowledged before.

    Thread rules: any thread; one reads at a time, the others wait for it.

    Args:
        clients: makes the clients.
        topics: the operators' topic and the members'.
        group: the consumer group.
        skew: seconds by which holds end later, as clocks may differ.
        timeout: the most seconds for which a plan waits.
        hooks: take events about the control topics.
    """

    def __init__(  # noqa: PLR0913 - what a reader is made of
        self,
        clients: JavaClients,
        topics: tuple[str, str],
        group: str,
        *,
        skew: float,
        timeout: float,
        hooks: tuple[Hook, ...],
    ) -> None:
        self._topics = topics
        self._timeout = timeout
        self._reader = TopicReader(clients, topics)
        self._ledger = PauseLedger(hooks, client_id="spark", group_id=group)
        sources = ControlState.sources(*topics)
        self._state = ControlState(group, self._ledger, sources, skew)
        self._reading = threading.Lock()
        self._is_closed = False
        self._is_ready = False
        self._is_advised = False
        self._told = ""
        self._checked_at = 0.0

    def seen(self) -> ControlStatus:
        """Return how far the control topics are read."""
        return ControlStatus(
            state="ready" if self._is_ready else "unavailable",
            skipped=self._state.skipped,
            applied={
                (name, 0): at for name, at in dict(self._reader.positions).items()
            },
            kept=self._state.kept(),
        )

    def state(self) -> Holds:
        """Return the holds that are known now."""
        return self._ledger.view().holds

    def fresh(self) -> Holds:
        """
        Return every hold that was acknowledged before this call.

        Raises:
            ClientPropertyError: a property of the clients is not acceptable.
            ControlTopicError: the settings of a control topic would let Kafka delete
                holds.
            HoldsUnreadableError: the control topics were not read in time.
        """
        until = time.monotonic() + self._timeout
        try:
            if not self._reading.acquire(timeout=self._timeout):
                raise TimeoutError
            try:
                self._read_all(until)
            finally:
                self._reading.release()
        except (ClientPropertyError, ControlTopicError) as error:
            self._lose(str(error))
            raise
        except errors() as error:
            why = self._why(error)
            self._lose(why)
            message = (
                f"holds.control: {' and '.join(self._topics)} could not be read within "
                f"{self._timeout:g} s: {why}"
            )
            raise HoldsUnreadableError(message) from None  # the cause has Java's stack
        self._ledger.deliver()
        return self.state()

    def look(self) -> None:
        """Read what there is, if that is possible; :meth:`seen` tells whether it was."""
        with suppress(SafeConsumerError):
            self.fresh()

    def close(self) -> None:
        """End the clients."""
        self._is_closed = True
        with self._reading:
            self._reader.close()

    # ------------------------------------------------------------ reading

    def _read_all(self, until: float) -> None:
        if self._is_closed:
            raise ConnectionError
        began = time.monotonic()
        try:
            is_new = self._reader.connect()
            self._check(until, is_due=is_new)
            ends = self._reader.ends(until)
            again = self._reader.made_again(ends, until)
            for name, applied in again.items():
                self._begin_again(name, applied, ends[name])
            if is_new or again:
                self._reader.begin(until)
            self._read_to(ends, until)
        except BaseException:
            self._reader.close()
            raise
        if not self._is_ready:
            self._is_ready, self._told = True, ""
            self._ledger.emit(
                control_events.ControlReady,
                topics=self._topics,
                holds=self._state.count(),
                seconds=round(time.monotonic() - began, 3),
            )

    def _read_to(self, ends: Mapping[str, int], until: float) -> None:
        positions = self._reader.positions
        while any(positions[name] < end for name, end in ends.items()):
            if time.monotonic() > until:
                raise TimeoutError
            for name, record in self._reader.read(until):
                self._state.absorb(name, [record])
            for name, at in positions.items():
                self._state.read_through(name, at)

    def _begin_again(self, name: str, applied: int, end: int) -> None:
        self._state.begin_again(name)
        self._ledger.emit(
            control_events.ControlTopicReset, topic=name, applied=applied, end=end
        )

    def _check(self, until: float, *, is_due: bool) -> None:
        if not is_due and time.monotonic() - self._checked_at < _CHECK:
            return
        facts = self._reader.facts(until)
        topic_facts.require_fit(facts)
        self._checked_at = time.monotonic()
        advice = [said for one in facts for said in topic_facts.advice(one)]
        if advice and not self._is_advised:
            self._is_advised = True
            self._ledger.emit(
                control_events.ControlUnchecked,
                topics=self._topics,
                reason="; ".join(advice),
            )

    def _lose(self, reason: str) -> None:
        self._is_ready = False
        if not self._told and not self._is_closed:
            self._told = reason
            self._ledger.emit(control_events.ControlUnavailable, reason=reason)
        self._ledger.deliver()

    def _why(self, error: BaseException) -> str:
        name, said = root_cause(error)
        if name == _MISSING:
            return topic_facts.absent(self._topics)
        both = ", ".join(self._topics)
        if name.endswith(_REFUSED):
            return f"no right to read {both}: {topic_facts.ACLS} ({said})"
        return _SILENT if name.startswith("Timeout") else said


def _record(line: str) -> tuple[str, Written]:
    facts = dict(parse_qsl(line, keep_blank_values=True))
    key, value = (
        facts[name].encode("latin-1") if name in facts else None
        for name in ("key", "value")
    )
    at_ms = int(facts["timestamp"])
    return facts["topic"], Written(key, value, int(facts["offset"]), at_ms)
