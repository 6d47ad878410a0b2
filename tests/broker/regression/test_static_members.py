"""Members that leave a group and come back; static ones are fenced by what was theirs."""

import threading
from typing import Any

import pytest
from kafka import OffsetAndMetadata
from kafka.errors import CommitFailedError
from kafka.structs import TopicPartition

from tests.harness.regression.lab import Lab
from tests.harness.regression.support import BOUND, Reader
from tests.harness.regression.wire import Wire

any_broker = pytest.mark.any_broker


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


def joined(lab: Lab, **config: Any) -> tuple[Reader, TopicPartition]:  # noqa: ANN401 - upstream's
    topic, (p0,) = lab.topic_with(each=10, partitions=1)
    reader = lab.reader("safe", topic, group=lab.name("g"), **config)
    reader.until_joined(reader.owns([p0]))
    return reader, p0


def stall(reader: Reader, seconds: float = BOUND) -> threading.Event:
    """
    Let the IO thread do nothing, as in a listener that takes its time.

    Returns:
        Lets it go on.
    """
    stalled, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        stalled.set()
        go_on.wait(seconds)

    reader.consumer._net.call_soon_threadsafe(wait)
    assert stalled.wait(BOUND)
    return go_on


@any_broker
@pytest.mark.parametrize("automatic", [True, False])
def test_what_is_committed_before_unsubscribe_is_committed(
    lab: Lab, *, automatic: bool
) -> None:
    """It is sent while this is a member; later the broker refuses it (stock too)."""
    reader, p0 = joined(
        lab, enable_auto_commit=automatic, auto_commit_interval_ms=60_000
    )
    reader.until(lambda: len(reader.log) == 10)
    stall(reader, 0.3)
    if not automatic:
        reader.consumer.commit_async()
    reader.consumer.unsubscribe()
    assert reader.consumer.committed(p0) == 10


@any_broker
def test_a_commit_as_no_member_fences_nobody(lab: Lab) -> None:
    """
    A static member that subscribed again was fenced for good by its own old commit.

    1. ``commit_async`` while the coordinator is not known. 2. ``unsubscribe``. 3. It is
    sent without a member id, beside the ``group_instance_id``: the broker knows
    another member of that name, which is this one.
    """
    reader, p0 = joined(lab, group_instance_id=lab.name("static"))
    consumer = reader.consumer
    coordinator = consumer._coordinator
    failed: list[Exception] = []
    go_on = stall(reader)
    coordinator.commit_offsets_async({p0: at(4)}).add_errback(failed.append)
    consumer._subscription.unsubscribe()
    go_on.set()
    reader.until(lambda: failed)
    assert isinstance(failed[0], CommitFailedError)
    consumer.unsubscribe()
    consumer.subscribe([p0.topic])
    reader.until_joined(reader.owns([p0]))
    start = len(reader.log)
    lab.produce(p0)
    reader.until(lambda: len(reader.log) > start)


@any_broker
@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_subscribing_again_in_the_middle_of_a_join(
    lab: Lab, api: str, *, static: bool
) -> None:
    """The answer for the membership that is over is used for nothing; nothing is raised."""
    name = {"group_instance_id": lab.name("static")} if static else {}
    reader, p0 = joined(lab, **name)
    consumer = reader.consumer
    wire = Wire(consumer)
    wire.hold(api)
    consumer._coordinator.request_rejoin()
    reader.until(lambda: wire.held(api))
    consumer.unsubscribe()
    consumer.subscribe([p0.topic])
    release = threading.Timer(0.3, wire.release, (api,))
    release.start()
    reader.round(timeout=1.5)
    release.join(BOUND)
    reader.until_joined(reader.owns([p0]))
    reader.until(lambda: len(reader.log) >= 10)
    assert not consumer._coordinator._generation.is_lost()
