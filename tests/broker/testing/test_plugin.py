import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safeconsumer.testing import BrokerTypeError, EmbeddedBroker, broker_of
from tests.harness.docs.pages import ROOT, blocks

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


@pytest.mark.any_broker
def test_a_rebalance_of_another_group_is_refused(
    force_rebalance: Callable[..., Any],
) -> None:
    """For a mistyped name it waited half a minute, and blamed the members."""
    member = SimpleNamespace(config={"group_id": "billing"}, poll=dict)
    with pytest.raises(ValueError, match=r"is of group 'biling', .* of 'billing'"):
        force_rebalance("biling", "orders", member)


def test_a_user_has_the_fixtures(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a project with nothing set up they work; what a rebalance leaks is returned."""
    pytester.makeini(USERS_CONFIG)
    pytester.makeconftest(ASKED_FOR)
    pytester.makepyfile(USERS_TESTS)
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([">*assert not leaked"])


FAILS_WHILE_FROZEN = """
def test_fails(kafka_broker):
    kafka_broker.freeze()
    assert False


def test_comes_next(kafka_topic, make_consumer, kafka_broker):
    from kafka import KafkaConsumer
    assert make_consumer(KafkaConsumer, kafka_topic(), request_timeout_ms=5000).topics()
"""


def test_a_test_that_failed_leaves_the_next_one_a_broker_without_faults(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is lent for a whole session."""
    pytester.makeini(USERS_CONFIG)
    pytester.makeconftest(ASKED_FOR)
    pytester.makepyfile(FAILS_WHILE_FROZEN)
    monkeypatch.delenv("SAFECONSUMER_TEST_BOOTSTRAP", raising=False)
    pytester.runpytest_subprocess(timeout=100).assert_outcomes(passed=1, failed=1)


def test_the_test_on_the_page_can_fail(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_nobody_has_the_fixtures_who_did_not_ask(pytester: pytest.Pytester) -> None:
    """Another plugin's fixtures of these names are that plugin's, whoever loads first."""
    pytester.makepyfile(others_plugin=OTHERS_PLUGIN)
    pytester.makepyfile(OTHERS_TEST)
    result = pytester.runpytest_subprocess("-p", "others_plugin", timeout=60)
    result.assert_outcomes(passed=1)
    result = pytester.runpytest_subprocess("--fixtures", timeout=60)
    result.stdout.no_fnmatch_line("*kafka_*")


class Container:
    """What testcontainers' ``KafkaContainer`` offers."""

    def get_bootstrap_server(self) -> str:
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
def test_a_broker_may_be_anything_that_says_where_it_is(
    given: object, expected: str
) -> None:
    """Text, an object with an address, a container of testcontainers."""
    assert broker_of(given).client_config == {"bootstrap_servers": expected.split(",")}


def test_a_broker_of_the_kit_is_taken_as_it_is() -> None:
    """It knows more of itself than its address."""
    broker = EmbeddedBroker()
    assert broker_of(broker) is broker


@pytest.mark.parametrize(
    "given", ["localhost", "", "a:b", None, 9092, SimpleNamespace(bootstrap=9092)]
)
def test_what_is_no_broker_is_refused(given: object) -> None:
    """The error says what would have been one."""
    with pytest.raises(BrokerTypeError, match="expected an address such as"):
        broker_of(given)


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
def test_a_broker_of_ones_own_works_with_the_other_fixtures(
    pytester: pytest.Pytester,
    kafka_broker: Any,  # noqa: ANN401 - one of several kinds
) -> None:
    """Topics, producers and consumers are at the broker that the user's fixture gave."""
    pytester.makeconftest(USERS_BROKERS.format(bootstrap=kafka_broker.bootstrap))
    pytester.makepyfile(ROUND_TRIP)
    result = pytester.runpytest_subprocess(timeout=100)
    result.assert_outcomes(passed=3)


def test_the_plugin_costs_other_projects_nothing(tmp_path: Path) -> None:
    """Loading it imports neither Kafka nor our core: it is loaded in every session."""
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
