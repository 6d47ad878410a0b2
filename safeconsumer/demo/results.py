"""Defines a scenario's reports while it runs, and its result."""

from collections.abc import Callable
from enum import StrEnum

from attrs import frozen


class State(StrEnum):
    """How one partition stands with the consumer that is watched."""

    PAUSED = "paused"
    FLOWING = "flowing"
    PAUSE_LOST = "pause lost"
    ELSEWHERE = "elsewhere"


class Failure(StrEnum):
    """A promise of ``pause()``, ``resume()`` or the consumer group that was broken."""

    LEAKED = "leaked"
    LOST = "lost"
    DUPLICATED = "duplicated"


@frozen(kw_only=True)
class PartitionView:
    """
    One partition at one moment.

    Attributes:
        label: topic and partition, as ``orders:3``.
        state: how it stands with the watched consumer.
        produced: records in it.
        delivered: how many of them the watched consumer was given so far.
        wrong: deliveries that should not have been: while paused, or twice.
    """

    label: str
    state: State
    produced: int
    delivered: int
    wrong: int


@frozen(kw_only=True)
class Progress:
    """What one client is doing at one moment."""

    scenario: str
    client: str
    step: str
    partitions: tuple[PartitionView, ...] = ()


Report = Callable[[Progress], object]
"""Takes progress; called often and by several threads, so it must be quick."""


@frozen(kw_only=True)
class Counts:
    """
    What became of the records.

    Attributes:
        produced: records written to the scenario's topics.
        while_paused: deliveries while the program wanted the partition paused; None
            in a scenario that pauses nothing.
        after_resume: deliveries after the program resumed; None likewise.
        missing: records that no member was ever given.
        duplicated: deliveries below the committed offset, again within one ownership,
            or by a second member while the first still worked on the partition.
    """

    produced: int
    while_paused: int | None
    after_resume: int | None
    missing: int
    duplicated: int


@frozen(kw_only=True)
class Result:
    """
    How one client came through one scenario.

    Attributes:
        scenario: the scenario's name.
        client: the client's name.
        counts: what became of the records, as far as the scenario came.
        seconds: how long it took.
        error: why the scenario could not be played to its end, or why its end says
            nothing, or None.
        is_evicted: whether the group threw a member out that did nothing to deserve
            it: then records may come twice by Kafka's own rules.
    """

    scenario: str
    client: str
    counts: Counts
    seconds: float
    error: str | None = None
    is_evicted: bool = False

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The promises that were broken, each once; empty if all were kept."""
        found = {
            Failure.LEAKED: self.counts.while_paused,
            Failure.LOST: 0 if self.error else self.counts.missing,
            Failure.DUPLICATED: 0 if self.is_evicted else self.counts.duplicated,
        }
        return tuple(failure for failure, count in found.items() if count)


class CannotPlayError(Exception):
    """What a scenario waits for did not happen in time; the message says what it was."""


class EvictedError(CannotPlayError):
    """The group threw a member out that did nothing to deserve it."""

    def __init__(self) -> None:
        super().__init__(
            "thrown out of its group: this machine was too busy to send heartbeats "
            "in time, so what came twice says nothing"
        )


class CancelledError(Exception):
    """The scenario was asked to stop."""
