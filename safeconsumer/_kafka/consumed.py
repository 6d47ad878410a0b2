"""Determines which topics a consumer consumes, and refuses other targets."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from kafka import KafkaConsumer
from kafka.consumer.subscription_state import SubscriptionType
from kafka.structs import TopicPartition

from safeconsumer._interrupts import is_from_handler
from safeconsumer.errors.kafka_python import NotConsumedError
from safeconsumer.holds.explain import counted
from safeconsumer.holds.hold import HoldKey
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Partition, Scope, Topic

Fits = Callable[[Scope], bool]


class Consumed:
    """
    A consumer's subscription or manual assignment.

    Thread rules: any thread and a signal handler may call the methods. The signal
    handler may have interrupted a thread that holds upstream's subscription lock. The
    methods therefore read only attributes and copies, and call no upstream method that
    takes this lock.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._subscription = consumer._subscription
        self._cluster = consumer._cluster

    def has_any(self) -> bool:
        """Return whether there is a subscription or a manual assignment."""
        return bool(self._subscription.subscription_type)

    def known_topics(self) -> Iterator[str]:
        """Return the currently known topics that this consumer consumes or may consume."""
        names = {tp.topic for tp in tuple(self._subscription.assignment)}
        names.update(self._subscription.subscription or ())
        if self.has_any() and not self._is_subscribed():
            return iter(names)  # assigned manually
        pattern = self._subscription.subscribed_pattern
        if pattern is not None or not self.has_any():
            names.update(self._cluster.topics())
        return (name for name in names if self.may_have(name))

    def check(self, targets: Iterable[Scope]) -> None:
        """
        Refuse targets that can never belong to this consumer.

        Without a subscription or a manual assignment, every target is allowed.

        Raises:
            NotConsumedError: there is such a target; the message names the first one.
        """
        assigned = self._subscription.assignment
        for scope in targets if self.has_any() else ():
            if isinstance(scope, Partition):
                if (scope.topic, scope.partition) not in assigned:
                    self._check_partition(scope)
            elif isinstance(scope, Topic):  # other scopes are matched topic by topic
                self._check_topic(scope, scope.topic)

    def may_have(self, topic: str) -> bool:
        """Return whether a topic may be consumed; True if nothing is consumed yet."""
        if not self.has_any():
            return True
        if not self._is_subscribed():
            return any(tp.topic == topic for tp in tuple(self._subscription.assignment))
        pattern = self._subscription.subscribed_pattern
        if pattern is not None:
            return pattern.match(topic) is not None
        return topic in (self._subscription.subscription or ())

    def has(self, topic: str) -> bool:
        """Return whether a topic is subscribed to, or one of its partitions is assigned."""
        return self.has_any() and self.may_have(topic)

    def reason_for_no_records(self) -> str | None:
        """
        Return why no records at all can arrive; None if they can.

        One possible reason is that no topic exists, once the broker has reported that.
        """
        if not self.has_any():
            return "no topic is subscribed to, and no partition assigned"
        if not self._is_subscribed():
            return None
        pattern = self._subscription.subscribed_pattern
        topics = self._subscription.subscription or ()
        if pattern is not None and not topics:
            return f"no topic matches the pattern {pattern.pattern!r}"
        there = self._cluster.topics(exclude_internal_topics=False)
        is_answered = self._cluster.is_answered(topics or ())
        if topics and is_answered and there.isdisjoint(topics):
            return f"topics that do not exist: {', '.join(sorted(topics))}"
        return None

    def _is_subscribed(self) -> bool:
        # The same as upstream's partitions_auto_assigned(), but without taking a lock.
        return self._subscription.subscription_type in (
            SubscriptionType.AUTO_TOPICS,
            SubscriptionType.AUTO_PATTERN,
        )

    def _check_partition(self, scope: Partition) -> None:
        if not self._is_subscribed():
            message = f"{scope} is not assigned to this consumer: assign() it first"
            raise NotConsumedError(message)
        self._check_topic(scope, scope.topic)
        partitions = self._cluster.partitions_for_topic(scope.topic)
        if partitions and scope.partition not in partitions:
            message = (
                f"{scope} is unknown: the topic has "
                f"{counted(len(partitions), 'partition')}; to hold future ones too, "
                f"pause the topic {scope.topic!r}"
            )
            raise NotConsumedError(message)

    def _check_topic(self, scope: Scope, topic: str) -> None:
        if not self.may_have(topic):
            verb = (
                "subscribe() to" if self._is_subscribed() else "assign() a partition of"
            )
            message = f"{scope} is not consumed here: {verb} its topic first"
            raise NotConsumedError(message)


class EarlyHolds:
    """
    The holds that were placed while nothing was subscribed or assigned.

    The next ``subscribe`` or ``assign`` must include the scope of each of these holds.
    Each hold is checked once.

    Thread rules: any thread and a signal handler may call the methods; none takes a
    lock.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self._ledger = ledger
        self._keys: dict[HoldKey, None] = {}

    def note(self, keys: Iterable[HoldKey]) -> None:
        """Remember holds, to check them later."""
        self._keys.update(dict.fromkeys(keys))

    def forget(self, keys: Iterable[HoldKey]) -> None:
        """Forget holds, so that no call checks them."""
        for key in keys if self._keys else ():
            self._keys.pop(key, None)

    @contextmanager
    def checked(self, fits: Fits, call: str) -> Iterator[None]:
        """
        Check the remembered holds before the block changes what is consumed.

        Raises:
            NotConsumedError: the change does not include a hold's scope. The next call
                checks all holds again; it also does so if the ``with`` block raises.
        """
        keys, holds = tuple(self._keys), self._ledger.view().holds
        for key in keys:
            hold = holds.get(key)
            if hold is not None and not fits(hold.scope):
                message = (
                    f"{hold.scope} was paused before {call}, which does not include it: "
                    f"either lift it with {hold.lifted_by()} or include it; nothing was "
                    "changed"
                )
                raise NotConsumedError(message)
        yield
        self.forget(keys)


class RepeatedChange:
    """
    Changes the subscription or assignment, and repeats an interrupted change.

    kafka-python makes such a change in several steps. If a call is interrupted between
    two steps, kafka-python ignores a second call, because it detects no change.
    Therefore a change that a signal handler has interrupted is repeated from the start,
    before the next change or by the next ``poll``.
    """

    def __init__(self) -> None:
        self._interrupted: Callable[[], None] | None = None

    def make(self, change: Callable[[], None]) -> None:
        """Make a change; if a signal handler raises, :meth:`finish` repeats the change."""
        if self._interrupted is not change:
            self.finish()
        try:
            change()
        except BaseException as error:
            self._interrupted = change  # set first, because another signal may arrive
            if isinstance(error, Exception) and not is_from_handler(error):
                self._interrupted = None  # upstream refused the change
            raise
        self._interrupted = None

    def finish(self) -> None:
        """Repeat the interrupted change, if there is one."""
        if self._interrupted is not None:
            self.make(self._interrupted)


def fits_assignment(partitions: Collection[TopicPartition]) -> Fits:
    """Return ``assign``'s rule: each hold by name must cover an assigned partition."""

    def fits(scope: Scope) -> bool:
        if not isinstance(scope, Partition | Topic):
            return True
        return any(scope.covers(tp) for tp in partitions)

    return fits


def fits_subscription(topics: object, pattern: str | None) -> Fits:
    """
    Return ``subscribe``'s rule: each hold by name must be on a subscribed topic.

    The rule accepts every hold for a subscription that upstream will refuse, because
    upstream's error is clearer.
    """
    is_list = isinstance(topics, Sequence) and not isinstance(topics, str)

    def fits(scope: Scope) -> bool:
        if not isinstance(scope, Partition | Topic):
            return True
        if pattern:
            return bool(topics) or re.match(pattern, scope.topic) is not None
        return not (topics and is_list) or scope.topic in topics  # type: ignore[operator]  # it is a list

    return fits
