"""Producers of ours while their broker is silent: their thread waits, and does not spin."""

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from safeconsumer._kafka.fixes.producers import PatientClient
from safeconsumer.group import clients

SECONDS = 3.0


def for_control(lab):
    """Make what holds and reports are written with."""
    return clients.producer(lab.settings(), 10.0)


def for_letters(lab):
    """Make what letters are sent back with, without transactions and idempotence."""
    wish = {"acks": "all", "kafka_client": PatientClient}
    return KafkaProducer(**lab.connection, **wish)


def stock(lab):
    return KafkaProducer(**lab.connection, max_in_flight_requests_per_connection=1)


@pytest.mark.parametrize(
    ("make", "is_patient"), [(for_control, True), (for_letters, True), (stock, False)]
)
def test_a_producer_does_not_spin_while_its_broker_is_silent(lab, make, *, is_patient):
    """It took a fifth of a core and more, as kafka-python's does: here it is turns."""
    lab.topic("t")
    producer = make(lab)
    producer.send("t", value=b"0", partition=0).get(10)
    lab.cluster.fail("Produce", is_cut=True, count=1)
    silent = lab.cluster.fail("ApiVersions", is_held=True)
    second = producer.send("t", value=b"1", partition=0)
    lab.until(lambda: silent.kept, what="it has a connection again, and no answer")
    if second.is_done:  # it sends each record once
        with pytest.raises(KafkaError):
            second.get(1)
        second = producer.send("t", value=b"2", partition=0)
    began = lab.world.turns
    lab.sleep(SECONDS)
    turns = lab.world.turns - began
    assert not second.is_done
    silent.end()
    second.get(10)
    producer.close()
    # It looks twenty times a second; kafka-python's looks forty times as often.
    assert (turns <= 40 * SECONDS) == is_patient, turns
