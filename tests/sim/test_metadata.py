"""
One wrong metadata response does not remove a topic; ``allow_auto_create_topics`` works.

A broker that is starting, or that has stale metadata, sends such a response. A topic that
was really deleted leaves the assignment.
"""

from contextlib import suppress

import pytest
from kafka import TopicPartition
from kafka.errors import (
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownTopicOrPartitionError,
)

from safeconsumer import SafeConsumer
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE, EAGER, Reader, stock_fails

each_error = pytest.mark.parametrize(
    "error",
    [
        UnknownTopicOrPartitionError,
        LeaderNotAvailableError,
        TopicAuthorizationFailedError,
        UnknownError,
    ],
)
# One case without a group, and one with one member, by either protocol.
each_group = pytest.mark.parametrize(
    ("group", "assignor"),
    [(None, EAGER), (GROUP, EAGER), (GROUP, COOPERATIVE)],
    ids=["alone", "eager", "cooperative"],
)
each_way = pytest.mark.parametrize("way", ["topics", "pattern"])


def reading(lab, way, kind=SafeConsumer, **settings):
    """Read all of a topic with two partitions, and pause the first."""
    tps = lab.topic("t", 2, records=5)
    reader = Reader(lab, kind, metadata_max_age_ms=1000, **settings)
    if way == "topics":
        reader.consumer.subscribe(["t"])
    elif way == "pattern":
        reader.consumer.subscribe(pattern="t.*")
    else:
        reader.consumer.assign(tps)
    reader.until(lambda: len(reader.log) == 10)
    reader.consumer.pause(tps[0])
    return reader, tps


def goes_on(lab, reader, tps):
    """Assert that the pause lasts, and that no record is skipped or repeated."""
    since = len(reader.log)
    reader.is_silent(seconds=5)
    for tp in tps:
        lab.append(tp, 5, first=5)
    reader.until(lambda: len(reader.log) >= since + 5)
    assert reader.consumer.quiet() == {tps[0]}
    reader.consumer.resume(tps[0])
    reader.until(lambda: len(reader.log) >= since + 10)
    for tp in tps:
        assert reader.offsets(tp, since) == [*range(5, 10)]


@pytest.mark.parametrize(
    ("error", "way", "group", "assignor"),
    [
        (UnknownTopicOrPartitionError, "topics", None, EAGER),
        (UnknownTopicOrPartitionError, "pattern", GROUP, EAGER),
        (UnknownTopicOrPartitionError, "topics", GROUP, COOPERATIVE),
        (LeaderNotAvailableError, "topics", None, EAGER),
        (LeaderNotAvailableError, "pattern", GROUP, COOPERATIVE),
        (TopicAuthorizationFailedError, "topics", GROUP, EAGER),
        (UnknownError, "pattern", None, EAGER),
    ],
)
@simulated(seeds=1, nightly=10)
def test_one_metadata_error_does_not_end_a_pause_or_repeat_a_record(
    lab, error, way, group, assignor
):
    reader, tps = reading(lab, way, group_id=group, assignor=assignor)
    lab.cluster.fail("Metadata", error=error.errno, count=1)
    goes_on(lab, reader, tps)


@stock_fails("the topic leaves the assignment and returns")
@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError, UnknownError])
def test_one_metadata_error_does_not_repeat_a_record_without_a_group(lab, kind, error):
    reader, tps = reading(lab, "topics", kind, group_id=None)
    lab.cluster.fail("Metadata", error=error.errno, count=1)
    goes_on(lab, reader, tps)


@each_error
def test_manual_assignment_continues_after_a_metadata_error(lab, error):
    reader, tps = reading(lab, "assign", group_id=None)
    failing = lab.cluster.fail("Metadata", error=error.errno, count=1)
    reader.until(lambda: not failing.count)
    lab.sleep(0.01)
    assert reader.consumer.partitions_for_topic("t") == {0, 1}
    goes_on(lab, reader, tps)


@simulated(seeds=1, nightly=10)
def test_topic_stays_assigned_while_it_has_no_leader(lab):
    reader, tps = reading(lab, "topics", group_id=None)
    late = lab.cluster.fail("Metadata", error=LeaderNotAvailableError.errno)
    reader.is_silent(seconds=20)
    late.end()
    goes_on(lab, reader, tps)


@each_group
@simulated(seeds=1, nightly=10)
def test_one_metadata_response_without_the_topic_does_not_end_a_pause(
    lab, group, assignor
):
    """A pattern requests all topics; a broker with stale metadata omits a new topic."""
    reader, tps = reading(lab, "pattern", group_id=group, assignor=assignor)
    topics = lab.cluster.topics._by_name
    left_out = {"t": topics.pop("t")}
    asked = lab.kinds().count("Metadata")
    lab.until(lambda: lab.kinds().count("Metadata") > asked)
    topics.update(left_out)
    goes_on(lab, reader, tps)


@each_group
@each_way
@simulated(seeds=1, nightly=10)
def test_deleted_topic_leaves_the_assignment(lab, way, group, assignor):
    """Two responses, a tenth of a second apart, lack the topic."""
    settings = {"allow_auto_create_topics": False, "assignor": assignor}
    reader, _ = reading(lab, way, group_id=group, **settings)
    lab.cluster.delete_topic("t")
    reader.owns([], seconds=5)


# ------------------------------------------------------------ allow_auto_create_topics=False

MISSING = TopicPartition("none", 0)


def subscribe(reader):
    reader.consumer.subscribe(["t", "none"])
    reader.is_silent(of=[MISSING])


def assign(reader):
    reader.consumer.assign([MISSING])
    reader.is_silent()


def ask_for_the_end(reader):
    with suppress(KafkaTimeoutError):
        reader.consumer.end_offsets([MISSING], timeout_ms=2000)


QUESTIONS = (subscribe, assign, ask_for_the_end)
each_question = pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)


@each_question
@stock_fails("the setting does not reach the request")
def test_no_request_creates_a_topic(lab, kind, ask):
    lab.topic("t", 1)
    ask(Reader(lab, kind, allow_auto_create_topics=False))
    lab.sleep(1)
    assert lab.cluster.topics.get("none") is None


@each_question
def test_by_default_the_broker_creates_the_topic(lab, ask):
    """Kafka's ``auto.create.topics.enable`` decides, as with kafka-python."""
    lab.topic("t", 1)
    ask(Reader(lab, SafeConsumer))
    lab.until(lambda: lab.cluster.topics.get("none") is not None)


@stock_fails("the setting does not reach the request")
def test_topic_that_is_deleted_while_it_is_held_stays_deleted(lab, kind):
    """Members keep requesting metadata of the topics that they subscribe to."""
    (p0,) = lab.topic("t", 1, records=3)
    settings = {"allow_auto_create_topics": False, "metadata_max_age_ms": 2000}
    reader = Reader(lab, kind, "t", **settings)
    reader.reads(p0, range(3))
    reader.consumer.pause(p0)
    lab.cluster.delete_topic("t")
    reader.is_silent(seconds=10)
    assert lab.cluster.topics.get("t") is None
