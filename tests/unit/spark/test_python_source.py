"""Tests the Python source without Spark and without a broker."""

from types import SimpleNamespace

import pytest
from attrs import evolve
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer.errors import SparkSetupError, StreamStalledError
from safeconsumer.spark import platforms
from safeconsumer.spark.python import SafeKafkaSource, reading, settings
from safeconsumer.spark.python.planner import limited
from safeconsumer.spark.python.reading import KeptClient, Range, RangeReading

TP = TopicPartition("orders", 0)
OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}


@pytest.mark.contract("S9")
@pytest.mark.parametrize("version", ["3.5.7", "4.0.2", "4.1.2"])
def test_spark_before_4_2_is_refused_when_the_source_is_registered(
    monkeypatch, version
):
    found = platforms.Version.parse(version)
    monkeypatch.setattr(platforms, "spark_version", lambda: found)
    with pytest.raises(SparkSetupError, match=f"needs Spark 4.2, this is {version}"):
        SafeKafkaSource.name()


def test_python_source_has_the_same_format_name_as_the_shim(monkeypatch):
    found = platforms.Version.parse("4.2.0")
    monkeypatch.setattr(platforms, "spark_version", lambda: found)
    assert SafeKafkaSource.name() == "safekafka"


@pytest.mark.parametrize(
    ("sizes", "most", "shares"),
    [
        ((100, 300), 40, (10, 30)),
        ((100, 300), 400, (100, 300)),
        ((100, 300), 1, (1, 1)),
        ((1, 999), 10, (1, 9)),
        ((0, 50), 10, (0, 10)),
        ((10, 10, 10), 10, (3, 3, 3)),
    ],
)
def test_limit_is_shared_among_partitions_as_in_the_official_source(
    sizes, most, shares
):
    """A share below one becomes one, and other shares are rounded down."""
    begins = {("orders", number): 7 for number in range(len(sizes))}
    ends = {("orders", number): 7 + size for number, size in enumerate(sizes)}
    found = limited(begins, ends, most)
    assert tuple(found["orders", n] - 7 for n in range(len(sizes))) == shares


class Log:
    """A consumer of one partition that has records only at these offsets."""

    def __init__(self, *offsets, end):
        self.offsets, self.last = offsets, end
        self.at = 0

    def poll(self, _wait_ms, max_records):
        found = [one for one in self.offsets if one >= self.at][:max_records]
        self.at = found[-1] + 1 if found else self.last
        return {TP: [SimpleNamespace(offset=one) for one in found]} if found else {}

    def position(self, _tp):
        return self.at


def read(log, start, end):
    found = evolve(settings.parse(OPTIONS), patience=0.0)
    log.at = start
    reading = RangeReading(found, Range("orders", 0, start, end), log)
    rows = []
    while not reading.is_over:
        rows += reading.turn()
    return [one.offset for one in rows]


@pytest.mark.parametrize(("start", "end"), [(0, 50), (0, 5), (1, 8), (2, 30), (8, 31)])
def test_no_record_after_the_end_of_a_range_is_read_even_if_the_end_is_in_a_gap(
    start, end
):
    log = Log(0, 1, 7, 30, end=50)
    wanted = [one for one in log.offsets if start <= one < end]
    assert read(log, start, end) == wanted


@pytest.mark.contract("S9")
def test_stalled_range_raises_an_error_instead_of_ending_early():
    with pytest.raises(StreamStalledError, match="no record came at offset 3 for"):
        read(Log(0, 1, 2, end=3), 0, 9)


class Failing:
    """A fake consumer with one method that fails."""

    def __init__(self, fails):
        self.fails = fails
        self.is_closed = False

    def __getattr__(self, name):
        def call(*_arguments):
            if name == self.fails:
                raise KafkaTimeoutError

        return call

    def close(self, **_how):
        self.is_closed = True


@pytest.mark.parametrize("fails", ["assign", "seek", "topic ids"])
def test_client_is_closed_if_it_cannot_be_prepared_for_a_range(monkeypatch, fails):
    """Topic ids are requested only if the client was kept from an earlier range."""
    consumer = Failing(fails)

    def ids(_consumer, names):
        consumer.__getattr__("topic ids")()
        return dict.fromkeys(names)

    monkeypatch.setattr(reading, "topic_ids", ids)
    monkeypatch.setattr(reading, "SafeConsumer", lambda **_: consumer)
    monkeypatch.setattr(KeptClient, "_idle", {})
    found = settings.parse(OPTIONS)
    if fails == "topic ids":
        KeptClient.take(found, Range("orders", 0, 0, 5)).give_back(
            Range("orders", 0, 5, 5, topic_id="a")
        )
    with pytest.raises(KafkaTimeoutError):
        KeptClient.take(found, Range("orders", 0, 7, 9, topic_id="a"))
    assert consumer.is_closed
    assert KeptClient._idle == {}


def test_kept_client_of_a_recreated_topic_is_closed(monkeypatch):
    """The kept client has fetched records of the old topic."""
    made = []

    def consumer(**_):
        made.append(Failing(None))
        return made[-1]

    monkeypatch.setattr(
        reading, "topic_ids", lambda _, names: dict.fromkeys(names, "b")
    )
    monkeypatch.setattr(reading, "SafeConsumer", consumer)
    monkeypatch.setattr(KeptClient, "_idle", {})
    found = settings.parse(OPTIONS)
    KeptClient.take(found, Range("orders", 0, 0, 5)).give_back(
        Range("orders", 0, 5, 5, topic_id="a")
    )
    taken = KeptClient.take(found, Range("orders", 0, 7, 9, topic_id="a"))
    old, new = made
    assert old.is_closed
    assert not new.is_closed
    assert taken.consumer is new
