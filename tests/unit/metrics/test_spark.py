"""What a listener has heard of Spark's queries, as metrics."""

import pytest

from safeconsumer import MetricsSourceError
from safeconsumer.metrics import Collector
from safeconsumer.metrics.reading import Readings
from safeconsumer.spark.listening import Progress
from tests.harness.kafka.fixtures import Maker
from tests.harness.metrics.scraping import needs_promtool, promtool, text_of, values
from tests.system.spark.test_listening import progress


def test_held_partitions_and_what_was_read() -> None:
    """By the query's name; one that has ended has no series."""
    heard = Progress(())
    heard.take(progress(5, heldPartitions="0", heldLag="0"))
    heard.take(progress(3, heldPartitions="2", heldLag="7"))
    assert values(heard) == {
        'spark_held_partitions{query="nightly"}': 2,
        'spark_held_lag_offsets{query="nightly"}': 7,
        'spark_undecided{query="nightly"}': 0,
        'spark_batches_total{query="nightly"}': 2,
        'spark_read_records_total{query="nightly"}': 8,
    }
    heard.end("3-4")
    assert values(heard) == {}


def test_what_cannot_be_told_is_a_figure() -> None:
    """Everything is held then, and nothing else says that it is no hold."""
    heard = Progress(())
    heard.take(progress(0, heldPartitions="4", heldLag="9", heldBecause="no file"))
    assert values(heard)['spark_undecided{query="nightly"}'] == 1


def test_sessions_whose_queries_have_one_name() -> None:
    """One series, with what they have together; undecided where one is."""
    one, other = Progress(()), Progress(())
    one.take(progress(5, heldPartitions="1", heldLag="4", heldBecause="no file"))
    other.take(progress(6, heldPartitions="2", heldLag="3", heldBecause="no file"))
    found = values(one, other)
    assert found['spark_held_partitions{query="nightly"}'] == 3
    assert found['spark_read_records_total{query="nightly"}'] == 11
    assert found['spark_undecided{query="nightly"}'] == 1


def test_counters_never_go_back() -> None:
    """Neither where a query is begun again, nor where one session of two ends its own."""
    one, other = Progress(()), Progress(())
    one.take(progress(5, heldPartitions="1", heldLag="4"))
    other.take(progress(6, heldPartitions="2", heldLag="3"))
    read = 'spark_read_records_total{query="nightly"}'
    assert values(one, other)[read] == 11
    one.end("3-4")
    found = values(one, other)
    assert (found[read], found['spark_batches_total{query="nightly"}']) == (11, 2)
    assert found['spark_held_partitions{query="nightly"}'] == 2
    one.take(progress(1, heldPartitions="1", heldLag="4"))
    assert values(one, other)[read] == 12
    for _ in range(2):
        other.end("3-4")
        one.end("3-4")
    assert values(one, other) == {}
    one.take(progress(1, heldPartitions="1", heldLag="4"))
    assert values(one)[read] == 7


def test_beside_consumers(safe: Maker) -> None:
    """Their labels are their own; a source is there once, and can be left out again."""
    heard = Progress(())
    heard.take(progress(5, heldPartitions="1", heldLag="4"))
    readings = Readings(safe(client_id="a"), safe(client_id="b"), heard, heard)
    found = {metric.name: samples for metric, samples in readings.read()}
    (sample,) = found["spark_batches_total"]
    assert sample.labels == {"query": "nightly"}
    assert set(found["holds"][0].labels) == {"client_id", "group", "kind"}
    readings.remove(heard)
    assert "spark_batches_total" not in dict(readings.read())


def test_something_else_is_refused() -> None:
    with pytest.raises(MetricsSourceError, match=r"spark\.listener\(\)"):
        Collector("spark")


@needs_promtool
def test_promtool_finds_nothing() -> None:
    heard = Progress(())
    heard.take({**progress(5, heldPartitions="1", heldLag="4"), "name": 'a "b"\n'})
    assert not promtool("check", "metrics", given=text_of(heard)).strip()
