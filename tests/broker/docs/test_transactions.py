"""The program of the page about transactions loses no record when it fails."""

import pytest
from kafka import KafkaConsumer, KafkaProducer

from safeconsumer import SafeConsumer
from tests.harness.docs.pages import ROOT, blocks
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker

VALUES = [b"0", b"1", b"2"]
# Polls of half a second; it ends by itself long before.
MOST_POLLS = 120


class EndedError(Exception):
    """Ends the program, which has no end of its own."""


class Program:
    """The page's program, at this broker, with topics and a group of its own."""

    def __init__(self, broker, orders, invoices):
        (block,) = blocks(ROOT / "docs/how-to/transactions.md")
        self._code = block.code
        for old, new in (
            ("localhost:9092", broker.bootstrap),
            ('"orders"', repr(orders)),
            ('"invoices"', repr(invoices)),
            ("billing", f"g-{orders}"),
        ):
            assert old in self._code
            self._code = self._code.replace(old, new)

    def run(self, monkeypatch, before_poll, commit):
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
                exec(self._code, names)  # noqa: S102 - our own text
        names["consumer"].close()
        names["producer"].close(timeout=5)


def test_failed_batch_is_not_lost(
    kafka_broker, kafka_topic, make_producer, monkeypatch
):
    """The first batch fails, so no offset was committed before."""
    orders, invoices = kafka_topic(partitions=1), kafka_topic(partitions=1)
    program = Program(kafka_broker, orders, invoices)
    writer = make_producer()
    written = []

    def write_once_it_reads(consumer):
        at_home = [tp for tp in consumer.assignment() if consumer.position(tp) == 0]
        if at_home and not written:
            written.extend(VALUES)
            for value in VALUES:
                writer.send(orders, value).get(20)

    def fail(_producer):
        raise EndedError

    real = KafkaProducer.commit_transaction
    done = []
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
            for some in reader.poll(500).values():
                done.extend(one.value for one in some)
            return len(done) >= expected

        wait_for(has_come, "what was committed")
        if len(done) == len(VALUES):
            raise EndedError

    program.run(monkeypatch, write_once_it_reads, fail)
    assert written == VALUES
    program.run(monkeypatch, lambda _consumer: None, commit)
    reader.close()
    assert done == VALUES
