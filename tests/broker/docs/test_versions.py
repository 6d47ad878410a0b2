"""
Runs other versions of kafka-python to check the pages' statements about them.

The statements are the table in ``docs/how-to/from-2x.md``, and the example
``docs/examples/observe.py``, which counts the records that kafka-python leaks.
"""

import json
import sys
from pathlib import Path

import pytest

from safeconsumer.testing import EmbeddedBroker
from tests.harness.docs.pages import ROOT
from tests.harness.environments import python_of
from tests.harness.processes import ran

OLD = {
    "session_timeout_ms": 10_000,
    "acks": 1,
    "idempotent": False,
    "KafkaError is": "RuntimeError",
    "kafka.sasl": None,
    "kafka.net.sasl": "ModuleNotFoundError",
    "no broker": "NoBrokersAvailable",
    "on_assignment": ["self", "assignment"],
    "listener runs on the thread of poll": True,
    "commit in a listener": None,
    "what a listener raises": None,
}
NEW = {
    "session_timeout_ms": 45_000,
    "acks": -1,
    "idempotent": True,
    "KafkaError is": "Exception",
    "kafka.sasl": "ModuleNotFoundError",
    "kafka.net.sasl": None,
    "no broker": "KafkaTimeoutError",
    "on_assignment": ["self", "assignment", "generation"],
    "listener runs on the thread of poll": False,
    "commit in a listener": "RuntimeError",
    "what a listener raises": "KafkaError",
}


def printed(python, program, topic=None):
    """Run a program that uses ``KafkaConsumer`` on a new broker; return its JSON output."""
    with EmbeddedBroker() as broker:
        if topic is not None:
            broker.create_topic(topic, 1)
        command = [python, Path(__file__).with_name(program), broker.bootstrap]
        env = {"PYTHONPATH": str(ROOT / "docs" / "examples")}
        ended = ran(*command, *filter(None, [topic]), env=env, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_installed_kafka_python_behaves_as_in_the_table():
    assert printed(sys.executable, "versions.py", "t") == NEW


@pytest.mark.nightly
def test_kafka_python_2_3_behaves_as_in_the_table():
    """The test installs kafka-python 2.3 in an environment of its own."""
    assert printed(python_of("kafka-python==2.3.3"), "versions.py", "t") == OLD


COUNTS = {
    "paused": {"counted": 0, "came": 0},
    "leaked": {"counted": 5, "came": 5},
    "iterated": {"counted": 10, "came": 5},
    "resumed": {"counted": 10, "came": 5},
    "lines": 1,
    "gained": {"counted": 5, "came": 5},
}


def test_example_counts_the_leaks_of_the_installed_kafka_python():
    assert printed(sys.executable, "observed.py") == COUNTS


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["2.3.3", "2.3.0"])
def test_example_counts_the_leaks_of_an_earlier_kafka_python(version):
    """Programs that use a version before 3.0 need the counts, too."""
    python = python_of(f"kafka-python=={version}")
    assert printed(python, "observed.py") == COUNTS
