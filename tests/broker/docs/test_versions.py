"""
Claims of pages about other versions of kafka-python, tested with these versions.

The table of ``docs/how-to/from-2x.md``; and ``docs/examples/observe.py``, which sees what
kafka-python leaks, and changes nothing.
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


def _said(python, program, topic=None):
    """Return the output of a program that runs a ``KafkaConsumer`` on a new broker."""
    with EmbeddedBroker() as broker:
        if topic is not None:
            broker.create_topic(topic, 1)
        command = [python, Path(__file__).with_name(program), broker.bootstrap]
        env = {"PYTHONPATH": str(ROOT / "docs" / "examples")}
        ended = ran(*command, *filter(None, [topic]), env=env, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_installed_version_behaves_as_the_table_says():
    assert _said(sys.executable, "versions.py", "t") == NEW


@pytest.mark.nightly
def test_version_2_3_behaves_as_the_table_says():
    """Version 2.3 is installed into an environment of its own."""
    assert _said(python_of("kafka-python==2.3.3"), "versions.py", "t") == OLD


def _judge(said):
    assert said["paused"] == {"counted": 0, "came": 0}
    assert said["leaked"] == {"counted": 5, "came": 5}
    assert said["iterated"] == {"counted": 10, "came": 5}
    assert said["resumed"] == {"counted": 10, "came": 5}
    assert said["lines"] == 1


def test_a_leak_of_the_installed_version_is_counted_by_poll_and_by_iteration():
    _judge(_said(sys.executable, "observed.py"))


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["2.3.3", "2.3.0"])
def test_leak_of_an_older_version_is_counted(version):
    """Programs that are not on 3.0 yet need the count most."""
    _judge(_said(python_of(f"kafka-python=={version}"), "observed.py"))
