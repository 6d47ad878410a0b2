"""Tests the pytest plugin and its fixtures in a user's project."""

from types import SimpleNamespace

import pytest

from safeconsumer.testing import BrokerTypeError, EmbeddedBroker, broker_of

pytest_plugins = ["pytester"]

PROJECT = """
import pytest
from kafka import KafkaConsumer


def test_record_arrives(kafka_topic, make_producer, make_consumer, kafka_broker):
    assert kafka_broker.kind == "embedded"
    topic = kafka_topic(partitions=1)
    make_producer().send(topic, b"one").get(10_000)
    consumer = make_consumer(KafkaConsumer, topic)
    found = [one.value for batch in consumer.poll(10_000_000).values() for one in batch]
    assert found == [b"one"]


def test_rebalance_of_another_group_is_refused(force_rebalance, make_consumer):
    member = make_consumer(KafkaConsumer, group="billing")
    with pytest.raises(ValueError, match="is of group 'biling', .* of 'billing'"):
        force_rebalance("biling", "orders", member)
"""


@pytest.mark.parametrize("options", [(), ("-p", "no:xdist")], ids=["", "no xdist"])
def test_project_that_loads_the_plugin_has_the_fixtures(pytester, monkeypatch, options):
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    pytester.makepyfile(PROJECT)
    asked = ("-p", "safeconsumer.testing.fixtures", *options)
    pytester.runpytest_inprocess(*asked).assert_outcomes(passed=2)


OTHERS_PLUGIN = """
import pytest


@pytest.fixture
def kafka_broker():
    return "theirs"


@pytest.fixture
def make_consumer():
    return "theirs, too"
"""

OTHERS_TEST = """
def test_both(kafka_broker, make_consumer):
    assert (kafka_broker, make_consumer) == ("theirs", "theirs, too")
"""


def test_project_that_does_not_load_the_plugin_has_no_fixtures(pytester):
    """Another plugin may have fixtures of the same names."""
    pytester.syspathinsert()
    pytester.makepyfile(others_plugin=OTHERS_PLUGIN)
    pytester.makepyfile(OTHERS_TEST)
    result = pytester.runpytest_inprocess("-p", "others_plugin")
    result.assert_outcomes(passed=1)
    result = pytester.runpytest_inprocess("--fixtures")
    result.stdout.no_fnmatch_line("*kafka_*")


class Container:
    """An object with the same method as ``KafkaContainer`` in testcontainers."""

    def get_bootstrap_server(self):
        return "localhost:49153"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:9092", "localhost:9092"),
        ("one:9092,two:9093", "one:9092,two:9093"),
        ("[::1]:9092", "[::1]:9092"),
        (SimpleNamespace(bootstrap="localhost:9092"), "localhost:9092"),
        (Container(), "localhost:49153"),
    ],
)
def test_broker_may_be_an_address_or_an_object_with_an_address(given, expected):
    assert broker_of(given).client_config == {"bootstrap_servers": expected.split(",")}


def test_broker_from_the_kit_is_returned_unchanged():
    """A broker from the kit offers more than its address."""
    broker = EmbeddedBroker()
    assert broker_of(broker) is broker


@pytest.mark.parametrize(
    "given", ["localhost", "", "a:b", None, 9092, SimpleNamespace(bootstrap=9092)]
)
def test_value_without_an_address_is_refused(given):
    with pytest.raises(BrokerTypeError, match="expected an address such as"):
        broker_of(given)
