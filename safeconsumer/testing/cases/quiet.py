"""Proves that paused partitions deliver nothing, and all their records after a resume."""

from collections.abc import Iterable

from attrs import mutable
from kafka.structs import TopicPartition

from safeconsumer.testing.cases.consumer import Consumer, How, reaches, until
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import LeakedError, StarvedError, expect

STARVES_AFTER = 5.0
"""Seconds within which a resumed partition must deliver its records."""


@mutable
class Pause:
    """Partitions that a consumer has paused, with their positions at the pause."""

    lab: Lab
    consumer: Consumer
    partitions: list[TopicPartition]
    since: int
    taken: dict[TopicPartition, int]

    def expect_nothing(self, among: Iterable[TopicPartition] | None = None) -> None:
        """Fail if a paused partition has delivered a record since the pause."""
        wanted = self.partitions if among is None else list(among)
        came = self.consumer.count(wanted, self.since)
        expect(not came, f"{came} records came although paused", LeakedError)

    def prove(self, among: Iterable[TopicPartition] | None = None) -> None:
        """
        Fail unless ``among`` is silent while paused and continues when resumed.

        Any records that were delivered since the pause count as a failure. Then one
        partition is resumed and read to its end. Three times a record is written to that
        partition and read. By then, any other partition that is assigned and not paused
        would have delivered records.
        """
        wanted = sorted(self.partitions if among is None else among)
        first, rest = wanted[0], wanted[1:]
        self.expect_nothing(wanted)
        self.consumer.resume([first])
        self._read_to_end([first])
        for _ in range(3):
            self.lab.produce(first)
            self._read_to_end([first])
        self.expect_nothing(rest)
        self.consumer.resume(rest)
        self._read_to_end(rest)
        self._expect_next(wanted)

    def expect_flows(self) -> None:
        """Fail unless resumed partitions deliver all their next records, and no others."""
        self._read_to_end(self.partitions)
        self._expect_next(self.partitions)

    def _read_to_end(self, tps: Iterable[TopicPartition]) -> None:
        rests = {tp: self.lab.end(tp) - self.taken[tp] for tp in tps}
        lasts = {(tp, self.lab.end(tp) - 1) for tp, rest in rests.items() if rest > 0}
        log = self.consumer.log
        done = reaches(
            [self.consumer],
            lambda: lasts <= set(log[self.since :]),
            bound=STARVES_AFTER,
        )
        came = self.consumer.count(rests, self.since)
        expect(
            done,
            f"{came} of {sum(rests.values())} records came within "
            f"{STARVES_AFTER:g} s of the resume",
            StarvedError,
        )

    def _expect_next(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            came = self.consumer.offsets(tp, self.since)
            wanted = list(range(self.taken[tp], self.lab.end(tp)))
            expect(came == wanted, _difference(came, wanted))


def pause(
    lab: Lab,
    consumer: Consumer,
    tps: Iterable[TopicPartition],
    how: How = "assigned",
) -> Pause:
    """Pause partitions, and remember their positions."""
    partitions = list(tps)
    consumer.pause(partitions, how)
    return note(lab, consumer, partitions)


def note(lab: Lab, consumer: Consumer, tps: Iterable[TopicPartition]) -> Pause:
    """Remember the positions of partitions that some other call has just paused."""
    partitions = list(tps)
    return Pause(
        lab=lab,
        consumer=consumer,
        partitions=partitions,
        since=len(consumer.log),
        taken={tp: [-1, *consumer.offsets(tp)][-1] + 1 for tp in partitions},
    )


def take(consumer: Consumer, tps: Iterable[TopicPartition], each: int) -> None:
    """Poll until each of the partitions has delivered ``each`` records."""
    wanted = list(tps)
    until(
        [consumer],
        lambda: all(consumer.count([tp]) >= each for tp in wanted),
        "the first records",
        limit=5,
    )


def _difference(came: list[int], wanted: list[int]) -> str:
    twice = len(came) - len(set(came))
    lost = len(set(wanted) - set(came))
    again = len(set(came) - set(wanted))
    parts = [
        f"{count} {what}"
        for count, what in (
            (lost, "skipped"),
            (again, "from before the pause"),
            (twice, "twice"),
        )
        if count
    ]
    return f"after resume: {', '.join(parts) or 'out of order'}"
