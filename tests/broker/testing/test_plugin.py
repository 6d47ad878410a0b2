import pytest

from tests.harness.docs.pages import ROOT, blocks
from tests.harness.processes import ran_python

pytest_plugins = ["pytester"]

USERS_CONFIG = (
    "[pytest]\nfilterwarnings =\n    error\n    ignore:.*_text is deprecated\n"
)

ASKED_FOR = 'pytest_plugins = ["safeconsumer.testing.fixtures"]'

USERS_TESTS = """
from kafka import KafkaConsumer


def ready(make_consumer, make_producer, topic):
    producer = make_producer()
    for number in range(40):
        producer.send(topic, b"%d" % number, partition=number % 4)
    producer.flush(10)
    consumer = make_consumer(KafkaConsumer, topic, group="g-" + topic)
    while len(consumer.assignment()) < 4:
        consumer.poll(20_000, max_records=1)
    return consumer


def test_records_flow(kafka_topic, make_consumer, make_producer, kafka_broker):
    topic = kafka_topic(partitions=4)
    assert kafka_broker.kind == "embedded"
    ready(make_consumer, make_producer, topic)


def test_a_rebalance_is_over(
    kafka_topic, make_consumer, make_producer, force_rebalance
):
    topic = kafka_topic()
    consumer = ready(make_consumer, make_producer, topic)
    before = consumer.group_metadata().generation_id
    records = force_rebalance("g-" + topic, topic, consumer)
    assert len(consumer.assignment()) == 4
    assert consumer.group_metadata().generation_id >= before + 2
    assert all(record.topic == topic for record in records)


def test_the_stock_client_leaks(
    kafka_topic, make_consumer, make_producer, force_rebalance
):
    topic = kafka_topic()
    consumer = ready(make_consumer, make_producer, topic)
    consumer.pause(*consumer.assignment())
    leaked = force_rebalance("g-" + topic, [topic], [consumer])
    for _ in range(20):
        leaked += consumer.poll(100).values()
    assert not leaked
"""


def test_a_user_has_the_fixtures(pytester, monkeypatch):
    """In a project with nothing set up they work; what a rebalance leaks is returned."""
    pytester.makeini(USERS_CONFIG)
    pytester.makeconftest(ASKED_FOR)
    pytester.makepyfile(USERS_TESTS)
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([">*assert not leaked"])


def test_the_test_on_the_page_can_fail(pytester, monkeypatch):
    """As the page says: with kafka-python's own class it does, by a leak."""
    page = ROOT / "docs/how-to/test-your-code.md"
    (code,) = [one.code for one in blocks(page) if "survives_a_reb" in one.code]
    assert "from safeconsumer import SafeConsumer" in code
    pytester.makepyfile(
        code.replace(
            "from safeconsumer import SafeConsumer",
            "from kafka import KafkaConsumer as SafeConsumer",
        )
    )
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">*assert not leaked"])


USERS_BROKERS = """
import types, pytest
pytest_plugins = ["safeconsumer.testing.fixtures"]

class Container:
    def get_bootstrap_server(self):
        return {bootstrap!r}

@pytest.fixture(
    params=[{bootstrap!r}, types.SimpleNamespace(bootstrap={bootstrap!r}), Container()],
    ids=["text", "object", "container"],
)
def kafka_broker(request):
    return request.param
"""

ROUND_TRIP = """
from kafka import KafkaConsumer

def test_a_record_comes(kafka_topic, make_consumer, make_producer):
    topic = kafka_topic(partitions=1)
    make_producer().send(topic, b"one").get(20)
    consumer = make_consumer(KafkaConsumer, topic)
    while not (batches := consumer.poll(500)):
        pass
    assert [record.value for batch in batches.values() for record in batch] == [b"one"]
"""


@pytest.mark.any_broker
def test_a_broker_of_ones_own_works_with_the_other_fixtures(pytester, kafka_broker):
    pytester.makeconftest(USERS_BROKERS.format(bootstrap=kafka_broker.bootstrap))
    pytester.makepyfile(ROUND_TRIP)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=3)


def test_the_plugin_costs_other_projects_nothing(tmp_path):
    """Loading it imports neither Kafka nor our core: it is loaded in every session."""
    heavy = "{'kafka', 'confluent_kafka', 'structlog', 'safeconsumer.consumer'}"
    program = (
        "import sys, pytest, safeconsumer.testing.plugin\n"
        f"print(sorted({heavy} & set(sys.modules)))\n"
    )
    done = ran_python("-W", "error", "-c", program, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")
