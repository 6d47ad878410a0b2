"""
What a poll has taken and not returned: it is not committed, and a seek moves past it.

Each test lets something happen between the drain and the end of a ``poll``, on another
thread, where nothing but luck decides in a real program (P1, P8).
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer, events
from safeconsumer.events.consumer import ParkedDataDropped
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TEN = batch(0, 10)


@pytest.fixture
def consumer(safe: Maker) -> SafeConsumer:
    """Ten records of A and of B are here."""
    made = safe(consumer_timeout_ms=20)
    assigned(made, A, B)
    answer(made, A, 0, TEN)
    answer(made, B, 0, TEN)
    return made


def _elsewhere(call: Callable[[], object]) -> None:
    """Run a call on another thread, to its end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def after_drain(consumer: SafeConsumer, call: Callable[[], object]) -> None:
    """Have the call run on another thread when the next poll has drained its records."""
    fetcher: Any = consumer._fetcher
    fetch = fetcher.fetch_records

    def fetch_records(*args: object, **more: object) -> object:
        found = fetch(*args, **more)
        del fetcher.fetch_records
        _elsewhere(call)
        return found

    fetcher.fetch_records = fetch_records


def _emit_late(consumer: SafeConsumer) -> None:
    consumer._safe_ledger.emit(ParkedDataDropped, partitions=(), bytes=0)


def committed(consumer: SafeConsumer) -> dict[int, int]:
    """Return what ``commit()``, ``commit_async()`` and every automatic one would commit."""
    consumed = consumer._subscription.all_consumed_offsets()
    return {tp.partition: one.offset for tp, one in consumed.items()}


def read_all(consumer: SafeConsumer) -> dict[int, list[int]]:
    """Return the offsets of everything that comes without a new fetch."""
    got: dict[int, list[int]] = {}
    while polled := offsets(consumer.poll(0)):
        for number, found in polled.items():
            got.setdefault(number, []).extend(found)
    return got


# ------------------------------------------------------------ commits


def test_a_commit_behind_a_pause_has_nothing_that_goes_back(
    consumer: SafeConsumer,
) -> None:
    """
    1. A poll drains A and B. 2. Another thread pauses A and commits. 3. A goes back.

    Committed is what was delivered; a restart while A is held loses nothing.
    """
    seen: list[dict[int, int]] = []

    def pause_and_commit() -> None:
        consumer.pause(A)
        seen.append(committed(consumer))

    after_drain(consumer, pause_and_commit)
    assert offsets(consumer.poll(0)) == {1: [*range(10)]}
    assert seen == [{0: 0, 1: 0}]
    assert committed(consumer) == {0: 0, 1: 10}
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [*range(10)]}
    assert committed(consumer) == {0: 10, 1: 10}


def test_a_commit_counts_what_earlier_polls_returned(consumer: SafeConsumer) -> None:
    """Only what this poll has taken is left out."""
    assert offsets(consumer.poll(0, max_records=4)) == {0: [0, 1, 2, 3]}
    seen: list[dict[int, int]] = []
    after_drain(consumer, lambda: seen.append(committed(consumer)))
    assert offsets(consumer.poll(0, max_records=4)) == {0: [4, 5, 6, 7]}
    assert seen == [{0: 4, 1: 0}]
    assert committed(consumer) == {0: 8, 1: 0}


def test_a_commit_in_a_hook_at_the_end_of_a_poll(safe: Maker) -> None:
    """Its poll has not returned yet."""
    seen: list[dict[int, int]] = []
    made: list[SafeConsumer] = []

    def hook(event: events.Event) -> None:
        if isinstance(event, ParkedDataDropped):
            seen.append(committed(made[0]))

    consumer = safe(hooks=(hook,))
    made.append(consumer)
    assigned(consumer, A)
    answer(consumer, A, 0, TEN)
    after_drain(
        consumer,
        lambda: consumer._safe_ledger.emit(ParkedDataDropped, partitions=(), bytes=0),
    )
    assert offsets(consumer.poll(0)) == {0: [*range(10)]}
    assert seen == [{0: 0}]


def test_fetches_go_on_from_where_the_drain_ended(consumer: SafeConsumer) -> None:
    """What is committed lags; what is fetched does not."""
    asked: list[int] = []
    fetcher: Any = consumer._fetcher
    send = fetcher.send_fetches

    def send_fetches() -> object:
        asked.append(consumer._subscription.assignment[A].position.offset)
        return send()

    fetcher.send_fetches = send_fetches
    consumer.poll(0)
    assert asked == [10]


def test_records_of_a_poll_that_raised_come_again(consumer: SafeConsumer) -> None:
    """Upstream's never come: its positions moved with the drain."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    after_drain(consumer, interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0)
    assert committed(consumer) == {0: 0, 1: 0}
    consumer.poll(0)
    assert committed(consumer) == {0: 0, 1: 0}
    answer(consumer, A, 0, TEN)
    answer(consumer, B, 0, TEN)
    assert read_all(consumer) == {0: [*range(10)], 1: [*range(10)]}


def test_a_seek_behind_a_poll_that_raised_stands(consumer: SafeConsumer) -> None:
    """Nothing is put back over it."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    after_drain(consumer, interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0)
    consumer.seek(A, 7)
    consumer.poll(0)
    assert committed(consumer) == {0: 7, 1: 0}


def test_what_departs_while_a_poll_holds_it(consumer: SafeConsumer) -> None:
    """Its new ownership has a position of its own, which a commit names."""
    seen: list[dict[int, int]] = []

    def away_and_back() -> None:
        subscription = consumer._subscription
        subscription.assign_from_user([B])
        seen.append(committed(consumer))
        subscription.assign_from_user([A, B])
        subscription.seek(A, 3)
        seen.append(committed(consumer))

    after_drain(consumer, away_and_back)
    assert offsets(consumer.poll(0)) == {1: [*range(10)]}
    assert seen == [{1: 0}, {0: 3, 1: 0}]
    assert committed(consumer) == {0: 3, 1: 10}


def test_an_iteration_commits_what_it_has_yielded(consumer: SafeConsumer) -> None:
    """Record by record, whatever its poll had taken."""
    seen: list[dict[int, int]] = []
    after_drain(consumer, lambda: seen.append(committed(consumer)))
    next(consumer)
    next(consumer)
    assert seen == [{0: 0, 1: 0}]
    assert committed(consumer) == {0: 2, 1: 0}


# ------------------------------------------------------------ seeks


@pytest.mark.parametrize("to", [0, 7, 10, 20])
def test_a_seek_behind_a_pause_stands(consumer: SafeConsumer, to: int) -> None:
    """What the poll had taken is dropped, not put back; also at the very same offsets."""

    def pause_and_seek() -> None:
        consumer.pause(A)
        consumer.seek(A, to)

    after_drain(consumer, pause_and_seek)
    assert offsets(consumer.poll(0)) == {1: [*range(10)]}
    assert consumer.position(A) == to
    assert committed(consumer)[0] == to
    consumer.resume(A)
    answer(consumer, A, to, batch(to, 3))
    assert offsets(consumer.poll(0)) == {0: [to, to + 1, to + 2]}


def test_a_seek_in_a_block_that_holds_stands(consumer: SafeConsumer) -> None:
    """``with held(tp): seek`` is how a program rewinds while another thread polls."""

    def rewind() -> None:
        with consumer.held(A):
            consumer.seek(A, 7)

    after_drain(consumer, rewind)
    consumer.poll(0)
    assert consumer.position(A) == 7


def test_a_reset_behind_a_pause_stands(consumer: SafeConsumer) -> None:
    """``seek_to_beginning`` has no position until a broker has answered."""

    def pause_and_reset() -> None:
        consumer.pause(A)
        consumer._subscription.request_offset_reset(A)

    after_drain(consumer, pause_and_reset)
    consumer.poll(0)
    assert consumer._subscription.assignment[A].position is None
    consumer._subscription.seek(A, 2)  # the answer
    consumer.poll(0)
    assert consumer.position(A) == 2


def test_a_hook_that_pauses_and_seeks(safe: Maker) -> None:
    """It runs at the end of a poll that has taken what it seeks past."""
    made: list[SafeConsumer] = []

    def hook(event: events.Event) -> None:
        if isinstance(event, ParkedDataDropped):
            made[0].pause(A)
            made[0].seek(A, 7)

    consumer = safe(hooks=(hook,))
    made.append(consumer)
    assigned(consumer, A)
    answer(consumer, A, 0, TEN)
    after_drain(
        consumer,
        lambda: consumer._safe_ledger.emit(ParkedDataDropped, partitions=(), bytes=0),
    )
    assert consumer.poll(0) == {}
    assert consumer.position(A) == 7


class Seeking(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """Lets another thread seek while the record of an offset is deserialized."""

    def __init__(self, at: int, to: int, *, pauses: bool = False) -> None:
        self.at, self.to, self.pauses = at, to, pauses
        self.consumer: Any = None
        self.seen = 0

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        del topic, headers
        self.seen += 1
        if self.seen == self.at + 1:
            _elsewhere(self.move)
        return data

    def move(self) -> None:
        if self.pauses:
            self.consumer.pause(A)
        self.consumer.seek(A, self.to)


@pytest.mark.parametrize("decoder", ["python", "compiled"])
def test_a_seek_in_the_middle_of_decoding_stands(safe: Maker, decoder: str) -> None:
    """Upstream reads the position, decodes, and sets it: the seek between is undone."""
    seeking = Seeking(4, 20)
    consumer = safe(decoder=decoder, value_deserializer=seeking)
    seeking.consumer = consumer
    assigned(consumer, A)
    answer(consumer, A, 0, TEN)
    consumer.poll(0)
    assert consumer.position(A) == 20
    answer(consumer, A, 20, batch(20, 2))
    assert offsets(consumer.poll(0)) == {0: [20, 21]}


@pytest.mark.parametrize("decoder", ["python", "compiled"])
def test_a_seek_between_two_batches_of_one_drain(safe: Maker, decoder: str) -> None:
    """To where the drain stands: of what goes back, only what lies behind the seek stays."""
    consumer = safe(decoder=decoder)
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 5))
    answer(consumer, A, 5, batch(5, 5))
    fetcher: Any = consumer._fetcher
    parse, seen = fetcher._parse_fetched_data, []

    def parse_fetched_data(completion: Any) -> object:  # noqa: ANN401 - upstream's
        seen.append(completion.fetched_offset)
        if len(seen) == 2:
            _elsewhere(lambda: consumer.seek(A, 5))
        return parse(completion)

    fetcher._parse_fetched_data = parse_fetched_data
    after_drain(consumer, lambda: consumer.pause(A))
    assert consumer.poll(0) == {}
    assert seen == [0, 5]
    assert consumer.position(A) == 5
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [*range(5, 10)]}


def test_an_iteration_puts_nothing_back_over_a_seek(consumer: SafeConsumer) -> None:
    """The last look before records go back and their going back are one step."""
    next(consumer)
    fetcher: Any = consumer._fetcher
    give_back = fetcher.give_back

    def give_back_late(*args: object, **more: object) -> None:
        _elsewhere(lambda: consumer._subscription.seek(A, 7))
        give_back(*args, **more)

    fetcher.give_back = give_back_late
    consumer.pause(A)
    assert next(consumer).partition == 1
    assert consumer.position(A) == 7
    assert A not in fetcher._paused_partition_records


def test_an_iteration_does_not_undo_a_seek(consumer: SafeConsumer) -> None:
    """Another thread seeks between its drain and its first record."""
    after_drain(consumer, lambda: consumer.seek(A, 7))
    assert next(consumer).partition == 1
    assert consumer.position(A) == 7
    answer(consumer, A, 7, TEN)
    assert [one.offset for one in consumer if one.partition == 0] == [7, 8, 9]


def test_what_departs_in_the_middle_of_a_drain(consumer: SafeConsumer) -> None:
    """No ``KeyError`` out of ``poll``: upstream looks twice at what is assigned."""
    subscription: Any = consumer._subscription
    is_fetchable = subscription.is_fetchable

    def is_fetchable_then_departs(tp: TopicPartition) -> bool:
        found = is_fetchable(tp)
        if tp == A and found:
            other = threading.Thread(target=subscription.assign_from_user, args=([B],))
            others.append(other)
            other.start()
            other.join(0.2)  # under the lock it has to wait; without it is done
        return bool(found)

    def departed() -> None:
        assert others
        for other in others:
            other.join(20)
            assert not other.is_alive()

    others: list[threading.Thread] = []
    subscription.is_fetchable = is_fetchable_then_departs
    # The drain is over, and with it the lock: without this wait the scheduler decides
    # whether the poll looks once more at what is assigned before or after it departs.
    after_drain(consumer, departed)
    assert offsets(consumer.poll(0)) == {1: [*range(10)]}
    assert committed(consumer) == {1: 10}


def test_a_seek_in_the_middle_of_a_step_stands(consumer: SafeConsumer) -> None:
    """Between the look at the position and its setting; the record is not yielded."""
    assert next(consumer).offset == 0
    state: Any = consumer._subscription.assignment[A]
    is_fetchable = state.is_fetchable

    def is_fetchable_and_sought() -> object:
        del state.is_fetchable
        _elsewhere(lambda: consumer._subscription.seek(A, 7))
        return is_fetchable()

    state.is_fetchable = is_fetchable_and_sought
    assert next(consumer).partition == 1
    assert consumer.position(A) == 7


@pytest.mark.parametrize("reset", ["latest", "earliest"])
@pytest.mark.parametrize("decoder", ["python", "compiled"])
def test_a_reset_behind_records_of_one_drain_waits(
    safe: Maker, decoder: str, reset: str
) -> None:
    """Both were parked; what a pause takes back still has a position to go back to."""
    consumer = safe(decoder=decoder, auto_offset_reset=reset)
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 5))
    after_drain(consumer, lambda: consumer.pause(A))
    assert consumer.poll(0) == {}
    answer(consumer, A, 5, b"", error=OffsetOutOfRangeError.errno)
    consumer.resume(A)
    after_drain(consumer, lambda: consumer.pause(A))
    assert consumer.poll(0) == {}
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [0, 1, 2, 3, 4]}
    state = consumer._subscription.assignment[A]
    assert (state.position.offset, state.awaiting_reset) == (5, False)
    assert consumer.poll(0) == {}
    assert (state.position, state.awaiting_reset) == (None, True)
