"""Keeps what a coordinator knows of commits: whose they are, and who has none."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.errors import NotOwnedError

Partitions = frozenset[TopicPartition]


class OwnedOffsets(dict[TopicPartition, OffsetAndMetadata]):
    """
    Offsets to commit, and the ownerships in which that was asked for.

    A plain dict to upstream, which carries it from the call to the request. Between the
    two it may look for the coordinator, or try again for ``request_timeout_ms``, and a
    partition may leave, be read on by others, and come back.

    Attributes:
        is_given_up: whether who asked for it was interrupted, so that it is sent no more.

    Args:
        offsets: what to commit.
        assigned: the assigned partitions, each with an object of this ownership.
        generation: an object of this generation; until the next one begins, nobody else
            gets what is revoked.
        revoked: what the listener that is running was called with.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        assigned: Mapping[TopicPartition, object],
        generation: object,
        revoked: Partitions = frozenset(),
    ) -> None:
        super().__init__(offsets)
        found = {
            tp: assigned.get(tp) for tp in self
        }  # the IO thread may take some away
        self._assigned = {tp: one for tp, one in found.items() if one is not None}
        self._revoked = revoked
        self._generation = generation
        self.is_given_up = False

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Copy it as a plain dict: callbacks get it."""
        return dict, (dict(self),)

    def refusal(
        self,
        assigned: Mapping[TopicPartition, object],
        generation: object,
        why: str | None = None,
    ) -> NotOwnedError | None:
        """
        Return the error if something in it is not owned any more, or never was.

        Args:
            assigned: the assigned partitions now; empty if there is no membership.
            generation: the one of now.
            why: why there is no membership, for people; None: there is one.
        """
        revoked = self._revoked if generation is self._generation else ()
        owned = {
            tp for tp, state in self._assigned.items() if assigned.get(tp) is state
        }
        foreign = self.keys() - owned - set(revoked)
        if not foreign:
            return None
        names = ", ".join(f"{tp.topic}:{tp.partition}" for tp in sorted(foreign))
        reason = why or (
            "it is not this member's, and its owner may be further. Under subscribe() "
            "commit what is assigned, or in on_partitions_revoked() what that is told "
            "of; what is not committed by then comes again at its next owner"
        )
        return NotOwnedError(f"commit of {names} refused, and nothing sent: {reason}")


class KnownCommits:
    """
    Counts commits by partition, and remembers which partitions have none.

    An answer about committed offsets for which nobody waited is used only if nothing
    has changed since the request; upstream 3.0.12 keeps it, and may start from it hours
    and generations later.

    Thread rules: :meth:`elsewhere`, :meth:`without` and :meth:`forget_all_but` on any
    thread, the rest on the IO thread.
    """

    def __init__(self) -> None:
        self._without: set[TopicPartition] = set()
        self._answered: Counter[TopicPartition] = Counter()
        self._begun: Counter[TopicPartition] = Counter()
        self._asked: dict[Partitions, tuple[object, ...]] = {}
        self._is_elsewhere = False

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a commit is sent."""
        self._begun.update(tuple(partitions))  # of a mapping it would add up the values

    def begun(self, tp: TopicPartition) -> int:
        """Return how many commits of the partition were begun so far."""
        return self._begun[tp]

    # ------------------------------------------------------------ who has none

    def answered(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the broker answered a commit, in whatever way."""
        self._answered.update(tuple(partitions))

    def has(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these partitions have a committed offset."""
        self._without.difference_update(partitions)

    def lack(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that, by the broker's answer, these partitions have no committed offset."""
        self._without.update(partitions)

    def elsewhere(self) -> None:
        """Note that offsets may be committed by somebody other than this consumer."""
        self._is_elsewhere = True

    def without(self, partitions: Partitions) -> Partitions:
        """Return those that certainly have no committed offset."""
        if self._is_elsewhere:
            return frozenset()
        return partitions & self._without

    def forget_all_but(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what is known of all other partitions: their next owners commit."""
        self._without.intersection_update(partitions)

    # ------------------------------------------------------------ questions

    def is_outdated(
        self,
        partitions: Partitions,
        since: tuple[object, ...],
        waiting: Collection[Partitions],
    ) -> bool:
        """
        Tell whether the request about these partitions must be sent again; note it.

        Upstream keeps a request under its partitions alone. One that outlasted its poll
        must be found by the next poll, and must not be found after that.

        Args:
            partitions: the partitions of the request.
            since: equal as long as the answer to an earlier request can be used.
            waiting: the requests that upstream keeps.
        """
        counts = tuple(self._answered[tp] for tp in sorted(partitions))
        now = (since, counts)
        kept = self._asked.keys() & waiting
        self._asked = {key: self._asked[key] for key in kept}
        if self._asked.get(partitions) == now:
            return False
        self._asked[partitions] = now
        return True

    def forget_question(self, partitions: Partitions) -> None:
        """Forget a request that was answered."""
        self._asked.pop(partitions, None)
