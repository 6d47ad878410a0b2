"""Facade over kafka-python's private objects: the only calls our classes make into them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Protocol

from kafka import KafkaConsumer
from kafka.consumer.subscription_state import SubscriptionType
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.structs import TopicPartition

from safeconsumer._kafka.errors import NotConsumedError
from safeconsumer._kafka.figures import Figures
from safeconsumer._kafka.pausing.coordinator import CommitJournal
from safeconsumer._kafka.pausing.fetcher import FetchJournal
from safeconsumer._kafka.pausing.listeners import (
    is_on_io_thread,
    refuse_blocking,
    refuse_if_closed,
    refuse_in_listener,
)
from safeconsumer._kafka.pausing.subscription import PositionJournal
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Reassignment
from safeconsumer.holds.scope import Everything, Partition, Pattern, Scope, Topic

Records = dict[TopicPartition, list[Any]]


class Journal(CommitJournal, FetchJournal, PositionJournal, Protocol):
    """The calls by which the parts of a consumer report to a journal; any thread."""

    def reassigned(self, change: Reassignment) -> None:
        """Note a change of the assignment, under upstream's lock; it must not raise."""


class Facade:
    """
    Does everything that our other classes need from the private parts of a consumer.

    Thread rules: the methods that ``pause`` uses, from any thread and from a signal
    handler, which may have interrupted a thread that holds a lock: they read attributes
    and copies, and call none of upstream's methods that take its subscription lock.
    :meth:`tell_departed` and :meth:`clear_buffers` not in a signal handler. The methods
    about membership, on the polling thread; ``losses`` and ``epochs`` on any.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._subscription = consumer._subscription
        self._coordinator = consumer._coordinator
        self._fetcher = consumer._fetcher
        self._cluster = consumer._cluster
        self._client = consumer._client

    # ------------------------------------------------------------ a poll

    def without_quiet(self, records: Records) -> Records:
        """Make the final check of a ``poll``: put back records that are quiet now."""
        if records:
            records = self._fetcher.return_quiet(records)
        return records

    def delivered(self) -> None:
        """Note that the records of this poll are the application's now."""
        self._fetcher.delivered()

    # ------------------------------------------------------------ listeners

    def refuse_in_listener(self, call: str) -> None:
        """
        Refuse a call that would wait for the network, on the thread that must not.

        Raises:
            BlockingCallInListenerError: this is the thread that listeners run on.
        """
        refuse_in_listener(self._consumer, call)

    def refuse_if_closed(self, call: str) -> None:
        """
        Refuse a call that needs the network, of a closed consumer.

        Raises:
            ConsumerClosedError: it is closed.
        """
        refuse_if_closed(self._consumer, call)

    def refuse_blocking(self, call: str) -> None:
        """
        Refuse a call that waits for the network, where nothing would come of it.

        Raises:
            ConsumerClosedError: the consumer is closed.
            BlockingCallInListenerError: this is the thread that listeners run on.
        """
        refuse_blocking(self._consumer, call)

    def is_in_listener(self) -> bool:
        """Tell whether this is the thread on which rebalance listeners run."""
        return is_on_io_thread(self._consumer)

    # ------------------------------------------------------------ positions

    def position(self, tp: TopicPartition) -> int | None:
        """
        Return the application's position in a partition; None: it is not known here.

        Records that a poll under way has taken, and not returned yet, do not count.
        """
        position = self._subscription.delivered_position(tp)
        return None if position is None else int(position.offset)

    def assigned(self) -> set[TopicPartition]:
        """Return upstream's assignment; takes no lock."""
        return set(self._subscription.assignment)

    def known_partitions(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic from cached metadata; None: it is not cached."""
        found = self._cluster.partitions_for_topic(topic)
        return None if found is None else set(found)

    # ------------------------------------------------------------ what is consumed

    def consumes_anything(self) -> bool:
        """Tell whether there is a subscription or a manual assignment."""
        return bool(self._subscription.subscription_type)

    def known_topics(self) -> Iterator[str]:
        """Yield the topics known now that this consumer would consume."""
        names = {tp.topic for tp in tuple(self._subscription.assignment)}
        names.update(self._subscription.subscription or ())
        pattern = self._subscription.subscribed_pattern
        if pattern is not None or not self.consumes_anything():
            names.update(self._cluster.topics())
        return (name for name in names if self._is_consumed(name))

    def check_consumed(self, targets: Iterable[Scope]) -> None:
        """
        Refuse targets that can never belong to this consumer.

        With no subscription and no manual assignment every target can.

        Raises:
            NotConsumedError: the message names the first that cannot.
        """
        if not self.consumes_anything():
            return
        for scope in targets:
            match scope:
                case Partition():
                    self._check_partition(scope)
                case Topic():
                    self._check_topic(scope, scope.topic)
                case Pattern() | Everything():
                    pass  # what they cover is decided topic by topic

    def refuse_unassigned(self, scope: Scope) -> NoReturn:
        """Raise because a target is not assigned and ``strict_pause`` demands that it is."""
        message = f"{scope} covers nothing assigned now, and strict_pause is on"
        raise NotConsumedError(message)

    def refuse_early_hold(self, hold: Hold, call: str) -> NoReturn:
        """Raise because a hold, placed before anything was consumed, is of something else."""
        message = (
            f"{hold.scope} was paused before {call}, which does not include it: either "
            f"lift it with {hold.lifted_by()} or include it; nothing was changed"
        )
        raise NotConsumedError(message)

    def _is_subscribed(self) -> bool:
        # as partitions_auto_assigned() of upstream, which takes a lock for it
        return self._subscription.subscription_type in (
            SubscriptionType.AUTO_TOPICS,
            SubscriptionType.AUTO_PATTERN,
        )

    def _check_partition(self, scope: Partition) -> None:
        tp = TopicPartition(scope.topic, scope.partition)
        if tp in self._subscription.assignment:
            return
        if not self._is_subscribed():
            message = f"{scope} is not assigned to this consumer: assign() it first"
            raise NotConsumedError(message)
        self._check_topic(scope, scope.topic)
        partitions = self._cluster.partitions_for_topic(scope.topic)
        if partitions and scope.partition not in partitions:
            message = (
                f"{scope} is unknown: the topic has {len(partitions)} partitions; to "
                f"hold future ones too, pause the topic {scope.topic!r}"
            )
            raise NotConsumedError(message)

    def _check_topic(self, scope: Scope, topic: str) -> None:
        if not self._is_consumed(topic):
            verb = (
                "subscribe() to" if self._is_subscribed() else "assign() a partition of"
            )
            message = f"{scope} is not consumed here: {verb} its topic first"
            raise NotConsumedError(message)

    def _is_consumed(self, topic: str) -> bool:
        if not self.consumes_anything():
            return True
        if not self._is_subscribed():
            return any(tp.topic == topic for tp in tuple(self._subscription.assignment))
        pattern = self._subscription.subscribed_pattern
        if pattern is not None:
            return pattern.match(topic) is not None
        return topic in (self._subscription.subscription or ())

    # ------------------------------------------------------------ leaving

    def tell_departed(self, quiet_before: frozenset[TopicPartition]) -> None:
        """Warn of quiet partitions that departed uncommitted and that no join reported."""
        self._coordinator.tell_departed(quiet_before)

    def clear_buffers(self) -> None:
        """Throw away the buffered data of a closed consumer; nobody may be polling."""
        self._fetcher.close()

    def close_network(self) -> None:
        """
        Close the network; after upstream's ``close``.

        Upstream's ``close`` leaves a thread and sockets behind if a listener raises.
        """
        self._client.close()

    # ------------------------------------------------------------ a member of a group

    def epochs(self) -> Mapping[TopicPartition, int]:
        """Return the owned partitions with their epochs; a new object when it changes."""
        epochs: Mapping[TopicPartition, int] = (
            self._subscription.ledger.ownership().epochs
        )
        return epochs

    @property
    def ledger(self) -> PauseLedger:
        """The consumer's holds."""
        ledger: PauseLedger = self._subscription.ledger
        return ledger

    @property
    def losses(self) -> int:
        """The number of times that this member has lost its generation."""
        return int(self._coordinator.losses)

    def is_lost(self) -> bool:
        """
        Tell whether the membership is lost, or has never begun.

        Partitions assigned by hand need no membership.
        """
        needs_one = self._subscription.partitions_auto_assigned()
        return bool(needs_one and self._coordinator._generation.is_lost())

    def is_joining(self) -> bool:
        """Tell whether a join is under way and not applied yet."""
        return bool(self._coordinator.rejoining)

    def revokes_on_join(self) -> frozenset[TopicPartition]:
        """Return the owned partitions that are given up as soon as a join begins."""
        owned = frozenset(self._subscription.assigned_partitions())
        if self._coordinator._rebalance_protocol == RebalanceProtocol.EAGER:
            return owned
        topics = self._subscription.subscription or ()
        return frozenset(tp for tp in owned if tp.topic not in topics)

    @property
    def is_cooperative(self) -> bool:
        """Whether one join revokes partitions and the next one gives them away."""
        protocol = self._coordinator._rebalance_protocol
        return bool(protocol == RebalanceProtocol.COOPERATIVE)

    def deserializers(self) -> tuple[Any, Any]:
        """Return kafka-python's deserializers of keys and of values; None: there is none."""
        config = self._fetcher.config
        return config["key_deserializer"], config["value_deserializer"]

    def read_with(self, key: object, value: object) -> None:
        """
        Let polls use these deserializers from now on; None leaves bytes.

        Nobody may be polling. Records deserialized and not yet polled are fetched
        again.
        """
        config = self._fetcher.config
        if self.deserializers() != (key, value):
            config["key_deserializer"], config["value_deserializer"] = key, value
            self._fetcher.drop_decoded()

    @property
    def is_logged(self) -> bool:
        """Whether events become lines of the log."""
        return bool(getattr(self._consumer, "_safe_is_logged", True))

    @property
    def is_taken(self) -> bool:
        """Whether another object, such as a worker, polls and commits."""
        return self._subscription.refusal is not None

    def refuse_commits(self, refusal: Callable[[], Exception] | None) -> None:
        """
        Let commits without offsets raise what ``refusal`` makes.

        None allows them again.

        They commit what polls returned. A worker hands records on and has completed
        fewer.
        """
        self._subscription.refusal = refusal

    def begin_added_at_start(self) -> None:
        """
        Read partitions that are added from now on from their start, ``latest`` or not.

        Whatever is written to them before this member notices them is new, too.
        """
        self._subscription.begin_added_at_start()
        self._coordinator.note_partitions()

    def consumes(self, topic: str) -> bool:
        """Tell whether the topic is subscribed to, or a partition of it is assigned."""
        return self.consumes_anything() and self._is_consumed(topic)

    def why_nothing(self) -> str | None:
        """
        Return why this member can get no record at all; None if it can get some.

        It knows which topics exist from its first join on.
        """
        if not self.consumes_anything():
            return "no topic is subscribed to, and no partition assigned"
        if not self._is_subscribed() or self.is_lost():
            return None
        pattern = self._subscription.subscribed_pattern
        topics = self._subscription.subscription or ()
        if pattern is not None and not topics:
            return f"no topic matches the pattern {pattern.pattern!r}"
        there = self._cluster.topics(exclude_internal_topics=False)
        if topics and there.isdisjoint(topics):
            return f"topics that do not exist: {', '.join(sorted(topics))}"
        return None

    def lacks_commit(self, tp: TopicPartition) -> bool:
        """Tell whether an owned partition certainly has no committed offset in the group."""
        return bool(self._coordinator.commits.without(frozenset((tp,))))

    def reset_number(self, tp: TopicPartition) -> int:
        """
        Return the number of the last reset of an owned partition, among all.

        It is 0 if there was none yet.
        """
        state = self._subscription.assignment.get(tp)
        return getattr(state, "reset_number", 0)

    def lag(self) -> int:
        """
        Return how many known offsets no poll has returned yet.

        It uses what the last fetches reported; a partition never fetched counts as 0.
        """
        lag = 0
        for state in tuple(self._subscription.assignment.values()):
            position, end = state.position, state.highwater
            if position is not None and end is not None:
                lag += max(0, end - position.offset)
        return lag

    def lagging(self) -> list[TopicPartition]:
        """
        Return the partitions that have, or may have, records that no poll has returned.

        Those whose first fetch has not been answered yet are among them.
        """
        return [
            tp
            for tp, state in tuple(self._subscription.assignment.items())
            if state.position is None
            or state.highwater is None
            or state.highwater > state.position.offset
        ]

    def ask_before_join(self, ask: Callable[[], None] | None) -> None:
        """
        Have ``ask`` called on the polling thread whenever a join would begin.

        An exception of ``ask`` ends that ``poll``; the next one calls it again.
        """
        self._coordinator.before_join = ask

    # ------------------------------------------------------------ figures

    def figures(self) -> Figures:
        """Return the object that reads the consumer's figures, on any thread."""
        return Figures(
            self._subscription.ledger,
            self._fetcher.parked_bytes,
            self._is_control_ready,
            lambda: bool(self._consumer._closed),
        )

    def report_figures(self) -> None:
        """Register the figures without labels with upstream's metrics and their reporters."""
        metrics = self._consumer._metrics
        if metrics is not None:  # metrics_enabled=False
            self.figures().report_to(metrics)

    def _is_control_ready(self) -> bool | None:
        control = getattr(self._consumer, "_safe_control", None)
        return None if control is None else bool(control.is_caught_up)

    # ------------------------------------------------------------ a journal

    def keep_journal(self, journal: Journal) -> None:
        """Have all parts report to a journal from now on."""
        self._fetcher.journal = journal
        self._coordinator.journal = journal
        self._subscription.ledger.on_reassigned = journal.reassigned
        self._subscription.journal = journal

    def generation(self) -> int:
        """Return the generation of the group; -1 outside of a group."""
        return int(self._coordinator._generation.generation_id)

    def membership(self) -> tuple[str, int]:
        """
        Return Kafka's member id and the generation, together; any thread.

        They are empty and -1 while this is no member: without a subscription, before
        the first join, and after a loss.
        """
        generation = self._coordinator._generation
        if generation.generation_id < 0:
            return "", -1
        return str(generation.member_id), int(generation.generation_id)

    def has_lost(self) -> bool:
        """Tell whether the membership is lost at this moment."""
        return bool(self._coordinator._generation.is_lost())

    def next_position(self, tp: TopicPartition) -> int | None:
        """
        Return the next offset to be fetched of a partition; None: it is not known.

        Unlike :meth:`position` it is past the records that a poll under way has taken.
        """
        state = self._subscription.assignment.get(tp)
        position = None if state is None else state.position
        return None if position is None else int(position.offset)
