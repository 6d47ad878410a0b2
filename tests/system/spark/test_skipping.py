"""Tests that a stream skips offsets on request and commits its progress to a group."""

import subprocess
import sys
from contextlib import suppress

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from tests.harness.spark.driver import Driven
from tests.harness.spark.lake import LIMIT, metrics, progress, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(900)]

EVERY = {"processingTime": "100 milliseconds"}


def failing(lake, *bad, **options):
    """Run a stream that fails at these records, given as partition and offset."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415  if installed
    from pyspark.sql import functions  # noqa: PLC0415  if installed

    is_bad = " or ".join(f"(partition = {one} and offset = {at})" for one, at in bad)
    offset = functions.expr(f"if({is_bad}, raise_error('poison'), offset)")
    frame = lake.stream({"subscribe": lake.orders, **options})
    frame = frame.select("topic", "partition", offset.cast("long").alias("offset"))
    query = lake.write(frame)
    with suppress(StreamingQueryException):
        query.awaitTermination(LIMIT)
    error = query.exception()
    assert error is None or "poison" in str(error)
    return progress(query) if error is None else None


def last(query):
    """Return the metrics of the last trigger."""
    return metrics(progress(query)[-1:] or [{"sources": [{"metrics": {}}]}])[0]


def skipped(lake, **partitions):
    """Return the produced records, except those skipped in each named partition."""
    return {
        (topic, number, offset): 1
        for topic, number, offset in lake.produced()
        if offset >= partitions.get(f"p{number}", 0)
    }


@pytest.mark.contract("S8")
@pytest.mark.nightly
def test_two_poison_records_of_one_batch_are_skipped_one_after_the_other(
    lake, controller
):
    """Spark repeats the logged batch; the checkpoint stores the first skip for that batch."""
    lake.produce(lake.orders, 10)
    bad = (0, 4), (1, 6)
    assert failing(lake, *bad) is None
    controller.skip(f"{lake.orders}:0", to=5, reason="4 is poison")
    assert failing(lake, *bad) is None
    controller.skip(f"{lake.orders}:1", to=7, reason="6 is poison", owner="alice")
    assert failing(lake, *bad) is not None
    assert lake.rows() == skipped(lake, p0=5, p1=7)
    lake.produce(lake.orders, 5)
    controller.skip(f"{lake.orders}:2", to=12, reason="of another day")
    batches = metrics(failing(lake, *bad))
    line = f"{lake.orders}:2: offsets 10 to 11 are skipped, by app: of another day"
    assert batches[0]["skipped"] == line
    there = skipped(lake, p0=5, p1=7)
    assert lake.rows() == {
        row: 1 for row in there if row[1] != 2 or row[2] not in {10, 11}
    }


@pytest.mark.contract("S8")
@pytest.mark.parametrize("limit", [pytest.param(None, marks=pytest.mark.nightly), "8"])
def test_records_deleted_during_a_hold_are_reported_and_skipped(
    lake, controller, events, limit
):
    """D10: the stream reports the loss during the hold; it delivers other records once."""
    lake.produce_both(10)
    options = {} if limit is None else {"maxOffsetsPerTrigger": limit}
    controller.pause(lake.orders)
    query = lake.start(trigger=EVERY, **options)
    until(lambda: lake.rows() == lake.produced(lake.returns), query)
    with KafkaAdminClient(**lake.broker.client_config) as admin:
        admin.delete_records({TopicPartition(lake.orders, 3): 6})
    controller.pause(lake.returns)  # a change to the held partitions triggers a check
    line = f"{lake.orders}:3: the 6 records from offset 0 on are deleted already"
    until(lambda: last(query).get("heldLost") == line, query)
    controller.skip(f"{lake.orders}:3", to=6, reason="retention")
    until(lambda: any(one.name == "spark_offsets_skipped" for one in events), query)
    controller.resume(lake.orders)
    there = [
        row for row in lake.produced() if row[:2] != (lake.orders, 3) or row[2] > 5
    ]
    until(lambda: lake.rows() == dict.fromkeys(there, 1), query)
    query.stop()


@pytest.mark.contract("S8")
@pytest.mark.nightly
def test_driver_killed_during_a_batch_with_a_skip_repeats_the_skip(lake):
    """The driver is killed twice after a request to skip; each run skips the same offsets."""
    driven = Driven(lake)
    lake.produce_both(50)
    driven.hold()
    (driven.folder / "skip").write_text(f"{lake.orders}:0 20")
    driven.kill_in_the_middle()
    (driven.folder / "skip").unlink()
    driven.kill_in_the_middle()
    driven.finish()
    gone = {(lake.orders, 0, offset) for offset in range(20)}
    assert driven.rows() == {row: 1 for row in lake.produced() if row not in gone}


def committed(lake, group):
    with KafkaAdminClient(**lake.broker.client_config) as admin:
        found = admin.list_group_offsets({group: None})[group]
    return {tuple(tp): one.offset for tp, one in found.items()}


@pytest.mark.contract("S7")
def test_stream_commits_its_progress_to_a_group_of_its_own(lake, controller, operator):
    """
    The command ``status``, like any other tool, shows the lag of held partitions.

    A run waits for its last commit for at most three seconds, so the commit may follow
    later.
    """
    lake.produce_both(10)
    group = f"progress-{lake.orders}"
    controller.pause(f"{lake.orders}:2")
    lake.run(commitGroup=group, maxOffsetsPerTrigger="30")
    ends = dict.fromkeys({row[:2] for row in lake.produced()}, 10)
    until(lambda: committed(lake, group) == {**ends, (lake.orders, 2): 0})
    command = [sys.executable, "-m", "safeconsumer", "status", "--group", group]
    command += ["--bootstrap", lake.broker.bootstrap]
    command += ["--topic-prefix", operator.team.prefix]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert "lag 10" in done.stdout, done
    controller.resume(f"{lake.orders}:2")
    lake.run(commitGroup=group)
    until(lambda: committed(lake, group) == ends)


@pytest.mark.contract("S7")
def test_progress_group_with_commits_of_others_is_refused(lake):
    """The group has no members, but a stopped fleet would later resume at wrong offsets."""
    group = f"fleet-{lake.orders}"
    tp = TopicPartition(lake.orders, 0)
    with KafkaAdminClient(**lake.broker.client_config) as admin:
        admin.alter_group_offsets(group, {tp: OffsetAndMetadata(3, "", None)})
    lake.produce(lake.orders, 5)
    with pytest.raises(Exception, match="has offsets that others committed"):
        lake.run(commitGroup=group)
    assert committed(lake, group) == {(lake.orders, 0): 3}
    assert lake.rows() == {}


@pytest.mark.contract("S7")
@pytest.mark.nightly
def test_progress_group_that_a_member_joins_is_not_overwritten_and_no_batch_fails(
    lake, events
):
    """Kafka refuses the commits; one event reports the refusal, and the stream retries."""
    group = f"progress-{lake.orders}"
    lake.produce(lake.orders, 5)
    query = lake.start(trigger=EVERY, commitGroup=group)
    until(lambda: len(committed(lake, group)) == 8, query)
    # The member must not commit, because a stream refuses a group in which others have
    # committed.
    member = KafkaConsumer(
        group_id=group, enable_auto_commit=False, **lake.broker.client_config
    )
    member.subscribe([lake.returns])
    until(lambda: member.poll(100) is not None and member.assignment(), query)
    lake.produce(lake.orders, 5)
    until(lambda: lake.rows() == lake.produced(), query)
    named = "spark_progress_not_committed"
    until(lambda: [one.group for one in events if one.name == named] == [group], query)
    assert committed(lake, group)[lake.orders, 0] == 5
    member.close()
    lake.produce(lake.orders, 5)
    until(lambda: committed(lake, group)[lake.orders, 0] == 15, query)
    until(lambda: [one.reason for one in events if one.name == named][-1] == "", query)
    query.stop()
