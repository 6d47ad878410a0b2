"""
Plants faults in today's consumer, the first one's among them: each must be found.

Each is a context manager that patches one class; beside it stands the pair that shows
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from attrs import frozen
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.events.dispatch import Outbox
from safeconsumer.holds.gates import Gates
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.plain import Named


@frozen
class Planted:
    """
    One fault, and where it shows.

    Attributes:
        name: what is wrong.
        plant: puts it there for a block.
        pair: in which pair of operations it shows.
        message: what the explorer says then, in part.
    """

    name: str
    plant: Callable[[], AbstractContextManager[object]]
    pair: str
    message: str


@contextmanager
def _drained_counts_as_delivered() -> Iterator[None]:
    upstream = SubscriptionState.all_consumed_offsets
    with mock.patch.object(LedgerSubscription, "all_consumed_offsets", upstream):
        yield


@contextmanager
def _seek_is_forgotten() -> Iterator[None]:
    # What a poll may put back outlives a seek.
    def seek(self: OwnedPartitionState, offset: int | OffsetAndMetadata) -> None:
        TopicPartitionState.seek(self, offset)

    with mock.patch.object(OwnedPartitionState, "seek", seek):
        yield


@contextmanager
def _gates_wait_for_the_poll() -> Iterator[None]:
    def lifted(gates: Gates, *_: object, **__: object) -> Gates:
        return gates

    with mock.patch.object(Gates, "lifted", lifted):
        yield


@contextmanager
def _everybody_tells() -> Iterator[None]:
    # Whoever comes takes the next event, and tells it when he gets to it.
    def deliver(self: Outbox) -> bool:
        delivered = False
        while self.waiting:
            event = self.waiting.popleft()
            delivered = True
            self._dispatcher.dispatch(event)
        return delivered

    with mock.patch.object(Outbox, "deliver", deliver):
        yield


@contextmanager
def _nothing_is_checked_at_the_end() -> Iterator[None]:
    def put_back_quiet(_: PauseSafeFetcher, records: object) -> object:
        return records

    with mock.patch.object(PauseSafeFetcher, "put_back_quiet", put_back_quiet):
        yield


@contextmanager
def _handlers_are_not_heard() -> Iterator[None]:
    # What a handler asks for in the middle of a change is not left in the queue.
    enter = PauseLedger._enter

    def entered(ledger: PauseLedger, change: object) -> None:
        if not ledger._lock._is_owned():
            enter(ledger, change)

    with mock.patch.object(PauseLedger, "_enter", entered):
        yield


@contextmanager
def _handlers_take_upstreams_lock() -> Iterator[None]:
    pause = SafeConsumer.pause

    def locking(consumer: SafeConsumer, *targets: Any, **how: Any) -> None:  # noqa: ANN401 - as pause()
        with consumer._subscription._lock:
            pause(consumer, *targets, **how)

    with mock.patch.object(SafeConsumer, "pause", locking):
        yield


@contextmanager
def _no_pause_is_whole() -> Iterator[None]:
    with mock.patch.object(Named, "whole", return_value=[]):
        yield


PLANTED: Iterable[Planted] = (
    Planted(
        "1: a commit gets ahead of delivery",
        _drained_counts_as_delivered,
        "poll x pause, commit",
        "orders:0 was committed at 6, delivered to 0",
    ),
    Planted(
        "2: a seek is undone",
        _seek_is_forgotten,
        "poll x pause, seek",
        "P8: orders:0 came as",
    ),
    Planted(
        "7: a gained partition waits though nothing is held",
        _gates_wait_for_the_poll,
        "join whole x resume both",
        "P10: resume answered free",
    ),
    Planted(
        "8: hooks see events in the wrong order",
        _everybody_tells,
        "pause x pause, resume",
        "P14: by the events",
    ),
    Planted(
        "P1: a pause in the middle of a poll is not obeyed",
        _nothing_is_checked_at_the_end,
        "poll x pause",
        "P1: orders:0 was held by 'app'",
    ),
    Planted(
        "P12: what a signal handler asks for in the middle of a change is lost",
        _handlers_are_not_heard,
        "poll x pause in a handler",
        "P1: orders:0 was held by 'app'",
    ),
    Planted(
        "P12: a signal handler takes a lock",
        _handlers_take_upstreams_lock,
        "poll x pause in a handler",
        "P12: a handler took the locks of ['subscription']",
    ),
    Planted(
        "P7: what is gained of a topic that is paused whole flows",
        _no_pause_is_whole,
        "join whole x pause(*assignment())",
        "P1: orders:2 was held by 'app (all)'",
    ),
)
