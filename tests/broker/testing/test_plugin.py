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


def test_rebalance_is_over(
    kafka_topic, make_consumer, make_producer, force_rebalance
):
    topic, producer = kafka_topic(), make_producer()
    for number in range(40):
        producer.send(topic, b"%d" % number, partition=number % 4)
    producer.flush(10)
    consumer = make_consumer(KafkaConsumer, topic, group="g-" + topic)
    while len(consumer.assignment()) < 4:
        consumer.poll(20_000, max_records=1)
    before = consumer.group_metadata().generation_id
    records = force_rebalance("g-" + topic, topic, consumer)
    assert len(consumer.assignment()) == 4
    assert consumer.group_metadata().generation_id >= before + 2
    assert {record.topic for record in records} == {topic}
"""


def test_force_rebalance_works_in_a_users_project(pytester, monkeypatch):
    """The project needs no other setup; the fixture returns records read meanwhile."""
    pytester.makeini(USERS_CONFIG)
    pytester.makeconftest(ASKED_FOR)
    pytester.makepyfile(USERS_TESTS)
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=1)


def test_example_on_the_page_fails_with_kafka_python(pytester, monkeypatch):
    """As the page says, its test detects the leak in kafka-python's own class."""
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

def test_record_arrives(kafka_topic, make_consumer, make_producer):
    topic = kafka_topic(partitions=1)
    make_producer().send(topic, b"one").get(20)
    consumer = make_consumer(KafkaConsumer, topic)
    while not (batches := consumer.poll(500)):
        pass
    assert [record.value for batch in batches.values() for record in batch] == [b"one"]
"""


@pytest.mark.any_broker
def test_users_broker_works_with_the_other_fixtures(pytester, kafka_broker):
    pytester.makeconftest(USERS_BROKERS.format(bootstrap=kafka_broker.bootstrap))
    pytester.makepyfile(ROUND_TRIP)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=3)


def test_plugin_does_not_import_kafka(tmp_path):
    """Every pytest session in every project imports the plugin."""
    heavy = "{'kafka', 'confluent_kafka', 'structlog', 'safeconsumer.consumer'}"
    program = (
        "import sys, pytest, safeconsumer.testing.plugin\n"
        f"print(sorted({heavy} & set(sys.modules)))\n"
    )
    done = ran_python("-W", "error", "-c", program, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")
