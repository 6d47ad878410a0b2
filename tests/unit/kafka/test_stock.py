"""Tests the behaviour of kafka-python's own consumer that our pages describe."""

import math
import os
import signal
import subprocess
import sys

import kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CorruptRecordError, KafkaError

from tests.harness.kafka.broken import KINDS
from tests.harness.kafka.fetches import answer, assigned
from tests.harness.kafka.offline import offline

TP = TopicPartition("orders", 0)


def test_pause_of_an_unassigned_partition_raises_key_error_and_is_half_applied():
    with offline(KafkaConsumer) as consumer:
        consumer.assign([TP])
        with pytest.raises(KeyError):
            consumer.pause(TP, TopicPartition("orders", 1))
        assert consumer.paused() == {TP}


@pytest.mark.parametrize("target", ["orders", ("orders", 3)], ids=["text", "tuple"])
def test_pause_accepts_partitions_only(target):
    with offline(KafkaConsumer) as consumer, pytest.raises(TypeError):
        consumer.pause(target)


def test_resume_returns_nothing_and_a_pause_keeps_positions():
    with offline(KafkaConsumer) as consumer:
        assigned(consumer, TP)
        consumer.seek(TP, 7)
        consumer.pause(TP)
        assert consumer.resume(TP) is None
        assert consumer.position(TP) == 7


def test_error_for_a_wrong_checksum_does_not_name_the_partition():
    broken, error = KINDS[1].values
    assert error is CorruptRecordError
    with offline(KafkaConsumer) as consumer:
        assigned(consumer, TP)
        consumer.seek(TP, 2)
        answer(consumer, TP, 2, broken)
        with pytest.raises(CorruptRecordError) as caught:
            consumer.poll(0)
    assert not hasattr(caught.value, "partition")


@pytest.mark.parametrize("time_of", [math.inf, math.nan])
def test_offsets_for_times_raises_an_error_for_an_infinite_or_undefined_time(time_of):
    with offline(KafkaConsumer) as consumer, pytest.raises((OverflowError, ValueError)):
        consumer.offsets_for_times({TP: time_of})


def test_unknown_reset_policy_causes_only_a_warning(caplog):
    with offline(KafkaConsumer, auto_offset_reset="first") as consumer:
        assert consumer.config["auto_offset_reset"] == "first"
    assert "Unrecognized offset_reset_strategy" in caplog.text


def test_defaults_of_the_clients_match_our_pages():
    """The defaults include a 45 s session timeout and an idempotent producer."""
    assert KafkaConsumer.DEFAULT_CONFIG["session_timeout_ms"] == 45_000
    assert KafkaConsumer.DEFAULT_CONFIG["auto_offset_reset"] == "latest"
    assert KafkaConsumer.DEFAULT_CONFIG["fetch_max_wait_ms"] == 500
    assert KafkaConsumer.DEFAULT_CONFIG["max_poll_records"] == 500
    assert KafkaProducer.DEFAULT_CONFIG["enable_idempotence"] is True
    assert KafkaProducer.DEFAULT_CONFIG["acks"] in {-1, "all"}
    assert KafkaError.__bases__ == (Exception,)


def test_kafka_python_does_not_support_newer_group_protocols():
    """kafka-python supports neither KIP-848 groups nor share groups."""
    assert "group_protocol" not in KafkaConsumer.DEFAULT_CONFIG
    assert not [name for name in dir(kafka) if "share" in name.lower()]


def test_poll_after_a_fork_does_not_return():
    """The child has no IO thread, and even a poll with a timeout of 0 waits for it."""
    with offline(KafkaConsumer) as consumer:
        assigned(consumer, TP)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            consumer.poll(0)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGALRM


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 warns no more")
def test_import_of_kafka_python_warns_on_python_3_11():
    """``importlib.resources`` warns for each message of Kafka's protocol."""
    command = [sys.executable, "-W", "always", "-c", "import kafka"]
    ended = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603 - our own code
    assert 150 < ended.stderr.count("_text is deprecated") < 250
