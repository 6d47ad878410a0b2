"""Tests that the page's transactional program does not lose records of a failed batch."""

import pytest
from kafka import KafkaConsumer, KafkaProducer

from safeconsumer import SafeConsumer
from tests.harness.docs.pages import ROOT, blocks
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker

VALUES = [b"0", b"1", b"2"]
MOST_POLLS = 120  # each takes half a second; far fewer polls are needed


class EndedError(Exception):
    """The error with which a test stops the page's program, whose loop is endless."""


@pytest.fixture
def topics(kafka_topic):
    return kafka_topic(partitions=1), kafka_topic(partitions=1)


@pytest.fixture
def run(kafka_broker, topics, monkeypatch):
    """Return ``run(before_poll, commit)``, which runs the page's program with new topics."""
    orders, invoices = topics
    (block,) = blocks(ROOT / "docs/how-to/transactions.md")
    code = block.code
    for old, new in (
        ("localhost:9092", kafka_broker.bootstrap),
        ('"orders"', repr(orders)),
        ('"invoices"', repr(invoices)),
        ("billing", f"g-{orders}"),
    ):
        assert old in code
        code = code.replace(old, new)

    def run(before_poll, commit):
        real, polls = SafeConsumer.poll, iter(range(MOST_POLLS))

        def poll(consumer, *args, **options):
            if next(polls, None) is None:
                raise EndedError
            before_poll(consumer)
            return real(consumer, *args, **options)

        names = {}
        with monkeypatch.context() as patch:
            patch.setattr(SafeConsumer, "poll", poll)
            patch.setattr(KafkaProducer, "commit_transaction", commit)
            with pytest.raises(EndedError):
                exec(code, names)  # noqa: S102 - our own text
        names["consumer"].close()
        names["producer"].close(timeout=5)

    return run


def test_next_run_processes_a_failed_first_batch(
    run, topics, kafka_broker, make_producer
):
    orders, invoices = topics
    producer, written, done = make_producer(), [], []

    def write_once_it_reads(consumer):
        at_start = [tp for tp in consumer.assignment() if consumer.position(tp) == 0]
        if at_start and not written:
            written.extend(VALUES)
            for value in VALUES:
                producer.send(orders, value).get(20)

    def fail(_producer):
        raise EndedError

    real = KafkaProducer.commit_transaction
    reader = KafkaConsumer(
        invoices,
        **kafka_broker.client_config,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )

    def commit(producer):
        real(producer)
        expected = len(done) + 1

        def has_come():
            for several in reader.poll(500).values():
                done.extend(one.value for one in several)
            return len(done) >= expected

        wait_for(has_come, "the committed records")
        if len(done) == len(VALUES):
            raise EndedError

    run(write_once_it_reads, fail)
    assert written == VALUES
    run(lambda _consumer: None, commit)
    reader.close()
    assert done == VALUES
