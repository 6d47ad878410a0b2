"""Tests that the Python source's readers return every record in a range, or raise."""

from itertools import chain, pairwise

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kafka import KafkaProducer
from kafka.errors import KafkaError

from safeconsumer.errors import DataLostError
from safeconsumer.spark.python import reading
from tests.harness.brokers.java import JavaBroker
from tests.harness.group.secured import PASSWORDS, SecuredBroker
from tests.harness.producing import write
from tests.harness.spark.planned import Planned, offsets

pytestmark = pytest.mark.any_broker


@pytest.fixture
def planned(kafka_broker):
    with Planned(kafka_broker) as made:
        made.produce(50)
        yield made


def test_range_is_read_to_its_end_and_no_further(planned):
    assert planned.range(10, 20) == [*range(10, 20)]
    assert planned.range(20, 50) == [*range(20, 50)]


@pytest.mark.contract("S9")
def test_kept_reader_continues_at_its_position(planned, kept):
    planned.start()
    for most in (7, 13, 30):
        assert len(planned.batch(most)) == most
    assert len(kept) == 1


@pytest.mark.contract("S9")
@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_deleted_between_plan_and_read_are_a_loss(planned, fails):
    planned.start(failOnDataLoss=fails)
    start, end = planned.plan()
    ((task,),) = ((one,) for one in planned.tasks(start, end))
    planned.delete_before(30)
    if fails == "true":
        with pytest.raises(DataLostError, match="offset 0 was to be read"):
            planned.read(task)
    else:
        assert offsets(planned.read(task)) == [*range(30, 50)]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_range_beyond_the_end_of_the_log_is_a_loss(planned, fails):
    if fails == "true":
        with pytest.raises(DataLostError, match="the log has 0 to 50"):
            planned.range(100, 200)
    else:
        assert planned.range(100, 200, failOnDataLoss="false") == []


@pytest.mark.embedded_broker
def test_ranges_that_end_in_gaps_of_a_compacted_topic_are_complete(
    kafka_broker,
):
    with Planned(kafka_broker, cleanup_policy="compact") as planned:
        producer = KafkaProducer(**kafka_broker.client_config)
        for count in (200, 3, 3):
            write(producer, (keyed(planned.topic, number) for number in range(count)))
        producer.close()
        kafka_broker.compact(planned.topic)
        whole = planned.range(0, 206)
        assert len(whole) < 206
        for cuts in ((0, 1, 2, 100, 201, 205, 206), (0, 202, 204, 206)):
            parts = [planned.range(*pair) for pair in pairwise(cuts)]
            assert list(chain.from_iterable(parts)) == whole


def keyed(topic, number):
    return {"topic": topic, "key": b"%d" % number, "value": b"x"}


def test_topic_recreated_between_plan_and_read_is_a_loss(planned):
    planned.start()
    start, end = planned.plan()
    ((wanted,),) = planned.tasks(start, end)
    other = reading.Range(
        wanted.topic, 0, 0, 50, "00000000-0000-0000-0000-000000000001"
    )
    with pytest.raises(DataLostError, match="recreated"):
        planned.read([other])


def test_at_most_four_readers_are_kept(planned, kept):
    for wait in range(20, 26):
        planned.at = None
        planned.start(kafka_fetch_max_wait_ms=wait)
        planned.batch(1)
    assert len(kept) == 4


class TlsBroker(JavaBroker):
    """A Java broker that accepts connections only over TLS."""

    def __init__(self, folder):
        self.authority = folder / "authority.pem"
        self._keys = folder / "broker.pem"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.authority)
        issued = authority.issue_cert("127.0.0.1")
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        # This is the only form in which Java accepts a key.
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        self._keys.write_bytes(key.private_bytes(*form) + chain)
        super().__init__()

    @property
    def client_config(self):
        return {
            "bootstrap_servers": [self.bootstrap],
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority),
        }

    def _write_properties(self):
        super()._write_properties()
        text = self._properties.read_text()
        text = text.replace("listeners=PLAINTEXT://", "listeners=SSL://")
        more = {
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keys,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }
        text += "".join(f"{key}={value}\n" for key, value in more.items())
        self._properties.write_text(text)


@pytest.mark.nightly
@pytest.mark.java_brokers
def test_stream_reads_over_tls(tmp_path):
    """The planner and the readers trust only the certificate authority in the option."""
    given = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "PEM"}
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    with TlsBroker(tmp_path) as broker, Planned(broker) as planned:
        planned.produce(5)
        trusted = {"kafka.ssl.truststore.location": str(broker.authority)}
        planned.start(**given, **trusted)
        assert len(planned.batch()) == 5
        trusted = {"kafka.ssl.truststore.location": str(other)}
        with pytest.raises(KafkaError):
            planned.start(**given, **trusted).end(planned.at, None)


@pytest.mark.nightly
@pytest.mark.java_brokers
def test_stream_logs_in_with_its_own_options():
    """The planner and the readers use the same credentials; no error shows the password."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    given = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
    }
    words = {"right": PASSWORDS["operator"], "wrong": "hunter2-secret"}
    jaas = {
        name: f'{login}username="operator" password="{word}";'
        for name, word in words.items()
    }
    with SecuredBroker() as broker, Planned(broker) as planned:
        planned.produce(5)
        planned.start(**given, **{"kafka.sasl.jaas.config": jaas["right"]})
        assert len(planned.batch()) == 5
        with pytest.raises(KafkaError) as caught:
            planned.start(**given, **{"kafka.sasl.jaas.config": jaas["wrong"]}).end(
                planned.at, None
            )
        assert words["wrong"] not in str(caught.value)
