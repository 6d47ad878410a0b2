"""A topic is deleted and made again: nothing of the new one is passed over."""

from uuid import UUID, uuid4

import pytest
from kafka import TopicPartition
from kafka.errors import NoOffsetForPartitionError

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer.errors import NotOwnedError
from safeconsumer.events import TopicRecreated
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Reader, at, both_protocols, both_ways
from tests.sim.test_interrupts import each_place, everywhere

pytestmark = pytest.mark.contract("P21")

OLD = 10  # records of the topic that is deleted
AGE_MS = 300_000  # how old metadata may become, by default


def made_again(lab, records, partitions=1):
    """Delete ``t`` and make it again, in one step; the values count from 100."""
    lab.cluster.delete_topic("t")
    tps = lab.topic("t", partitions)
    for tp in tps:
        lab.append(tp, records, first=100)
    return tps


class Watching(Reader):
    """Reads ``t`` and keeps its consumer's events."""

    def __init__(self, lab, *topics, **settings):
        self.events = []
        base = {"hooks": [self.events.append], "metadata_max_age_ms": AGE_MS}
        super().__init__(lab, SafeConsumer, *topics, **{**base, **settings})

    def told(self):
        """Return what events said of topics made again: partition, position, begin."""
        return [
            (one.partition, one.position, one.begins)
            for one in self.events
            if isinstance(one, TopicRecreated)
        ]

    def values(self, since=0):
        return [int(one.value) for one in self.log[since:]]

    def reads_new(self, records, since):
        """Read until everything of the new topic came, once and in order."""
        new = [*range(100, 100 + records)]
        self.until(lambda: len(self.log) >= since + records)
        self.is_silent(seconds=2)
        assert self.values(since) == new


def subscribed(lab, **settings):
    return Watching(lab, "t", **settings)


def assigned(lab, **settings):
    tps = [TopicPartition("t", 0)]
    return Watching(lab, tps=tps, **{"group_id": GROUP, **settings})


def without_ids(lab, **settings):
    lab.cluster.topics.get("t").id = UUID(int=0)
    return subscribed(lab, **settings)


def is_named(reader, tp):
    """Tell whether an answer about metadata has named the topic since it was gained."""
    state = reader.consumer._subscription.assignment.get(tp)
    return state is not None and not state.is_presumed


each_way = pytest.mark.parametrize("make", [subscribed, assigned])
each_length = pytest.mark.parametrize(
    "records", [25, 3, 0], ids=["longer", "shorter", "empty"]
)


def by_plain_pause(reader, tp):
    reader.consumer.pause(tp)
    return lambda: reader.consumer.resume(tp)


def by_topic(reader, _tp):
    reader.consumer.pause("t")
    return lambda: reader.consumer.resume("t")


def by_pattern(reader, _tp):
    reader.consumer.pause("re:t.*")
    return lambda: reader.consumer.resume("re:t.*")


def whole(reader, _tp):
    reader.consumer.pause_all()
    return reader.consumer.resume_all


def by_another_owner(reader, tp):
    reader.consumer.pause(tp, owner="ops")
    return lambda: reader.consumer.resume(tp, owner="ops")


each_hold = pytest.mark.parametrize(
    "hold", [by_plain_pause, by_topic, by_pattern, whole, by_another_owner]
)


@each_hold
@each_way
@each_length
@simulated(seeds=1, nightly=10)
def test_what_was_made_again_under_a_hold_is_read_from_its_first_record(
    lab, make, hold, records
):
    """With metadata at their default age nobody has noticed it by the resume."""
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, auto_offset_reset="latest")
    reader.owns([tp])
    reader.consumer.seek_to_beginning(tp)
    reader.take(OLD)
    resume = hold(reader, tp)
    reader.is_silent()
    made_again(lab, records)
    reader.is_silent(seconds=60)
    since = len(reader.log)
    resume()
    reader.reads_new(records, since)
    assert reader.told() == [(tp, OLD, "earliest")]


@each_way
@each_length
@both_ways
@simulated(seeds=1, nightly=10)
def test_what_was_made_again_and_noticed_while_flowing_is_read(lab, make, records, how):
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, how=how)
    reader.take(OLD)
    reader.is_silent(
        seconds=2
    )  # a fetch is at the broker, which answers that it is gone
    made_again(lab, records)
    reader.reads_new(records, OLD)
    assert reader.told() == [(tp, OLD, "earliest")]


# ------------------------------------------------------------ how reading begins


def held_and_made_again(lab, make=subscribed, records=25, **settings):
    """Read the old topic, pause, and make it again; return the reader and its partition."""
    (tp,) = lab.topic("t", records=OLD)
    reader = make(lab, **settings)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    made_again(lab, records)
    reader.is_silent(seconds=30)
    return reader, tp


def test_it_is_told_in_order_and_by_id(lab):
    (tp,) = lab.topic("t", records=OLD)
    old = lab.cluster.topics.get("t").id
    reader = subscribed(lab, max_poll_records=5)
    reader.take(5)
    reader.consumer.pause(tp)
    reader.is_silent()
    made_again(lab, 3)
    new = lab.cluster.topics.get("t").id
    reader.consumer._cluster.request_update()
    reader.is_silent()
    names = [one.name for one in reader.events]
    assert names.index("topic_recreated") < names.index("fetches_purged")
    (told,) = (one for one in reader.events if isinstance(one, TopicRecreated))
    assert (told.old_id, told.new_id) == (id_text(old), id_text(new))
    assert (told.partition, told.position) == (tp, 5)


@pytest.mark.contract("P21", "P10")
def test_parked_records_of_the_old_topic_come_at_once(lab):
    """They were fetched before it was deleted; what follows them is of the new one."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab)
    reader.poll()
    while len(reader.log) < 4:
        reader.poll(limit=4 - len(reader.log))
    reader.consumer.pause(tp)
    reader.is_silent()
    made_again(lab, 25)
    reader.is_silent(seconds=20)
    reader.consumer.resume(tp)
    asked = lab.kinds().count("Metadata")
    reader.poll(0.01)
    assert reader.values(4) == [*range(4, OLD)]
    assert lab.kinds().count("Metadata") == asked
    reader.reads_new(25, OLD)


@pytest.mark.parametrize("reset", ["latest", "none"])
def test_what_was_not_held_begins_by_the_policy(lab, reset):
    (tp,) = lab.topic("t", records=OLD)
    first = subscribed(lab)
    first.take(OLD)
    first.consumer.commit()
    first.consumer.close()
    reader = subscribed(lab, auto_offset_reset=reset)
    reader.owns([tp])
    reader.is_silent()
    made_again(lab, 25)
    if reset == "none":
        with pytest.raises(NoOffsetForPartitionError):
            reader.is_silent()
        reader.consumer.seek_to_beginning(tp)
        reader.reads_new(25, 0)
    else:
        reader.is_silent()
        lab.append(tp, 5, first=0)
        reader.reads(tp, range(25, 30))
    assert reader.told() == [(tp, OLD, reset)]


def test_what_was_held_is_read_from_its_first_record_without_a_policy(lab):
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, auto_offset_reset="none")
    reader.until(lambda: reader.consumer.assignment() == {tp}, each=0.001, limit=1)
    reader.consumer.seek(tp, 0)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    made_again(lab, 25)
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)


@simulated(seeds=1, nightly=10)
def test_it_is_made_again_several_times(lab):
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab)
    reader.take(OLD)
    for number in range(4):
        reader.consumer.pause(tp)
        reader.is_silent()
        made_again(lab, 50)
        made_again(lab, 7 + number)
        since = len(reader.log)
        reader.consumer.resume(tp)
        reader.reads_new(7 + number, since)
    assert [begins for _, _, begins in reader.told()] == ["earliest"] * 4


def test_an_answer_of_a_broker_that_is_behind_begins_nothing_anew(lab):
    """It names the topic that was deleted; ids are never used twice."""
    (_tp,) = lab.topic("t", records=OLD)
    old = lab.cluster.topics.get("t").id
    reader = subscribed(lab)
    reader.take(OLD)
    reader.is_silent(seconds=2)
    made_again(lab, 25)
    reader.reads_new(25, OLD)
    topic = lab.cluster.topics.get("t")
    new, topic.id = topic.id, old
    reader.consumer._cluster.request_update()
    reader.is_silent(seconds=2)
    topic.id = new
    reader.consumer._cluster.request_update()
    reader.is_silent(seconds=2)
    assert len(reader.told()) == 1


def test_brokers_without_ids_are_compared_with_nothing(lab):
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
    assert reader.told() == []


# ------------------------------------------------------------ commits


@each_way
@pytest.mark.parametrize("commit", ["automatic", "called", "closing"])
@both_protocols
def test_no_commit_carries_the_old_position_over(lab, make, commit, assignor):
    """Kafka forgets what was committed of the old topic; the next member reads all."""
    is_auto = commit == "automatic"
    settings = {"enable_auto_commit": commit != "called", "assignor": assignor}
    reader, tp = held_and_made_again(lab, make, **settings)
    if commit == "called":
        reader.consumer.commit()
    reader.is_silent(seconds=20 if is_auto else 1)
    assert lab.committed(tp) in {None, 0}
    reader.consumer.close()
    second = subscribed(lab, assignor=assignor)
    second.reads_new(25, 0)


def test_a_commit_of_others_goes_through_beside_it(lab):
    lab.topic("u", 1, records=OLD)
    (tp,) = lab.topic("t", records=OLD)
    reader = Watching(lab, "t", "u")
    reader.take(2 * OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    made_again(lab, 25)
    reader.consumer.commit()
    assert (lab.committed(tp), lab.committed(TopicPartition("u", 0))) == (None, OLD)


def test_a_position_that_has_not_moved_is_left_out_and_asks_nothing(lab):
    reader, _tp = held_and_made_again(lab, enable_auto_commit=True)
    lab.cluster.offsets.forget_topic("t")
    asked, commits = (lab.kinds().count(one) for one in ("Metadata", "OffsetCommit"))
    reader.is_silent(seconds=30)
    assert lab.kinds().count("OffsetCommit") == commits
    assert lab.kinds().count("Metadata") == asked


@pytest.mark.parametrize("make", [without_ids, assigned])
def test_an_offset_that_may_expire_is_committed_again(lab, make):
    """
    Without ids, before Kafka 2.1: a day after the last commit.

    By hand: a week after it, for the group has no members.
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
def test_offsets_of_the_programs_own_records_are_refused(lab, make):
    """It has records of the old topic in hand as it hears that there is a new one."""
    reader, tp = held_and_made_again(lab, make)
    for _ in range(2):
        with pytest.raises(NotOwnedError, match="recreated"):
            reader.consumer.commit({tp: at(OLD)})
    assert lab.committed(tp) is None
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)
    reader.consumer.commit({tp: at(20)})
    assert lab.committed(tp) == 20


def test_an_answer_that_does_not_come_holds_a_commit_up_for_half_a_second(lab):
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent()
    late = lab.cluster.fail("Metadata", is_held=True)
    begin = lab.now
    reader.consumer.commit()
    assert 0.4 < lab.now - begin < 1.0
    assert lab.committed(tp) == OLD
    late.end()


# ------------------------------------------------------------ when ids are asked for


def metadata_requests(lab, reader, rounds, wait):
    """Return how many requests so many polls make, each with a pause before it."""
    (tp,) = reader.consumer.assignment()
    asked = lab.kinds().count("Metadata")
    for _ in range(rounds):
        reader.consumer.pause(tp)
        reader.consumer.resume(tp)
        reader.poll(wait)
    return lab.kinds().count("Metadata") - asked


@pytest.mark.parametrize("wait", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "busy"])
def test_pauses_between_polls_ask_for_nothing(lab, wait, *, is_idle):
    (tp,) = lab.topic("t", records=0 if is_idle else 2000)
    reader = subscribed(lab, metadata_max_age_ms=10**9, max_poll_records=5)
    reader.until(lambda: is_named(reader, tp))
    assert metadata_requests(lab, reader, 100, wait) == 0


def test_a_fetch_that_is_out_proves_that_the_topic_is_there(lab):
    """It began before the pause and is answered after it, with nothing."""
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


def test_one_request_a_second_however_often_it_rests(lab):
    (tp,) = lab.topic("t")
    reader = subscribed(lab, fetch_max_wait_ms=50, metadata_max_age_ms=10**9)
    reader.owns([tp])
    asked, begin = lab.kinds().count("Metadata"), lab.now
    while lab.now < begin + 60:
        reader.consumer.pause(tp)
        reader.poll(0.2)
        reader.consumer.resume(tp)
        reader.poll(0.1)
    count = lab.kinds().count("Metadata") - asked
    assert 30 <= count <= 61


@pytest.mark.contract("P21", "P10")
def test_an_idle_partition_beside_it_holds_nothing_up(lab):
    """Its broker would keep the fetch of that for a minute, were it the only one."""
    one, other = lab.topic("t", 2)
    waits = {"fetch_max_wait_ms": 60_000, "request_timeout_ms": 90_000}
    reader = subscribed(lab, **waits)
    reader.owns([one, other])
    reader.consumer.pause(one)
    reader.is_silent(seconds=70)
    reader.consumer.resume(one)
    lab.append(other)
    lab.sleep(1)  # its fetch is answered, and the broker free
    reader.poll()
    lab.append(one, 5)
    begin = lab.now
    reader.until(lambda: len(reader.offsets(one)) == 5, each=60, seconds=100)
    assert lab.now - begin < 1.0


def test_a_partition_that_rests_whenever_its_broker_is_free_is_fetched(lab):
    """Each of its polls ends before an answer comes."""
    one, other = lab.topic("t", 2)
    reader = subscribed(lab)
    reader.owns([one, other])
    lab.append(one, 5)
    reader.consumer.pause(one)
    reader.is_silent(seconds=2)
    for _ in range(10):
        reader.consumer.resume(one)
        reader.poll(0)
        reader.consumer.pause(one)
        reader.poll(2)
    reader.consumer.resume(one)
    reader.poll(0)
    assert len(reader.log) == 5


# ------------------------------------------------------------ what comes in between


@pytest.mark.contract("P21", "P18")
@everywhere
def test_a_handler_raises_at_every_place_of_the_poll_that_notices_it(lab):
    (tp,) = lab.topic("t")
    reader = subscribed(lab)
    reader.owns([tp])
    for it in each_place(lab, 100):
        reader.consumer.pause(tp)
        reader.is_silent(seconds=2)
        made_again(lab, 5)
        since = len(reader.log)
        reader.consumer.resume(tp)
        it.interrupt(lambda: reader.poll(1))
        reader.until(lambda since=since: len(reader.log) >= since + 5)
        assert reader.values(since) == [*range(100, 105)], it.place


@pytest.mark.contract("P21", "P18")
@everywhere
def test_a_handler_raises_at_every_place_of_assign_and_the_id_is_known(lab):
    """What is assigned then notices that its topic is made again."""
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


def test_an_answer_to_a_question_from_before_it_was_gained_names_nothing(lab):
    """The topic that it knows may be older than the commit from which reading begins."""
    (tp,) = lab.topic("t", records=1)
    reader = assigned(lab)
    subscription = reader.consumer._subscription
    state = subscription.assignment[tp]
    topic_id = lab.cluster.topics.get("t").id
    assert subscription.compare_ids({"t": topic_id}, state.named_at - 1)
    assert state.is_presumed
    reader.until(lambda: is_named(reader, tp))
    assert (subscription.assignment[tp], reader.told()) == (state, [])


@both_protocols
def test_a_rebalance_meets_it(lab, assignor):
    """Another member joins while it is held, and each reads its part from the start."""
    tps = lab.topic("t", 2, records=OLD)
    reader = subscribed(lab, assignor=assignor, heartbeat_interval_ms=200)
    reader.take(2 * OLD)
    reader.consumer.pause("t", owner="ops")
    reader.is_silent()
    made_again(lab, 25, partitions=2)
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
