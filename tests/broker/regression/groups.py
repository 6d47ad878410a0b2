"""Group situations that several tests begin with."""

from collections.abc import Iterable
from typing import Any

from attrs import mutable
from kafka.structs import TopicPartition

from tests.harness.members import partitions_of
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import Member
from tests.harness.regression.support import Condition, Reader, delivered, wait_until


@mutable
class Group:
    """
    A consumer in a group, its topic, and a topic that only it consumes.

    ``tps`` are what other members compete for; records of a ``witnesses`` partition
    prove that the consumer fetches.
    """

    lab: Lab
    name: str
    topic: str
    tps: list[TopicPartition]
    witnesses: list[TopicPartition]
    reader: Reader
    assignor: str
    paused_at: int = 0

    def start_ghost(self, **settings: Any) -> Member:  # noqa: ANN401 - as Lab.member()
        """Let another member join, without reading meanwhile."""
        topics = [self.topic]
        if self.assignor == "roundrobin":
            # kafka-python's raises a KeyError if members subscribe to different topics
            topics.append(self.witnesses[0].topic)
        return self.lab.member(
            *topics, group=self.name, assignor=self.assignor, **settings
        )

    def ghost(self, **settings: Any) -> Member:  # noqa: ANN401 - as Lab.member()
        """Let another member join, and read until the topic is shared."""
        ghost = self.start_ghost(**settings)
        self.reader.until(self.shared_with(ghost))
        return ghost

    def shared_with(self, *others: Member) -> Condition:
        """Return the condition that each has a share, and all is owned exactly once."""

        def shared() -> bool:
            mine = set(self.reader.consumer.assignment())
            shares = [mine & set(self.tps)]
            shares += [
                set(other.consumer.assignment()) & set(self.tps) for other in others
            ]
            owned = [tp for share in shares for tp in share]
            return all(shares) and sorted(owned) == sorted(self.tps)

        return shared

    def alone(self) -> Condition:
        """Return the condition that the consumer owns everything."""
        return self.reader.owns([*self.tps, *self.witnesses])

    def mine(self) -> set[TopicPartition]:
        """Return what the consumer owns of the topic now."""
        return set(self.reader.consumer.assignment()) & set(self.tps)

    @property
    def witness(self) -> TopicPartition:
        """A partition of the witness topic that the consumer owns now."""
        return min(set(self.reader.consumer.assignment()) & set(self.witnesses))

    def pause(self) -> None:
        """Pause all that others compete for, by partition."""
        self.reader.consumer.pause(*self.tps)
        self.paused_at = len(self.reader.log)

    def leaked(self, among: Iterable[TopicPartition] | None = None) -> int:
        """Count what came of the topic since the pause, after proof that records come."""
        self.lab.beats(self.reader, self.witness)
        since = self.reader.log[self.paused_at :]
        return delivered(since, self.tps if among is None else among)

    def taken(self) -> dict[TopicPartition, int]:
        """Return how many records of each partition the application was given."""
        return {tp: delivered(self.reader.log, [tp]) for tp in self.tps}


def group(  # noqa: PLR0913 - a situation has many sides
    lab: Lab,
    client: str,
    *,
    assignor: str = "range",
    how: str = "poll",
    each: int = 30,
    taking: int = 10,
    **config: Any,  # noqa: ANN401 - as Lab.consumer()
) -> Group:
    """Make a consumer that owns all alone, has read some records and committed them."""
    topic, tps = lab.topic_with(each)
    witnesses = partitions_of(lab.topic(2), 2)
    name = lab.name("g")
    reader = lab.reader(
        client,
        topic,
        witnesses[0].topic,
        how=how,
        group=name,
        assignor=assignor,
        **config,
    )
    made = Group(
        lab=lab,
        name=name,
        topic=topic,
        tps=tps,
        witnesses=witnesses,
        reader=reader,
        assignor=assignor,
    )
    reader.until_joined(made.alone())
    already = delivered(reader.log, tps)
    if taking > already:
        reader.take(taking - already)
    wait_until(lambda: not reader.consumer._coordinator.rejoining)
    reader.consumer.commit()
    return made


def resume_exactly(here: Group, tps: Iterable[TopicPartition]) -> None:
    """Resume what the application has paused; assert that exactly the next records come."""
    start = here.taken()
    wanted = list(tps)
    here.reader.consumer.resume(*wanted)
    here.reader.drain(here.lab.rest({tp: start[tp] for tp in wanted}))
