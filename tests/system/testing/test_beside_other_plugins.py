"""Tests the test kit's pytest plugin together with other common plugins."""

import pytest

from tests.harness.environments import packages_of

pytest_plugins = ["pytester"]

CONFIG = """
[pytest]
asyncio_default_fixture_loop_scope = function
filterwarnings =
    error
    ignore:.*_text is deprecated
"""

PROJECT = """
import asyncio

import pytest
from kafka import KafkaConsumer


@pytest.fixture(params=range(3))
def topic(request, kafka_topic, make_producer):
    name = kafka_topic(partitions=1)
    make_producer().send(name, b"%d" % request.param).get(20)
    return name


def read(consumer):
    return [one for batch in consumer.poll(20_000).values() for one in batch]


def test_records_come(topic, make_consumer):
    assert len(read(make_consumer(KafkaConsumer, topic))) == 1


@pytest.mark.asyncio
async def test_records_come_beside_an_event_loop(topic, make_consumer):
    consumer = make_consumer(KafkaConsumer, topic)
    assert len(await asyncio.to_thread(read, consumer)) == 1
"""


@pytest.fixture(scope="module")
def others():
    """Return the other plugins, installed before pytester changes the home folder."""
    return packages_of("pytest-asyncio pytest-randomly pytest-cov")


@pytest.mark.parametrize(
    "options",
    [
        ("-p", "no:xdist"),
        pytest.param(
            ("-n", "2", "--cov=safeconsumer.testing.fixtures", "--cov-report="),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["no xdist", "cov and xdist"],
)
def test_fixtures_work_with_pytest_asyncio_and_pytest_randomly(
    others, pytester, monkeypatch, options
):
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(others))
    pytester.makeini(CONFIG)
    pytester.makepyfile(PROJECT)
    asked = ("-p", "safeconsumer.testing.fixtures", *options)
    result = pytester.runpytest_subprocess(*asked, timeout=100)
    result.assert_outcomes(passed=6)
