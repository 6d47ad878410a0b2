import re

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.testing import (
    Clients,
    EmbeddedBroker,
    Ghost,
    LeakError,
    NoLeak,
    NothingToCheckError,
    PollTimeoutError,
    poll_until,
)
from tests.harness.polling import read
from tests.harness.producing import produce


@pytest.fixture
def topic(clients: Clients) -> str:
    """Make a topic with 20 records in each of two partitions."""
    name = clients.topic(partitions=2)
    produce(clients.producer(), name, 20, 20)
    return name


@pytest.fixture
def consumer(clients: Clients, topic: str) -> KafkaConsumer:
    """Make a stock consumer of both partitions, one record at a time."""
    made = clients.consumer(KafkaConsumer, max_poll_records=1, consumer_timeout_ms=5000)
    made.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    return made


def test_a_stock_consumer_leaks_when_its_partitions_move_away_and_back(
    clients: Clients, topic: str
) -> None:
    """A real leak of the stock client is found, and the message tells what happened."""
    member = clients.consumer(KafkaConsumer, topic, group="g")
    poll_until([member], lambda: len(member.assignment()) == 2)
    member.seek_to_beginning(*member.assignment())
    member.pause(*member.assignment())
    watch = NoLeak(member)

    def move_partitions_away_and_back() -> None:
        with watch:
            stranger = clients.consumer(KafkaConsumer, group="g")
            ghost = Ghost(stranger, [topic], [member], 30.0)
            ghost.join()
            ghost.leave()
            poll_until([member], lambda: watch.leaks)

    with pytest.raises(LeakError, match="the client had forgotten the pause") as caught:
        move_partitions_away_and_back()
    moved = {leak.partition for leak in watch.leaks}
    assert all(f"{topic}:{partition}: " in str(caught.value) for partition in moved)


def test_what_is_not_paused_may_flow(consumer: KafkaConsumer, topic: str) -> None:
    """Records of the other partition are no leak."""
    consumer.pause(TopicPartition(topic, 0))
    with NoLeak(consumer) as watch:
        assert {record.partition for record in read(consumer, 5)} == {1}
    assert watch.leaks == []


@pytest.mark.parametrize("as_pattern", [False, True])
def test_a_topic_can_be_meant_to_be_silent(
    consumer: KafkaConsumer,
    topic: str,
    as_pattern: bool,  # noqa: FBT001  the parameter of a test
) -> None:
    """Topics and patterns count for every partition, though the client knows no such."""
    target = re.compile(re.escape(topic)) if as_pattern else topic
    with (
        pytest.raises(LeakError, match="5 records of paused"),
        NoLeak(consumer, target),
    ):
        read(consumer, 5)


def test_iteration_is_watched_too(consumer: KafkaConsumer, topic: str) -> None:
    """A record that iteration hands out counts once, not again for the poll behind it."""
    watch = NoLeak(consumer, topic)
    with pytest.raises(LeakError, match="1 record "), watch:
        next(consumer)
    assert len(watch.leaks) == 1


def test_a_pause_inside_counts_until_its_resume(
    consumer: KafkaConsumer, topic: str
) -> None:
    """What is paused and resumed within the context is allowed afterwards."""
    partition = TopicPartition(topic, 0)
    with NoLeak(consumer) as watch:
        consumer.pause(partition)
        assert {record.partition for record in read(consumer, 20)} == {1}
        consumer.resume(partition)
        assert {record.partition for record in read(consumer, 20)} == {0}
    assert watch.leaks == []


@pytest.fixture
def safe(clients: Clients, topic: str) -> SafeConsumer:
    """Make a consumer of ours of both partitions, one record at a time."""
    made = clients.consumer(SafeConsumer, max_poll_records=1)
    made.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    return made


def _leaks_once_forgotten(consumer: SafeConsumer, watch: NoLeak) -> bool:
    """Do what our client never does, lose its holds; tell whether that is found."""
    consumer._safe_ledger.remove(hold.key for hold in consumer.holds())
    read(consumer, 1)
    found = len(watch.leaks) == 1
    watch.leaks.clear()
    return found


def test_a_pause_that_is_over_counts_no_longer(safe: SafeConsumer, topic: str) -> None:
    """After its time whatever comes is no leak."""
    with NoLeak(safe) as watch:
        safe.pause(topic, for_=0.2)
        read(safe, 3)
    assert watch.leaks == []


def test_a_pause_that_is_not_over_counts(safe: SafeConsumer, topic: str) -> None:
    """Whatever the client thinks of it."""
    with NoLeak(safe) as watch:
        safe.pause(topic, for_=60.0)
        assert _leaks_once_forgotten(safe, watch)


def test_each_owner_lifts_its_own(safe: SafeConsumer, topic: str) -> None:
    """What one has resumed may still be silent for another."""
    with NoLeak(safe) as watch:
        safe.pause(topic)
        safe.pause(topic, owner="ops")
        safe.resume(topic)
        assert _leaks_once_forgotten(safe, watch)


def test_the_whole_consumer_may_be_paused(safe: SafeConsumer) -> None:
    """By ``pause_all()``, until ``resume_all()``."""
    with NoLeak(safe) as watch:
        safe.pause_all()
        safe.resume_all()
        read(safe, 1)
    assert watch.leaks == []
    with NoLeak(safe) as watch:
        safe.pause_all()
        assert _leaks_once_forgotten(safe, watch)


def test_a_block_that_holds_ends_with_it(safe: SafeConsumer, topic: str) -> None:
    """``held()`` pauses and resumes by itself."""
    with NoLeak(safe) as watch:
        with safe.held(topic):
            safe.poll(0)
        read(safe, 1)
    assert watch.leaks == []


def test_a_hold_on_entry_counts_though_it_covers_nothing_here(
    clients: Clients, topic: str
) -> None:
    """It was placed before anything was assigned."""
    made = clients.consumer(SafeConsumer, max_poll_records=1)
    made.pause(topic)
    with NoLeak(made) as watch:
        made.assign([TopicPartition(topic, 0)])
        assert _leaks_once_forgotten(made, watch)


def test_a_hold_that_ended_with_its_assignment_is_over(
    safe: SafeConsumer, topic: str
) -> None:
    """That is its lifetime."""
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with NoLeak(safe) as watch:
        safe.pause(one, lifetime=Lifetime.WHILE_ASSIGNED)
        safe.assign([other])
        safe.assign([one])
        read(safe, 1)
    assert watch.leaks == []


def test_a_resume_that_fails_changes_nothing(safe: SafeConsumer, topic: str) -> None:
    """What was paused before it is still meant to be silent."""
    with NoLeak(safe) as watch:
        safe.pause(topic)
        with pytest.raises(ScopeSyntaxError):
            safe.resume(topic, "..")
        assert _leaks_once_forgotten(safe, watch)


def test_the_consumer_is_itself_again_afterwards(consumer: KafkaConsumer) -> None:
    """Its class is put back, whatever happened inside."""
    msg = "inside"
    with pytest.raises(RuntimeError, match=msg), NoLeak(consumer):
        raise RuntimeError(msg)
    assert type(consumer) is KafkaConsumer


def test_an_error_inside_is_not_hidden_by_a_leak(
    consumer: KafkaConsumer, topic: str
) -> None:
    """The first thing that went wrong is what the test reports."""
    msg = "inside"
    watch = NoLeak(consumer, topic)

    def fail_after_a_leak() -> None:
        with watch:
            read(consumer, 1)
            raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match=msg):
        fail_after_a_leak()
    assert len(watch.leaks) == 1


def test_a_ghost_that_cannot_settle_says_what_it_waited_for(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """More members than partitions: the ghost gets none, and the error says so."""
    name = clients.topic(partitions=1)
    # Partitions are dealt out by the members' names.
    member = clients.consumer(KafkaConsumer, name, group="g", client_id="a")
    poll_until([member], member.assignment)
    stranger = clients.consumer(KafkaConsumer, group="g", client_id="b")
    ghost = Ghost(stranger, [name], [member], 8.0)
    with pytest.raises(PollTimeoutError, match="the ghost member to get a partition"):
        ghost.join()
    assert len(broker.members("g")) == 2  # it is a member for all that


def test_a_block_in_which_nothing_is_paused_fails(
    consumer: KafkaConsumer, safe: SafeConsumer
) -> None:
    """A test that forgot to pause cannot leak, and proves nothing."""
    for one in (consumer, safe):
        with (
            pytest.raises(NothingToCheckError, match="nothing was paused"),
            NoLeak(one),
        ):
            read(one, 1)
    assert type(consumer) is KafkaConsumer
    consumer.pause(*consumer.assignment())
    consumer.resume(*consumer.assignment())  # before the block
    with pytest.raises(NothingToCheckError, match="pause"), NoLeak(consumer):
        read(consumer, 1)
    safe.pause()  # of no target
    with pytest.raises(NothingToCheckError), NoLeak(safe):
        read(safe, 1)


def test_a_block_in_which_nothing_is_polled_fails(consumer: KafkaConsumer) -> None:
    """What is never asked for cannot leak either."""
    consumer.pause(*consumer.assignment())
    with pytest.raises(NothingToCheckError, match="was not polled"), NoLeak(consumer):
        consumer.assignment()
