"""No record of a topic that is deleted and recreated is skipped (P21)."""

from uuid import UUID, uuid4

import pytest
from kafka import TopicPartition
from kafka.errors import NoOffsetForPartitionError

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.subscription import LedgerSubscription, id_text
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.errors import NotOwnedError
from safeconsumer.events import TopicRecreated
from tests.harness.signals import TimeLimitError
from tests.sim import reading
from tests.sim.interrupting import each_place, everywhere
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE, EAGER, Listener, Reader, at, both_protocols

pytestmark = pytest.mark.contract("P21")

OLD = 10  # records of the topic that is deleted
AUTOMATIC = {"enable_auto_commit": True, "auto_commit_interval_ms": 500}
# the maximum age of metadata, by default 300 s
SHORT_AGE = {"metadata_max_age_ms": 60_000}

each_reset = pytest.mark.parametrize("reset", ["earliest", "latest"])


def recreate(lab, records, partitions=1):
    """Delete ``t`` and create it again, in one step; the values count from 100."""
    if lab.cluster.topics.get("t") is not None:
        lab.cluster.delete_topic("t")
    tps = lab.topic("t", partitions)
    for tp in tps:
        lab.append(tp, records, first=100)
    return tps


class Watching(reading.Watching):
    """Reads the topic ``t``."""

    def recreations(self):
        """Return the partition, old position and start of each TopicRecreated event."""
        found = self.events_of(TopicRecreated)
        return [(one.partition, one.position, one.begins) for one in found]

    def reads_new(self, records, since):
        """Read, and assert that the new topic's records arrive once and in order."""
        self.until(lambda: len(self.log) >= since + records)
        self.is_silent(seconds=2)
        assert self.values(since) == [*range(100, 100 + records)]

    def new_values(self):
        return [one for one in self.values() if one >= 100]


def subscribed(lab, **settings):
    return Watching(lab, "t", **settings)


def assigned(lab, **settings):
    tps = [TopicPartition("t", 0)]
    return Watching(lab, tps=tps, **{"group_id": GROUP, **settings})


def without_ids(lab, **settings):
    lab.cluster.topics.get("t").id = UUID(int=0)
    return subscribed(lab, **settings)


def is_named(reader, tp):
    """Return whether a metadata response has named the topic since the assignment."""
    state = reader.consumer._subscription.assignment.get(tp)
    return state is not None and not state.is_presumed


each_way = pytest.mark.parametrize("make", [subscribed, assigned])


def by_plain_pause(reader, tp):
    reader.consumer.pause(tp)
    return lambda: reader.consumer.resume(tp)


def by_topic(reader, _tp):
    reader.consumer.pause("t")
    return lambda: reader.consumer.resume("t")


def by_another_owner(reader, tp):
    reader.consumer.pause(tp, owner="ops")
    return lambda: reader.consumer.resume(tp, owner="ops")


@pytest.mark.parametrize(
    ("make", "hold", "records"),
    [
        (subscribed, by_plain_pause, 25),
        (subscribed, by_topic, 25),
        (assigned, by_plain_pause, 3),
        (assigned, by_topic, 0),
        (assigned, by_another_owner, 25),
    ],
)
@simulated(seeds=1, nightly=10)
def test_topic_recreated_under_a_hold_is_read_from_its_first_record(
    lab, make, hold, records
):
    """The new topic is longer, shorter or empty, and stays unnoticed until the resume."""
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, auto_offset_reset="latest")
    reader.owns([tp])
    reader.consumer.seek_to_beginning(tp)
    reader.take(OLD)
    resume = hold(reader, tp)
    reader.is_silent()
    recreate(lab, records)
    reader.is_silent(seconds=60)
    since = len(reader.log)
    resume()
    reader.reads_new(records, since)
    assert reader.recreations() == [(tp, OLD, "earliest")]


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("pattern", [None, "t$"])
@simulated(seeds=1, nightly=5)
def test_held_topic_that_was_missing_is_read_from_its_first_record(
    lab, pattern, *, is_held
):
    """A rebalance has ended the ownership; without a hold the reset policy decides."""
    lab.cluster.creates_topics = False
    (tp,) = lab.topic("t", records=OLD)
    quick = {"allow_auto_create_topics": False, "metadata_max_age_ms": 1000}
    reader = subscribed(lab, auto_offset_reset="latest", **quick)
    if pattern is not None:
        reader.consumer.unsubscribe()
        reader.consumer.subscribe(pattern=pattern)
    reader.owns([tp])
    if is_held:
        reader.consumer.pause("t")
    lab.cluster.delete_topic("t")
    reader.until(lambda: not reader.consumer.assignment())
    reader.poll(10)
    recreate(lab, 25)
    reader.owns([tp])
    reader.is_silent(seconds=5)
    reader.consumer.resume("t")
    if is_held:
        reader.reads_new(25, 0)
    else:
        reader.is_silent(seconds=5)
    assert reader.recreations() == []


@pytest.mark.parametrize(
    ("make", "records", "how"),
    [
        (subscribed, 25, "poll"),
        (subscribed, 3, "iterate"),
        (assigned, 0, "poll"),
        (assigned, 25, "iterate"),
    ],
)
@simulated(seeds=1, nightly=10)
def test_topic_recreated_while_it_is_read_is_read_from_its_start(
    lab, make, records, how
):
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, how=how)
    reader.take(OLD)
    # A fetch waits at the broker, which then answers that the topic no longer exists.
    reader.is_silent(seconds=2)
    recreate(lab, records)
    reader.reads_new(records, OLD)
    assert reader.recreations() == [(tp, OLD, "earliest")]


# ------------------------------------------------------------ where reading starts


def held_and_recreated(lab, make=subscribed, records=25, **settings):
    """Read the old topic, pause, and recreate it; return the reader and its partition."""
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, **settings)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    recreate(lab, records)
    reader.is_silent(seconds=30)
    return reader, tp


def test_recreation_event_with_both_ids_precedes_the_purge_event(lab):
    (tp,) = lab.topic("t", records=OLD)
    old = lab.cluster.topics.get("t").id
    reader = subscribed(lab, max_poll_records=5)
    reader.take(5)
    reader.consumer.pause(tp)
    reader.is_silent()
    recreate(lab, 3)
    new = lab.cluster.topics.get("t").id
    reader.consumer._cluster.request_update()
    reader.is_silent()
    names = [one.name for one in reader.events]
    assert names.index("topic_recreated") < names.index("fetches_purged")
    (event,) = reader.events_of(TopicRecreated)
    assert (event.old_id, event.new_id) == (id_text(old), id_text(new))
    assert (event.partition, event.position) == (tp, 5)


@pytest.mark.contract("P21", "P10")
def test_parked_records_of_the_old_topic_are_delivered_immediately(lab):
    """The records were fetched before the deletion; those of the new topic follow."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab)
    reader.poll()
    while len(reader.log) < 4:
        reader.poll(limit=4 - len(reader.log))
    reader.consumer.pause(tp)
    reader.is_silent()
    recreate(lab, 25)
    reader.is_silent(seconds=20)
    reader.consumer.resume(tp)
    asked = lab.kinds().count("Metadata")
    reader.poll(0.01)
    assert reader.values(4) == [*range(4, OLD)]
    assert lab.kinds().count("Metadata") == asked
    reader.reads_new(25, OLD)


@pytest.mark.parametrize("reset", ["latest", "none"])
def test_recreated_partition_without_a_hold_follows_the_reset_policy(lab, reset):
    (tp,) = lab.topic("t", records=OLD)
    first = subscribed(lab)
    first.take(OLD)
    first.consumer.commit()
    first.consumer.close()
    reader = subscribed(lab, auto_offset_reset=reset)
    reader.owns([tp])
    reader.is_silent()
    recreate(lab, 25)
    if reset == "none":
        with pytest.raises(NoOffsetForPartitionError):
            reader.is_silent()
        reader.consumer.seek_to_beginning(tp)
        reader.reads_new(25, 0)
    else:
        reader.is_silent()
        lab.append(tp, 5, first=0)
        reader.reads(tp, range(25, 30))
    assert reader.recreations() == [(tp, OLD, reset)]


def test_held_partition_starts_at_its_first_record_without_a_reset_policy(lab):
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, auto_offset_reset="none")
    reader.until(lambda: reader.consumer.assignment() == {tp}, each=0.001, limit=1)
    reader.consumer.seek(tp, 0)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    recreate(lab, 25)
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)


def test_metadata_with_the_deleted_topics_id_does_not_restart_reading(lab):
    """A broker's metadata may be stale, and topic ids are never reused."""
    (_tp,) = lab.topic("t", records=OLD)
    old = lab.cluster.topics.get("t").id
    reader = subscribed(lab)
    reader.take(OLD)
    reader.is_silent(seconds=2)
    recreate(lab, 25)
    reader.reads_new(25, OLD)
    topic = lab.cluster.topics.get("t")
    new, topic.id = topic.id, old
    reader.consumer._cluster.request_update()
    reader.is_silent(seconds=2)
    topic.id = new
    reader.consumer._cluster.request_update()
    reader.is_silent(seconds=2)
    assert len(reader.recreations()) == 1


def test_topic_without_ids_is_neither_compared_nor_requested(lab):
    (tp,) = lab.topic("t", records=OLD)
    reader = without_ids(lab, metadata_max_age_ms=1000)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    asked = lab.kinds().count("Metadata")
    reader.consumer.resume(tp)
    reader.poll(0.01)
    assert lab.kinds().count("Metadata") == asked
    lab.append(tp, 5, first=OLD)
    reader.reads(tp, range(OLD, OLD + 5))
    lab.cluster.topics.get("t").id = uuid4()
    reader.is_silent()
    assert reader.recreations() == []


# ------------------------------------------------------------ commits


@pytest.mark.parametrize(
    ("commit", "make", "assignor"),
    [
        ("automatic", subscribed, COOPERATIVE),
        ("automatic", assigned, EAGER),
        ("called", subscribed, EAGER),
        ("called", assigned, EAGER),
        ("closing", subscribed, EAGER),
        ("closing", subscribed, COOPERATIVE),
    ],
)
def test_no_commit_carries_the_old_position_over_to_the_new_topic(
    lab, commit, make, assignor
):
    """Kafka forgets the commits of the old topic; the next member reads everything."""
    settings = {"enable_auto_commit": commit != "called", "assignor": assignor}
    reader, tp = held_and_recreated(lab, make, **settings)
    if commit == "called":
        reader.consumer.commit()
    reader.is_silent(seconds=20 if commit == "automatic" else 1)
    assert lab.committed(tp) in {None, 0}
    reader.consumer.close()
    second = subscribed(lab, assignor=assignor)
    second.reads_new(25, 0)


def test_offsets_of_other_topics_are_still_committed(lab):
    lab.topic("u", 1, records=OLD)
    (tp,) = lab.topic("t", records=OLD)
    reader = Watching(lab, "t", "u")
    reader.take(2 * OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    recreate(lab, 25)
    reader.consumer.commit()
    assert (lab.committed(tp), lab.committed(TopicPartition("u", 0))) == (None, OLD)


def test_committed_position_under_a_hold_causes_no_commit_and_no_request(lab):
    reader, _tp = held_and_recreated(lab, enable_auto_commit=True)
    lab.cluster.offsets.forget_topic("t")
    asked, commits = (lab.kinds().count(one) for one in ("Metadata", "OffsetCommit"))
    reader.is_silent(seconds=30)
    assert lab.kinds().count("OffsetCommit") == commits
    assert lab.kinds().count("Metadata") == asked


@pytest.mark.parametrize("make", [without_ids, assigned])
def test_offset_that_may_expire_is_committed_again(lab, make):
    """
    Before Kafka 2.1, which has no topic ids, an offset expires a day after the last commit.

    In a group without members, as with ``assign``, an offset expires after a week.
    """
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, enable_auto_commit=True, auto_commit_interval_ms=500)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent(seconds=20)
    commits = lab.kinds().count("OffsetCommit")
    reader.is_silent(seconds=20)
    assert lab.kinds().count("OffsetCommit") >= commits + 3


@each_way
def test_commit_of_the_offsets_of_old_records_is_refused(lab, make):
    """The program still has records of the old topic."""
    reader, tp = held_and_recreated(lab, make)
    for _ in range(2):
        with pytest.raises(NotOwnedError, match="recreated"):
            reader.consumer.commit({tp: at(OLD)})
    assert lab.committed(tp) is None
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)
    reader.consumer.commit({tp: at(20)})
    assert lab.committed(tp) == 20


def read_and_paused(lab):
    """Return a reader that has read the topic without a commit, and its paused partition."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    return reader, tp


def test_missing_metadata_response_delays_a_commit_by_half_a_second(lab):
    reader, tp = read_and_paused(lab)
    late = lab.cluster.fail("Metadata", is_held=True)
    begin = lab.now
    reader.consumer.commit()
    assert 0.4 < lab.now - begin < 1.0
    assert lab.committed(tp) == OLD
    late.end()


def test_failing_metadata_requests_delay_a_commit_by_half_a_second(lab):
    reader, tp = read_and_paused(lab)
    lab.cluster.fail("Metadata", is_cut=True)
    begin = lab.now
    reader.consumer.commit()
    reader.consumer.unsubscribe()
    assert lab.now - begin < 1.0
    assert lab.committed(tp) == OLD


@simulated(seeds=1, nightly=10)
def test_commit_waits_until_a_failed_metadata_request_is_repeated(lab):
    """The connection breaks after the request, and the topic was recreated before."""
    reader, tp = read_and_paused(lab)
    recreate(lab, 25)
    lab.cluster.fail("Metadata", is_cut=True, count=1)
    reader.consumer.commit()
    assert lab.committed(tp) is None


# ------------------------------------------------------------ when ids are requested


def test_fetch_in_flight_proves_that_the_topic_exists(lab):
    """The fetch started before the pause, and its empty response arrives after the pause."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, fetch_max_wait_ms=20_000, metadata_max_age_ms=10**9)
    reader.take(OLD)
    reader.until(lambda: is_named(reader, tp))
    reader.poll(1)
    asked = lab.kinds().count("Metadata")
    reader.consumer.pause(tp)
    reader.is_silent(seconds=5)
    reader.consumer.resume(tp)
    reader.is_silent(seconds=60)
    assert lab.kinds().count("Metadata") == asked


@pytest.mark.parametrize("was_missing", [False, True], ids=["named", "missing"])
@simulated(seeds=1, nightly=10, nodes=2)
def test_metadata_older_than_the_recreation_does_not_end_the_wait_for_topic_ids(
    lab, *, was_missing
):
    """The response to an earlier request arrives after a fetch did not find the topic."""
    lab.cluster.creates_topics = False
    (tp,) = lab.topic("t")
    reader = subscribed(lab, allow_auto_create_topics=False, metadata_max_age_ms=1000)
    reader.owns([tp])
    reader.until(lambda: is_named(reader, tp))
    late = lab.cluster.fail("Metadata", is_held=True)
    if was_missing:
        lab.cluster.delete_topic("t")
    reader.until(lambda: late.kept)
    recreate(lab, 10)
    reader.poll(0.2)
    late.end()
    reader.reads_new(10, 0)
    assert reader.recreations() == [(tp, 0, "earliest")]


@pytest.mark.parametrize(("api", "age"), [("Metadata", 1000), ("Fetch", 300_000)])
@simulated(seeds=1, nightly=10, nodes=2)
def test_late_response_does_not_prove_that_a_held_topic_still_exists(lab, api, age):
    """The response was written before the topic was recreated, ten seconds earlier."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, auto_offset_reset="latest", metadata_max_age_ms=age)
    reader.owns([tp])
    reader.consumer.seek_to_beginning(tp)
    reader.take(OLD)
    late = lab.cluster.fail(api, is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause("t")
    reader.is_silent(seconds=2)  # no other fetch is in flight
    recreate(lab, 25)
    reader.is_silent(seconds=10)
    late.end()
    reader.poll(0.02)
    reader.consumer.resume("t")
    reader.reads_new(25, OLD)
    assert reader.recreations() == [(tp, OLD, "earliest")]


def metadata_from_before(lab, reader, records):
    """Hold and recreate the topic; withhold the metadata response of the old topic."""
    late = lab.cluster.fail("Metadata", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause("t")
    reader.is_silent(seconds=2)
    recreate(lab, records)
    reader.is_silent(seconds=3)
    return late


@simulated(seeds=1, nightly=10, nodes=2)
def test_fetch_after_a_hold_waits_for_metadata_requested_after_the_hold(lab):
    """The response to an earlier request arrives during the wait."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, metadata_max_age_ms=1000)
    reader.take(OLD)
    late = metadata_from_before(lab, reader, 25)
    reader.consumer.resume("t")
    reader.poll(0.1)
    late.end()
    reader.reads_new(25, OLD)
    assert reader.recreations() == [(tp, OLD, "earliest")]


@simulated(seeds=1, nightly=10, nodes=2)
def test_commit_of_a_held_partition_waits_for_metadata_requested_after_the_call(lab):
    """The response to an earlier request arrives during the wait."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, metadata_max_age_ms=1000)
    reader.take(OLD)
    late = metadata_from_before(lab, reader, 25)
    lab.world.call_later(0.1, late.end)
    reader.consumer.commit()
    assert lab.committed(tp) is None
    reader.poll()
    assert reader.recreations() == [(tp, OLD, "earliest")]


@pytest.mark.contract("P21", "P8")
@simulated(seeds=1, nightly=10, nodes=2)
def test_late_metadata_of_a_second_topic_does_not_hide_the_third(lab):
    """The response with the second id arrives five seconds after the third creation."""
    lab.topic("t", records=OLD)
    reader = subscribed(lab, metadata_max_age_ms=10_000)
    reader.take(OLD)
    reader.consumer.pause("t")
    reader.is_silent(seconds=2)
    recreate(lab, 5)
    late = lab.cluster.fail("Metadata", is_held=True)
    reader.until(lambda: late.kept)
    recreate(lab, 25)
    reader.is_silent(seconds=5)
    late.end()
    reader.poll(0.02)
    reader.consumer.resume("t")
    reader.until(lambda: len(reader.log) >= OLD + 25)
    reader.is_silent(seconds=30)
    assert reader.values(OLD) == [*range(100, 125)]


@simulated(seeds=1, nightly=10, nodes=2)
def test_overdue_fetch_does_not_prove_that_the_topic_exists(lab):
    """The response to the fetch was written, but does not arrive."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, metadata_max_age_ms=10**9)
    reader.take(OLD)
    reader.until(lambda: is_named(reader, tp))
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause("t")
    reader.is_silent(seconds=2)
    recreate(lab, 25)
    reader.is_silent(seconds=8)
    reader.consumer.commit()
    assert lab.committed(tp) is None
    late.end()
    reader.consumer.resume("t")
    reader.reads_new(25, OLD)


@simulated(seeds=1, nightly=10, nodes=2)
def test_slow_metadata_does_not_keep_a_partition_in_doubt(lab):
    """Each response takes longer than the time after which a held partition is in doubt."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent(seconds=2)
    lab.cluster.fail("Metadata", delay=0.3)
    asked = lab.kinds().count("Metadata")
    reader.consumer.resume(tp)
    reader.is_silent(seconds=20)
    assert lab.kinds().count("Metadata") - asked <= 3
    assert not reader.consumer._subscription.ledger.was_held(tp)


@pytest.mark.parametrize("seconds", [0.1, 0.4, 0.8, 1.2])
@simulated(seeds=1, nightly=10, nodes=2)
def test_topic_recreated_during_slow_metadata_requests_is_read_from_its_start(
    lab, seconds
):
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, auto_offset_reset="latest", **SHORT_AGE)
    reader.owns([tp])
    reader.consumer.seek_to_beginning(tp)
    reader.take(OLD)
    reader.consumer.pause("t")
    reader.is_silent(seconds=2)
    lab.cluster.fail("Metadata", delay=0.3)
    reader.consumer.resume("t")
    reader.poll(seconds)
    recreate(lab, 25)
    reader.until(lambda: {*reader.new_values()} == {*range(100, 125)}, seconds=120)
    assert [begins for *_, begins in reader.recreations()] == ["earliest"]


@pytest.mark.contract("P21", "P10")
def test_idle_partition_does_not_delay_another_that_waits_for_topic_ids(lab):
    """A fetch of the idle partition alone would wait at the broker for a minute."""
    one, other = lab.topic("t", 2)
    waits = {"fetch_max_wait_ms": 60_000, "request_timeout_ms": 90_000}
    reader = subscribed(lab, **waits)
    reader.owns([one, other])
    reader.consumer.pause(one)
    reader.is_silent(seconds=70)
    reader.consumer.resume(one)
    lab.append(other)
    # the other partition's fetch is answered, so no fetch waits at the broker
    lab.sleep(1)
    reader.poll()
    lab.append(one, 5)
    begin = lab.now
    reader.until(lambda: len(reader.offsets(one)) == 5, each=60, seconds=100)
    assert lab.now - begin < 1.0


# ------------------------------------------------------------ signals, rebalances


@pytest.mark.contract("P21", "P18")
@everywhere
def test_handler_may_raise_anywhere_in_the_poll_that_detects_a_recreated_topic(lab):
    (tp,) = lab.topic("t")
    reader = subscribed(lab)
    reader.owns([tp])
    for it in each_place(lab, 100):
        reader.consumer.pause(tp)
        reader.is_silent(seconds=2)
        recreate(lab, 5)
        since = len(reader.log)
        reader.consumer.resume(tp)
        it.interrupt(lambda: reader.poll(1))
        reader.until(lambda since=since: len(reader.log) >= since + 5)
        assert reader.values(since) == [*range(100, 105)], it.place


@pytest.mark.contract("P21", "P18")
@everywhere
def test_handler_may_raise_anywhere_in_assign_without_losing_the_topic_id(lab):
    (tp,) = lab.topic("t", records=1)
    reader = assigned(lab)
    reader.take(1)
    for it in each_place(lab, 50):
        reader.consumer.assign([])
        it.interrupt(lambda: reader.consumer.assign([tp]))
        reader.consumer.assign([tp])
        reader.until(lambda: is_named(reader, tp))
        state = reader.consumer._subscription.assignment[tp]
        assert state.topic_id == lab.cluster.topics.get("t").id, it.place


def test_metadata_requested_before_the_gain_does_not_confirm_a_topic_id(lab):
    """The response's topic may be older than the commit at which reading starts."""
    (tp,) = lab.topic("t", records=1)
    reader = assigned(lab)
    subscription = reader.consumer._subscription
    state = subscription.assignment[tp]
    topic_id = lab.cluster.topics.get("t").id
    assert subscription.compare_ids({"t": topic_id}, state.named_at - 1)
    assert state.is_presumed
    reader.until(lambda: is_named(reader, tp))
    assert (subscription.assignment[tp], reader.recreations()) == (state, [])


@both_protocols
def test_each_member_reads_its_part_from_the_start_after_a_rebalance(lab, assignor):
    """Another member joins while all partitions are held."""
    tps = lab.topic("t", 2, records=OLD)
    reader = subscribed(lab, assignor=assignor, heartbeat_interval_ms=200)
    reader.take(2 * OLD)
    reader.consumer.pause("t", owner="ops")
    reader.is_silent()
    recreate(lab, 25, partitions=2)
    other = lab.member(SafeConsumer, "t", name="b", assignor=assignor)
    reader.until(lambda: len(other.consumer.assignment()) == 1)
    (given,) = other.consumer.assignment()
    (kept,) = reader.consumer.assignment()
    assert {given, kept} == {*tps}
    since = len(reader.log)
    reader.consumer.resume("t", owner="ops")
    reader.until(lambda: len(reader.log) >= since + 25)
    reader.until(lambda: len(other.values(given)) >= 25)
    assert reader.values(since) == other.values(given) == [*range(100, 125)]
    other.stop()


@pytest.mark.parametrize(
    "reset", ["latest", pytest.param("earliest", marks=pytest.mark.nightly)]
)
@both_protocols
def test_next_owner_continues_at_the_new_topics_committed_offset(lab, assignor, reset):
    """The owner's metadata is older than the new topic, which another member has read."""
    (tp,) = lab.topic("t", records=OLD)
    settings = {"assignor": assignor, "auto_offset_reset": reset, **SHORT_AGE}
    idle = Watching(lab, "t", client_id="z", **settings)
    other = lab.member(SafeConsumer, "t", assignor=assignor, **AUTOMATIC)
    idle.until(lambda: other.consumer.assignment() == {tp} and other.values(tp))
    recreate(lab, 50)
    lab.append(tp, 5, first=150)
    other.consumer._cluster.request_update()
    idle.until(lambda: lab.committed(tp) == 55)
    other.stop()
    lab.append(tp, 20, first=155)
    new = {*range(155, 175)}
    idle.until(lambda: {*idle.values()} == new, seconds=60)
    idle.is_silent(seconds=2 * 60)
    # Once the owner's metadata is new, the records are delivered again.
    assert len(idle.log) <= 2 * len(new)


def test_commit_of_old_offsets_in_a_listener_is_refused(lab):
    """The partition is revoked, so no metadata response is compared with its topic id."""
    tps = lab.topic("t", 2, records=OLD)
    reader = Watching(lab, assignor=COOPERATIVE, heartbeat_interval_ms=200)
    sent = []

    def revoked(gone):
        if gone:
            sent.append(reader.consumer.commit_async({tp: at(OLD) for tp in gone}))

    reader.consumer.subscribe(["t"], listener=Listener(revoked=revoked))
    reader.take(2 * OLD)
    reader.consumer.pause("t", owner="ops")
    reader.is_silent(seconds=2)
    recreate(lab, 25, 2)
    other = lab.member(SafeConsumer, "t", name="b", assignor=COOPERATIVE)
    reader.until(lambda: len(other.consumer.assignment()) == 1)
    (given,) = other.consumer.assignment()
    assert given in tps
    reader.until(lambda: len(other.values(given)) == 25)
    assert other.values(given) == [*range(100, 125)]
    assert [type(one.exception) for one in sent] == [NotOwnedError]


@each_reset
def test_partition_fetched_with_an_unconfirmed_id_counts_as_held(lab, reset):
    """The fetch did not wait for the id, as ids were requested less than a second before."""
    t, u = (lab.topic(name, records=OLD)[0] for name in "tu")
    settings = {"auto_offset_reset": reset, "group_id": GROUP, **SHORT_AGE}
    reader = Watching(lab, tps=[t, u], **settings)
    reader.consumer.seek_to_beginning(t, u)
    reader.take(2 * OLD)
    for tp in (t, u):
        reader.consumer.pause(tp, owner="ops")
    reader.is_silent(seconds=20)
    reader.consumer.resume(u, owner="ops")
    reader.poll(0.2)
    recreate(lab, 25)
    reader.poll(0.3)
    reader.consumer.resume(t, owner="ops")
    reader.until(lambda: {*reader.values(2 * OLD)} == {*range(100, 125)}, seconds=120)
    assert {begins for *_, begins in reader.recreations()} == {"earliest"}


@pytest.mark.parametrize("wait", [0.02, 1.0])
@both_protocols
def test_short_polls_commit_before_a_join_while_a_topic_is_held(lab, assignor, wait):
    """The commit requests topic ids, which takes longer than one of these polls."""
    (t,), us = lab.topic("t", 1, records=OLD), lab.topic("u", 2, records=OLD)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 10**8}
    settings |= {"assignor": assignor, "heartbeat_interval_ms": 200}
    reader = Reader(lab, SafeConsumer, "t", "u", **settings)
    reader.until(lambda: len(reader.log) == 3 * OLD)
    reader.consumer.pause(t, owner="ops")
    reader.is_silent(seconds=3)
    other = lab.member(SafeConsumer, "t", "u", name="b", assignor=assignor)
    reader.until(other.consumer.assignment, each=wait)
    for _ in range(50):
        reader.poll(wait)
    assert other.consumer.assignment() <= {t, *us}
    assert other.records == []


def test_slow_handler_skips_no_record_of_the_new_topic(lab):
    """The consumer has buffered records and no fetch in flight; no pause is needed."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, **AUTOMATIC, **SHORT_AGE)
    reader.until(lambda: reader.log, limit=5)
    lab.sleep(20)
    recreate(lab, 25)
    lab.sleep(20)
    reader.until(lambda: reader.values()[-1:] == [124], seconds=60)
    reader.is_silent(seconds=2 * 60)
    assert reader.new_values() == [*range(100, 125)]
    assert lab.committed(tp) == 25


def test_recreated_topic_counts_as_unread_until_a_record_is_read(lab):
    """An automatic commit of the first position does not count."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, **AUTOMATIC)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent(seconds=2)
    recreate(lab, 25)
    reader.consumer._cluster.request_update()
    reader.is_silent(seconds=30)
    subscription = reader.consumer._subscription
    assert (lab.committed(tp), subscription.recreated()) == (0, ["t"])
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)
    assert subscription.recreated() == []
    reader.consumer.seek(tp, 0)
    reader.consumer.commit({tp: at(20)})  # the record was read
    assert lab.committed(tp) == 20


@pytest.mark.contract("P18")
def test_metadata_response_is_handled_after_an_interrupted_assignment(lab, monkeypatch):
    """An exception would end the loop that refreshes the metadata."""
    a, b = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, tps=[a])
    reader.take(3)

    def adopt(*_):
        raise TimeLimitError

    with monkeypatch.context() as patched:
        patched.setattr(LedgerSubscription, "_adopt", adopt)
        with pytest.raises(TimeLimitError):
            reader.consumer.assign([a, b])
    states = reader.consumer._subscription.assignment
    assert not isinstance(states[b], OwnedPartitionState)
    reader.consumer._cluster.request_update()
    lab.sleep(1)
    (u,) = lab.topic("u", records=3)
    reader.consumer.assign([a, b, u])
    reader.until(lambda: len(reader.log) == 9)


SEEKS = {
    "to an offset": (lambda consumer, tp: consumer.seek(tp, 30), 30),
    "to the beginning": (lambda consumer, tp: consumer.seek_to_beginning(tp), 0),
    "all to the beginning": (lambda consumer, _: consumer.seek_to_beginning(), 0),
}


def assigned_again(lab, tp, **settings):
    """Assign ``t`` to a reader whose metadata is older than ``t`` and its commit of 40."""
    reader = assigned(lab, **settings, **SHORT_AGE)
    reader.poll(1)
    lab.topic("u")
    reader.consumer.assign([TopicPartition("u", 0)])
    recreate(lab, 50)
    reader.consumer.commit({tp: at(40)})
    reader.consumer.assign([tp])
    return reader


@each_reset
def test_reading_starts_at_the_commit_of_the_new_topic(lab, reset):
    """Reading starts there again once a metadata response has named the topic."""
    (tp,) = lab.topic("t", records=OLD)
    reader = assigned_again(lab, tp, auto_offset_reset=reset)
    since = len(reader.log)
    for _ in range(30):
        reader.poll(1)
    assert {*reader.values(since)} == {*range(140, 150)}
    assert {begins for *_, begins in reader.recreations()} <= {"committed"}


@pytest.mark.parametrize(
    "reset", ["earliest", pytest.param("latest", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("how", SEEKS)
def test_position_that_the_program_sets_is_kept(lab, reset, how):
    """The program assigns and seeks with metadata older than the topic and its commit."""
    (tp,) = lab.topic("t", records=OLD)
    seek, begin = SEEKS[how]
    reader = assigned_again(lab, tp, auto_offset_reset=reset)
    seek(reader.consumer, tp)
    reader.until(lambda: reader.values()[-1:] == [149])
    reader.is_silent(seconds=2 * 60)
    assert reader.new_values() == [*range(100 + begin, 150)]
