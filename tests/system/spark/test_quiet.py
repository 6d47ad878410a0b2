"""Tests when a stream counts as quiet, for operators and for its own program."""

import threading

import pytest

from safeconsumer.errors import NotQuietError
from tests.harness.spark.lake import LIMIT, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


def slow(lake, name, **options):
    """Start a stream that plans once per hour and whose tasks wait after some rows."""
    from pyspark.sql import functions  # noqa: PLC0415  if installed

    seldom = {"processingTime": "1 hour"}
    return lake.start_pausing(functions, seldom, name, **options)


@pytest.mark.nightly
def test_wait_quiet_waits_for_the_batch_that_was_planned_before_the_hold(
    lake, controller
):
    """After the hold is placed, the stream becomes quiet only when the running batch ends."""
    lake.produce(lake.orders, 20)
    query = slow(lake, "slow")
    middle = lake.data.parent / "in-the-middle"
    until(middle.exists, query)
    with pytest.raises(NotQuietError, match="it is not held"):
        controller.wait_quiet(lake.orders, timeout=0.2)
    controller.pause(lake.orders)
    with pytest.raises(NotQuietError, match=rf"slow: {lake.orders}:0-3, a batch"):
        controller.wait_quiet(timeout=0.5)
    (lake.data.parent / "go").touch()
    controller.wait_quiet(lake.orders, timeout=LIMIT)
    rows = lake.rows()
    lake.produce(lake.orders, 5)
    assert query.isActive
    assert lake.rows() == rows
    query.stop()


@pytest.mark.nightly
def test_wait_quiet_also_waits_for_a_stream_that_is_starting(
    lake, controller, monkeypatch
):
    """A restarted query repeats its unfinished batch, even if the topic is now held."""
    story = []
    go, real = threading.Event(), controller.bridge._answer

    def take(frame, number):
        story.append(f"batch {number} reads {frame.count()} rows")
        if len(story) == 1:
            message = "the job is ended in the middle"
            raise RuntimeError(message)

    def late(question, facts):
        if question == "open":
            go.wait(LIMIT)
        return real(question, facts)

    def start():
        written = lake.stream({}).writeStream.queryName("nightly").foreachBatch(take)
        written = written.option("checkpointLocation", str(lake.checkpoint))
        return written.trigger(availableNow=True).start()

    lake.produce(lake.orders, 5)
    with pytest.raises(Exception, match="ended in the middle"):
        start().awaitTermination(LIMIT)
    controller.pause("@all")
    monkeypatch.setattr(controller.bridge, "_answer", late)
    query = start()
    for _ in range(2):  # first before the stream exists, then before it is open
        with pytest.raises(NotQuietError, match="nightly: it is starting"):
            controller.wait_quiet(lake.orders, timeout=0.0)
        until(lambda: len(controller.bridge.made()) == 1, query)
    go.set()
    controller.wait_quiet(lake.orders, timeout=LIMIT)
    assert story == ["batch 0 reads 20 rows"] * 2
    assert query.awaitTermination(LIMIT)
    assert controller.bridge.made() == ()


def test_operator_waits_for_the_running_batch_of_a_stream(lake, operator):
    """G8: the stream counts as a member of the group, and reports that its batch ended."""
    with operator.looking() as look:
        lake.produce(lake.orders, 20)
        query = slow(lake, "nightly", **operator.reporting())
        until((lake.data.parent / "in-the-middle").exists, query)
        operator.hold(lake.orders)
        until(lambda: "a batch that was planned" in look(lake.orders)[1], query)
        assert not look(lake.orders)[0]
        (lake.data.parent / "go").touch()
        until(lambda: look(lake.orders)[0], query)
        assert look(lake.orders)[1] == "1 of 1 members quiet"
        query.stop()
        until(lambda: "no members" in look(lake.orders)[1])
