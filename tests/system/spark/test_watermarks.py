"""What a hold does to event time, and the remedy."""

import time
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.harness.spark.lake import LIMIT, Lake, progress

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


# Where windows of ten seconds begin, and not so long ago that a broker deletes it.
BASE = int(time.time()) // 10 * 10 - 86_400


def write(lake: Lake, topic: str, *seconds: int) -> None:
    producer = KafkaProducer(**lake.broker.client_config)
    for at in seconds:
        producer.send(topic, b"x", partition=0, timestamp_ms=(BASE + at) * 1000).get(10)
    producer.close()


def dropped(lake: Lake, frame: Any) -> int:  # noqa: ANN401 - a DataFrame
    from pyspark.sql import functions  # noqa: PLC0415  only where it is installed

    counted = frame.groupBy(functions.window("timestamp", "10 seconds"), "topic")
    query = (
        counted.count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(lake.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(LIMIT)
    return sum(
        one["stateOperators"][0]["numRowsDroppedByWatermark"]
        for one in progress(query)
        if one["stateOperators"]
    )


def one_stream(lake: Lake, holds: str) -> Any:  # noqa: ANN401 - a DataFrame
    frame = lake.stream({"holds": holds})
    return frame.withWatermark("timestamp", "1 second")


def stream_per_topic(lake: Lake, holds: str) -> Any:  # noqa: ANN401 - a DataFrame
    first, second = (
        lake.stream({"holds": holds, "subscribe": topic}).withWatermark(
            "timestamp", "1 second"
        )
        for topic in (lake.orders, lake.returns)
    )
    return first.union(second)


@pytest.mark.parametrize(
    ("make", "late"), [(one_stream, 1), (stream_per_topic, 0)], ids=["one", "union"]
)
def test_rows_of_a_held_topic_come_back_late(lake: Lake, make: Any, late: int) -> None:  # noqa: ANN401 - a function
    """
    One stream's watermark follows what flows; a union's waits for the slowest stream.

    Spark counts the late rows of one window as one: they are summed up before that.
    """
    write(lake, lake.orders, 1000, 1001, 1002)
    write(lake, lake.returns, 1000, 9000)
    assert dropped(lake, make(lake, lake.orders)) == 0
    write(lake, lake.returns, 9001)
    assert dropped(lake, make(lake, "")) == late
