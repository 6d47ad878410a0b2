"""Limits how many records begin per second, and how many handlers run per topic."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from safeconsumer._checks import is_number
from safeconsumer.errors import ScopeSyntaxError, WorkerSettingError
from safeconsumer.holds.scope import Pattern, Topic, parse
from safeconsumer.worker.partition import Epoch

# Seconds. Records that could have begun this long ago may begin now, all at once:
# threads are not as exact as a clock.
_BURST = 0.1


class Rate:
    """
    Counts how many records may begin, at so many per second. Not thread-safe.

    Over any span of time no more begin than the rate allows plus those of 0.1 s, or
    plus one; a batch begins as one, and its records are paid for afterwards.
    """

    def __init__(self, per_second: float, now: float) -> None:
        self._interval = 1 / per_second
        self._next = now

    def room(self, now: float) -> int:
        """Return how many records may begin now."""
        late = min(now - self._next, _BURST)
        return 0 if late < 0 else int(late / self._interval) + 1

    def wait(self, now: float) -> float:
        """Return the seconds until a record may begin."""
        return max(0.0, self._next - now)

    def take(self, count: int, now: float) -> None:
        """Count records that begin."""
        self._next = max(self._next, now - _BURST) + count * self._interval

    def give_back(self, count: int) -> None:
        """Take back records that were counted and did not begin."""
        self._next -= count * self._interval


class Places:
    """
    The limit on how many handlers one topic may have at a time.

    Attributes:
        most: the limit.
        taken: how many handlers the topic has now.
        waiting: the partitions that were set aside until a place is free, in order.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.waiting: OrderedDict[Epoch, None] = OrderedDict()

    def has_room(self) -> bool:
        """Tell whether another handler may begin."""
        return self.taken < self.most

    def drop_closed(self) -> None:
        """Forget the ownerships that have ended."""
        for epoch in [one for one in self.waiting if one.is_closed]:
            del self.waiting[epoch]


@frozen
class PerTopic:
    """
    The limits on how many handlers each topic may have at a time, by scope.

    Args:
        most: the limit for each scope: a topic such as ``orders``, or ``re:audit.*``
            for every topic whose whole name matches. A topic's own name goes before
            patterns, and the first pattern that matches before the others.

    Raises:
        WorkerSettingError: a key is neither, or a number is not 1 or more.
    """

    most: Mapping[str, int]
    _topics: dict[str, Places | None] = field(factory=dict, init=False, eq=False)
    _patterns: list[tuple[Pattern, int]] = field(factory=list, init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.most, Mapping):
            message = f"concurrency per topic must be a dict, not {self.most!r}"
            raise WorkerSettingError(message)
        for text, most in self.most.items():
            if not is_number(most) or not isinstance(most, int) or most < 1:
                message = f"concurrency of {text!r} must be 1 or more, not {most!r}"
                raise WorkerSettingError(message)
            match _scope(text):
                case Topic(topic):
                    self._topics[topic] = Places(most)
                case Pattern() as pattern:
                    self._patterns.append((pattern, most))
                case _:
                    message = f"concurrency is per topic, and {text!r} is not a topic"
                    raise WorkerSettingError(message)

    def of(self, topic: str) -> Places | None:
        """Return the places of a topic; None if it has no limit."""
        if topic not in self._topics:
            found = (most for one, most in self._patterns if one.matches(topic))
            most = next(found, None)
            self._topics[topic] = None if most is None else Places(most)
        return self._topics[topic]

    def named(self) -> Iterable[str]:
        """Return the topics that have an entry under their own name."""
        return (text for text in self.most if isinstance(_scope(text), Topic))

    def all(self) -> Iterable[Places]:
        """Return the places of all topics that were looked up so far."""
        return filter(None, self._topics.values())


def _scope(text: object) -> object:
    try:
        return parse(text)  # type: ignore[arg-type]  # parse() refuses other types
    except (ScopeSyntaxError, AttributeError) as error:
        message = f"{text!r} names no topic: {error}"
        raise WorkerSettingError(message) from error
