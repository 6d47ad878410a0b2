"""Provides a consumer that is alone in its group, to which other members can be added."""

from collections.abc import Iterable
from typing import Any

from attrs import mutable
from kafka.structs import TopicPartition

from safeconsumer.testing.cases.consumer import (
    JOINING,
    ROUND,
    Condition,
    Consumer,
    How,
    until,
)
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import expect
from safeconsumer.testing.cases.quiet import Pause, pause, take


@mutable
class Team:
    """The consumer under test, with a topic shared by its group and a topic of its own."""

    lab: Lab
    group: str
    tps: list[TopicPartition]
    witness: TopicPartition
    consumer: Consumer

    @property
    def topic(self) -> str:
        """The name of the topic that the group shares."""
        topic: str = self.tps[0].topic
        return topic

    def pause(
        self, tps: Iterable[TopicPartition] | None = None, how: How = "assigned"
    ) -> Pause:
        """Pause the given partitions of the shared topic, or all of its partitions."""
        return pause(self.lab, self.consumer, self.tps if tps is None else tps, how)

    def mine(self) -> set[TopicPartition]:
        """Return the partitions of the shared topic that the consumer owns."""
        return self.consumer.assignment() & set(self.tps)

    def joined(
        self,
        limit: int = 500,
        **settings: Any,  # noqa: ANN401 - as for Lab.consumer()
    ) -> Consumer:
        """
        Let another member join; return as soon as both members share the topic.

        Meanwhile, each poll returns at most ``limit`` records.
        """
        other = self.lab.consumer(self.group, **settings)
        other.subscribe(self.topic)
        until(
            [self.consumer, other],
            self.is_shared_with(other),
            "the topic is shared",
            timeout=JOINING,
            limit=limit,
        )
        return other

    def is_shared_with(self, other: Consumer) -> Condition:
        """Return the condition that both members own partitions, and together all of them."""

        def shared() -> bool:
            mine, theirs = self.mine(), other.assignment() & set(self.tps)
            return bool(mine and theirs) and sorted(mine | theirs) == sorted(
                [*mine, *theirs]
            ) == sorted(self.tps)

        return shared

    def dismiss(self, other: Consumer) -> None:
        """
        Close another member; return as soon as the consumer owns all partitions again.

        Meanwhile, the consumer polls, because the other member cannot close while its
        join waits for this consumer.
        """
        other.begin_close()
        until(
            [self.consumer],
            other.process.has_answered,
            "the other member is closed",
            timeout=ROUND,
        )
        other.end_close()
        self.regain()

    def regain(self) -> None:
        """Poll until the consumer owns the whole shared topic and its own topic again."""
        self.consumer.owns({*self.tps, self.witness}, "everything is back")

    def reads_one_more(self) -> None:
        """Poll one record; many more records come with it and stay in the buffer."""
        before = len(self.consumer.log)
        until(
            [self.consumer],
            lambda: len(self.consumer.log) > before,
            "one more record",
            limit=1,
        )

    def beat(self) -> None:
        """Prove that the consumer fetches its own topic and has not skipped any records."""
        self.lab.beat(self.consumer, self.witness)
        wanted = set(range(self.lab.end(self.witness)))
        lost = wanted - set(self.consumer.offsets(self.witness))
        expect(not lost, f"{len(lost)} records of flowing partitions never came")


def team(
    lab: Lab,
    each: int = 20,
    taking: int = 5,
    **settings: Any,  # noqa: ANN401 - as for Lab.consumer()
) -> Team:
    """
    Create a consumer that is alone in its group.

    The consumer has read and committed ``taking`` records from each partition. After
    that, ``each`` more records are written to each partition.
    """
    tps = lab.topic_with(taking, partitions=4)
    (witness,) = lab.topic(1)
    group = lab.name("g")
    consumer = lab.consumer(group, **settings)
    consumer.subscribe(tps[0].topic, witness.topic)
    made = Team(lab=lab, group=group, tps=tps, witness=witness, consumer=consumer)
    consumer.owns({*tps, witness}, "the first assignment", limit=1)
    if taking:
        take(consumer, tps, taking)
        consumer.commit()
    lab.produce(tps, each)
    return made
