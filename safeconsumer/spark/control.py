"""Reads holds from the holds topic in the driver, up to date at every plan."""

import threading
import time
from collections.abc import Iterator
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
from safeconsumer.group import topics as topic_facts
from safeconsumer.group.alarms import TopicAlarms
from safeconsumer.group.control_clients import Remade
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
    "no broker answered in time; does the topic exist (safeconsumer control init), and "
    "is holds.control.kafka.* right?"
)


class TopicReader:
    """
    Reads the holds topic step by step, with a consumer of Java's.

    Thread rules: one thread at a time.

    Args:
        clients: makes the clients.
        name: the holds topic.

    Attributes:
        position: the offset below which everything was read; None: nothing yet.
    """

    def __init__(self, clients: JavaClients, name: str) -> None:
        self._clients = clients
        self._name = name
        self._consumer: Any = None
        self._admin: Any = None
        self._partition: Any = None
        self._to_end: Any = None  # what to ask for: made once, as each call costs
        self._id = ""
        self.position: int | None = None

    def connect(self) -> bool:
        """Make the clients, if there are none; return whether they were made."""
        if self._consumer is not None:
            return False
        self._admin = self._admin or self._clients.admin()
        self._consumer = self._clients.consumer()
        self._partition = self._clients.partition(self._name)
        self._to_end = self._clients.ends_of([self._partition])
        self._consumer.assign([self._partition])
        return True

    def facts(self, until: float) -> topic_facts.Facts:
        """Return the topic's facts."""
        partitions = self._described(until).partitions().size()
        return topic_facts.Facts(self._name, partitions, self._settings(until))

    def end(self, until: float) -> int:
        """Return where the topic ends now."""
        asked = self._admin.listOffsets(self._to_end).partitionResult(self._partition)
        return int(self._clients.result(asked, until).offset())

    def made_again(self, end: int, until: float) -> int | None:
        """
        Begin at 0 if the topic was created again, or cut.

        Returns:
            The offset below which the old one was read; None if it is the same topic.
        """
        id_ = str(self._described(until).topicId())
        known, self._id = self._id or id_, id_
        at = self.position or 0
        if known == id_ and end >= at:
            return None
        self.close()  # its consumer knows the old one
        self.connect()
        self.position = None
        return at

    def begin(self, until: float) -> None:
        """Go on where it was, in a new consumer."""
        if self.position is None:
            self._consumer.seekToBeginning([self._partition])
        else:
            self._consumer.seek(self._partition, self.position)
        self._note_position(until)

    def read(self, until: float) -> Iterator[Written]:
        """Yield the next records, once they have come."""
        polled = self._consumer.poll(self._clients.duration(_POLL))
        if not polled.isEmpty():
            text = java_class(self._clients.jvm, _SHIM).asText(polled)
            yield from map(_record, text.split("\n"))
        self._note_position(until)

    def close(self) -> None:
        """Close the clients; what was read stays known."""
        clients = [one for one in (self._consumer, self._admin) if one is not None]
        self._consumer = self._admin = None
        for one in clients:
            try:
                self._clients.close(one)
            except errors():
                continue  # the JVM has ended, or Kafka could not say goodbye

    def _note_position(self, until: float) -> None:
        left = self._clients.duration(max(0.001, until - time.monotonic()))
        self.position = int(self._consumer.position(self._partition, left))

    def _described(self, until: float) -> Any:  # noqa: ANN401 - Java's
        asked = self._admin.describeTopics([self._name]).allTopicNames()
        return self._clients.result(asked, until)[self._name]

    def _settings(self, until: float) -> dict[str, str] | None:
        kind = java_class(self._clients.jvm, f"{_KAFKA}.common.config.ConfigResource")
        wanted = kind(kind.Type.TOPIC, self._name)
        try:
            asked = self._admin.describeConfigs([wanted]).all()
            config = self._clients.result(asked, until)[wanted]
        except errors() as error:
            if root_cause(error)[0].endswith(_REFUSED):
                return None  # the right to see them is lacking
            raise
        return {
            name: str(one.value())
            for name in _SETTINGS
            if (one := config.get(name)) is not None
        }


class ControlFollower:
    """
    Reads the holds that were placed for one consumer group.

    A plan reads the topic up to an end that is asked for after the plan began: so it
    obeys every hold that was acknowledged before.

    Thread rules: any thread; one reads at a time, the others wait for it.

    Args:
        clients: makes the clients.
        topic: the holds topic.
        group: the consumer group.
        skew: seconds by which holds end later, as clocks may differ.
        timeout: the most seconds for which a plan waits.
        hooks: take events about the holds topic.
    """

    def __init__(  # noqa: PLR0913 - what a reader is made of
        self,
        clients: JavaClients,
        topic: str,
        group: str,
        *,
        skew: float,
        timeout: float,
        hooks: tuple[Hook, ...],
    ) -> None:
        self._topic = topic
        self._timeout = timeout
        self._reader = TopicReader(clients, topic)
        self._ledger = PauseLedger(hooks, client_id="spark", group_id=group)
        self._state = ControlState(group, self._ledger, skew)
        self._reading = threading.Lock()
        self._is_closed = False
        self._alarms = TopicAlarms(self._ledger, topic)
        self._checked_at = 0.0

    def seen(self) -> ControlStatus:
        """Return how far the holds topic is read."""
        at = self._reader.position
        return ControlStatus(
            state="ready" if self._alarms.is_ready else "unavailable",
            skipped=self._state.skipped,
            applied={} if at is None else {(self._topic, 0): at},
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
            ControlTopicError: the settings of the holds topic would let Kafka delete
                holds.
            HoldsUnreadableError: the holds topic was not read in time.
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
                f"holds.control: {self._topic} could not be read within "
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
            end = self._reader.end(until)
            applied = self._reader.made_again(end, until)
            if applied is not None:
                self._state.begin_again()
                self._alarms.made_again(Remade(self._topic, applied, end))
            if is_new or applied is not None:
                self._reader.begin(until)
            self._read_to(end, until)
        except BaseException:
            self._reader.close()
            raise
        self._alarms.read(self._state.count(), time.monotonic() - began)

    def _read_to(self, end: int, until: float) -> None:
        while (self._reader.position or 0) < end:
            if time.monotonic() > until:
                raise TimeoutError
            self._state.absorb(self._topic, [*self._reader.read(until)])

    def _check(self, until: float, *, is_due: bool) -> None:
        if not is_due and time.monotonic() - self._checked_at < _CHECK:
            return
        self._alarms.judge(self._reader.facts(until))
        self._checked_at = time.monotonic()

    def _lose(self, reason: str) -> None:
        if not self._is_closed:
            self._alarms.lost(reason)
        self._ledger.deliver()

    def _why(self, error: BaseException) -> str:
        name, said = root_cause(error)
        if name == _MISSING:
            return topic_facts.absent(self._topic)
        if name.endswith(_REFUSED):
            return f"no right to read {self._topic}: {topic_facts.ACLS} ({said})"
        return _SILENT if name.startswith("Timeout") else said


def _record(line: str) -> Written:
    facts = dict(parse_qsl(line, keep_blank_values=True))
    key, value = (
        facts[name].encode("latin-1") if name in facts else None
        for name in ("key", "value")
    )
    at_ms = int(facts["timestamp"])
    return Written(key, value, int(facts["offset"]), at_ms)
