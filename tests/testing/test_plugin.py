import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

USERS_CONFIG = (
    "[pytest]\nfilterwarnings =\n    error\n    ignore:.*_text is deprecated\n"
)

USERS_TESTS = """
from kafka import KafkaConsumer


def ready(make_consumer, make_producer, topic):
    producer = make_producer()
    for number in range(40):
        producer.send(topic, b"%d" % number, partition=number % 4)
    producer.flush(10)
    consumer = make_consumer(KafkaConsumer, topic, group="g-" + topic)
    while len(consumer.assignment()) < 4:
        consumer.poll(500, max_records=1)
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
    kafka_topic, make_consumer, make_producer, force_rebalance, assert_no_leak
):
    topic = kafka_topic()
    consumer = ready(make_consumer, make_producer, topic)
    consumer.pause(*consumer.assignment())
    with assert_no_leak(consumer):
        force_rebalance("g-" + topic, [topic], consumer)
        for _ in range(20):
            consumer.poll(100)
"""


def test_a_user_has_the_fixtures(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    In a project with nothing set up they work; a leak is a failed test that names it.
    """
    pytester.makeini(USERS_CONFIG)
    pytester.makepyfile(USERS_TESTS)
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*records of paused partitions delivered by*"])


def test_fixtures_say_how_they_are_called(pytester: pytest.Pytester) -> None:
    """
    ``pytest --fixtures`` tells all that one needs to know.
    """
    result = pytester.runpytest_subprocess("--fixtures", timeout=60)
    result.stdout.fnmatch_lines_random(
        [
            "kafka_broker *",
            "*kafka_topic(partitions=4)*",
            "*make_consumer(cls, *topics, group=None, **config)*",
            "*make_producer(**config)*",
            "*force_rebalance(group, topics, *consumers, timeout=30)*",
            "*Fail if records of paused partitions are delivered.*",
        ]
    )


def test_the_plugin_costs_other_projects_nothing(tmp_path: Path) -> None:
    """
    Loading it imports neither Kafka nor our core: it is loaded in every session.
    """
    heavy = "{'kafka', 'confluent_kafka', 'structlog', 'safeconsumer.consumer'}"
    program = (
        "import sys, pytest, safeconsumer.testing.plugin\n"
        f"print(sorted({heavy} & set(sys.modules)))\n"
    )
    done = subprocess.run(  # noqa: S603  our own command line
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
