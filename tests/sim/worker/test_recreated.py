"""P21, W12: a topic is deleted and recreated under a worker."""

from uuid import UUID

import pytest

from safeconsumer import events
from safeconsumer.audit.results import Settings
from safeconsumer.events import TopicRecreated
from tests.harness.audit.journals import check, findings_of, read
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    consumer,
    filled,
    in_both_ways,
    in_each_order,
    put,
    quick,
)

pytestmark = pytest.mark.contract("P21", "W12")

OLD = [f"old{number}" for number in range(10)]
WITHOUT_IDS = (2, 3)  # a version of Kafka whose topics have no ids


def made_again(lab, count, partitions=1):
    lab.cluster.delete_topic("t")
    return filled(lab, partitions, *(f"new{number}" for number in range(count)))


def values(handler, prefix="new"):
    """Return the numbers of the records of the new topic that a handler received."""
    found = [one.value.decode() for one in handler.calls]
    return [int(one.removeprefix(prefix)) for one in found if one.startswith(prefix)]


@pytest.mark.parametrize(
    ("protocol", "reset"),
    [
        ("eager", "earliest"),
        ("cooperative", "latest"),
        pytest.param("eager", "latest", marks=pytest.mark.nightly),
        pytest.param("cooperative", "earliest", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("count", [25, 3], ids=["longer", "shorter"])
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "flowing"])
@simulated(seeds=1, nightly=5)
def test_worker_starts_at_the_first_record_of_a_recreated_topic(  # noqa: PLR0913 - many parameters
    lab, tmp_path, protocol, reset, count, *, is_held
):
    """The journal has the topics' ids, so the audit judges each topic separately."""
    lab.topic("t", 1)
    handler = Handler(lab)
    reported = []
    settings = {"auto_offset_reset": reset, "hooks": [reported.append]}
    settings["journal"] = tmp_path
    run = Working(lab, handler, settings=quick(protocol, **settings))
    run.owns(1)
    lab.sleep(2)
    (tp,) = lab.partitions("t")
    put(lab, tp, *OLD)
    run.done(10)
    lab.until(lambda: committed(lab) == [10])
    if is_held:
        run.consumer.pause("t", owner="ops")
    lab.sleep(3)
    made_again(lab, count)
    lab.sleep(20)
    if is_held:
        assert values(handler) == []
        run.consumer.resume("t", owner="ops")
    run.done(10 + count)
    lab.until(lambda: committed(lab) == [count])
    run.stop()
    assert values(handler) == [*range(count)]
    (one,) = (one for one in reported if isinstance(one, TopicRecreated))
    assert one.begins == "earliest"
    (path,) = tmp_path.glob("*.journal")
    audit = check([read(path)], Settings(is_drained=True, patience=60))
    assert findings_of(audit) == []
    (verdict,) = audit.values()
    assert "the topic was deleted and created again" in str(verdict.unjudged)


@in_both_ways
@pytest.mark.parametrize("how", [{"topics": ["t"]}, {"pattern": "t$"}])
@pytest.mark.parametrize(
    ("away", "version"),
    [(0.0, None), (10.0, None), (10.0, WITHOUT_IDS)],
    ids=["briefly", "long", "long-without-ids"],
)
@simulated(seeds=1, nightly=5)
def test_worker_skips_no_record_of_a_topic_that_was_missing(
    lab, protocol, away, version, how
):
    """The worker lost the old topic in a rebalance, and the new topic has no commit."""
    lab.cluster.creates_topics = False
    lab.topic("t", 2)
    handler = Handler(lab)
    settings = quick(protocol, auto_offset_reset="latest", metadata_max_age_ms=1000)
    settings |= {"api_version": version} if version else {}
    given = consumer(lab, **settings)
    given.subscribe(**how)
    run = Working(lab, handler, given=given)
    lab.until(lambda: committed(lab) == [0, 0])
    lab.cluster.delete_topic("t")
    lab.sleep(away)
    assert not (away and run.consumer.assignment())
    filled(lab, 2, *(f"new{number}" for number in range(5)))
    run.done(10)
    lab.until(lambda: committed(lab) == [5, 5])
    run.stop()
    assert sorted(values(handler)) == sorted([*range(5)] * 2)


@in_both_ways
@pytest.mark.parametrize("how", [{"topics": ["t"]}, {"pattern": "t$"}])
@simulated(seeds=1, nightly=5)
def test_worker_skips_no_record_of_a_recreated_topic_without_ids(lab, protocol, how):
    """The cluster sends no topic ids, but its responses lack the topic in between."""
    lab.cluster.creates_topics = False
    lab.topic("t", 2)
    topic = lab.cluster.topics.get("t")
    topic_id, topic.id = topic.id, UUID(int=0)
    handler = Handler(lab)
    settings = quick(protocol, auto_offset_reset="latest", metadata_max_age_ms=1000)
    given = consumer(lab, **settings)
    given.subscribe(**how)
    run = Working(lab, handler, given=given)
    lab.until(lambda: committed(lab) == [0, 0])
    topic.id = topic_id
    lab.cluster.delete_topic("t")
    lab.until(lambda: not run.consumer.assignment())
    filled(lab, 2, *(f"new{number}" for number in range(5)))
    lab.cluster.topics.get("t").id = UUID(int=0)
    run.done(10)
    lab.until(lambda: committed(lab) == [5, 5])
    run.stop()
    assert sorted(values(handler)) == sorted([*range(5)] * 2)


@in_each_order
@simulated(seeds=1, nightly=5)
def test_work_on_the_old_topic_commits_nothing_to_the_new_topic(lab, executor, order):
    """A handler runs when the topic is deleted, and ends after the new topic is created."""
    filled(lab, 1, "slow", *OLD, keys="ab")
    handler = Handler(lab, slow=30.0)
    run = Working(
        lab,
        handler,
        executor=executor,
        order=order,
        settings=quick(metadata_max_age_ms=1000),
    )
    lab.until(lambda: handler.calls)
    lab.sleep(3)
    made_again(lab, 25)
    lab.sleep(5)
    assert committed(lab) in ([None], [0], *([number] for number in range(26)))
    lab.until(lambda: committed(lab) == [25], 100.0)
    run.stop()
    assert run.of_kind(events.WorkDropped)
    new = values(handler)
    assert sorted(set(new)) == [*range(25)]
    assert len(new) == 25


@in_both_ways
@pytest.mark.parametrize("how", [{"topics": ["t"]}, {"pattern": "t$"}], ids=str)
@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "with another topic"])
@pytest.mark.parametrize("is_lent", [False, True], ids=["first", "after other polls"])
@simulated(seeds=1, nightly=5)
def test_worker_reads_a_topic_that_is_created_later_from_its_start(
    lab, protocol, how, is_alone, is_lent
):
    """The worker handles records from before the first assignment, too."""
    lab.cluster.creates_topics = False
    if not is_alone:
        lab.topic("other-t", 1, records=3)
        how = {"topics": ["t", "other-t"]} if "topics" in how else {"pattern": ".*t$"}
    handler = Handler(lab)
    settings = quick(protocol, auto_offset_reset="latest", metadata_max_age_ms=3000)
    given = consumer(lab, **settings)
    given.subscribe(**how)
    if is_lent:
        lab.until(lambda: given.poll(100) or lab.generation() > 0)
        given.poll(1000)
    run = Working(lab, handler, given=given)
    lab.until(lambda: is_alone or len(given.assignment()) == 1)
    lab.sleep(5)
    filled(lab, 2, *(f"new{number}" for number in range(5)))
    run.done(10)
    lab.until(lambda: committed(lab) == [5, 5])
    run.stop()
    assert sorted(values(handler)) == sorted([*range(5)] * 2)
    assert len(handler.calls) == 10


@pytest.mark.parametrize("how", [{"topics": ["t"]}, {"pattern": "t$"}], ids=str)
@pytest.mark.parametrize(
    "before", ["nothing", "all topics", "another pattern", "the same"]
)
@simulated(seeds=1, nightly=5)
def test_worker_reads_a_topic_that_existed_before_it_from_its_end(lab, how, before):
    """The broker names the subscribed topics only after the worker has started."""
    (tp,) = filled(lab, 1, *OLD)
    lab.topic("u", 1)
    handler = Handler(lab)
    given = consumer(lab, **quick(auto_offset_reset="latest"))
    if before == "all topics":
        given.topics()
    elif before == "another pattern":
        given.subscribe(pattern="u")
        lab.until(lambda: given.poll(100) or given.assignment())
        given.unsubscribe()
    elif before == "the same":
        given.subscribe(**how)
        lab.until(lambda: given.poll(100) or given.assignment())
        given.unsubscribe()
    late = lab.cluster.fail("Metadata", is_held=True)
    given.subscribe(**how)
    run = Working(lab, handler, given=given)
    lab.until(lambda: late.kept)
    lab.sleep(5)
    late.end()
    lab.until(lambda: committed(lab) == [10])
    put(lab, tp, "new0")
    run.done(1)
    run.stop()
    assert [one.offset for one in handler.calls] == [10]


@in_both_ways
@simulated(seeds=1, nightly=5)
def test_workers_share_a_new_topic_and_read_it_from_its_start(lab, protocol):
    lab.cluster.creates_topics = False
    handler = Handler(lab)
    settings = quick(protocol, auto_offset_reset="latest", metadata_max_age_ms=3000)
    runs = [Working(lab, handler, name=name, settings=settings) for name in "abc"]
    lab.until(lambda: lab.members() == 3)
    lab.sleep(5)
    filled(lab, 3, *(f"new{number}" for number in range(5)))
    lab.until(lambda: committed(lab) == [5, 5, 5])
    for run in runs:
        run.stop()
    assert sorted(values(handler)) == sorted([*range(5)] * 3)


@in_both_ways
@simulated(seeds=1, nightly=5)
def test_worker_reads_a_topic_that_is_created_during_a_join_from_its_start(
    lab, protocol
):
    """The leader subscribes to the missing topic after it has assigned the partitions."""
    lab.cluster.creates_topics = False
    lab.topic("a", 2)
    handler = Handler(lab)
    settings = quick(protocol, auto_offset_reset="latest")
    leader = Working(lab, handler, "a", name="a", settings=settings)
    leader.owns(2)
    late = lab.cluster.fail("SyncGroup", is_held=True)
    other = Working(lab, handler, "a", name="b", settings=settings)
    lab.until(lambda: len(late.kept) == 2)
    leader.consumer.subscribe(["a", "t"])
    lab.sleep(2)
    filled(lab, 2, *(f"new{number}" for number in range(5)))
    lab.sleep(1)
    late.end()
    lab.until(lambda: committed(lab) == [5, 5])
    leader.stop()
    other.stop()
    assert sorted(values(handler)) == sorted([*range(5)] * 2)
