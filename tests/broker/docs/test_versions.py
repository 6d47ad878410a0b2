"""The table of ``docs/how-to/from-2x.md``, by kafka-python 2.3 and 3.0 themselves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from safeconsumer.testing import EmbeddedBroker
from tests.harness.environments import python_of

_PROGRAM = Path(__file__).with_name("versions.py")  # it makes a ``KafkaConsumer``

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


def _said(python):
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1)
        command = [str(python), str(_PROGRAM), broker.bootstrap, "t"]
        ended = subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, check=False, text=True, timeout=120
        )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_installed_version_is_as_the_table_says_of_3():
    assert _said(Path(sys.executable)) == NEW


@pytest.mark.nightly
def test_2_3_is_as_the_table_says_of_it():
    """It is installed into an environment of its own."""
    assert _said(python_of("kafka-python==2.3.3")) == OLD
