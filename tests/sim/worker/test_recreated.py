"""P21, W12: a topic is deleted and made again under a worker."""

import pytest

from safeconsumer import DeadLetter, Retry, events
from safeconsumer.audit.results import Settings
from safeconsumer.events import TopicRecreated
from tests.harness.audit.journals import check, findings_of, read
from tests.sim.playing import simulated
from tests.sim.worker.test_letters import fails, letters, producer
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    filled,
    in_both_ways,
    in_each_order,
    put,
    quick,
)

pytestmark = pytest.mark.contract("P21", "W12")

OLD = [f"old{number}" for number in range(10)]


def made_again(lab, count, partitions=1):
    lab.cluster.delete_topic("t")
    return filled(lab, partitions, *(f"new{number}" for number in range(count)))


def values(handler, prefix="new"):
    """Return the numbers of the records of the new topic that a handler was given."""
    found = [one.value.decode() for one in handler.calls]
    return [int(one.removeprefix(prefix)) for one in found if one.startswith(prefix)]


@in_both_ways
@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("count", [25, 3], ids=["longer", "shorter"])
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "flowing"])
@simulated(seeds=1, nightly=5)
def test_a_worker_begins_anew_at_the_first_record(  # noqa: PLR0913 - what it meets
    lab, tmp_path, protocol, reset, count, *, is_held
):
    """
    Held or not, with latest or not; and that is its floor.

    A journal has the topics' ids, so the audit says that offsets are of two topics.
    """
    lab.topic("t", 1)
    handler = Handler(lab)
    told = []
    settings = {"auto_offset_reset": reset, "hooks": [told.append]}
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
    (one,) = (one for one in told if isinstance(one, TopicRecreated))
    assert one.begins == "earliest"
    (path,) = tmp_path.glob("*.journal")
    audit = check([read(path)], Settings(is_drained=True, patience=60))
    assert findings_of(audit) == []
    (verdict,) = audit.values()
    assert "the topic was deleted and created again" in str(verdict.unjudged)


@in_each_order
@simulated(seeds=1, nightly=5)
def test_work_on_the_old_topic_commits_nothing_to_the_new_one(lab, executor, order):
    """A handler is at work as the topic goes, and ends after the new one has come."""
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
    assert run.told(events.WorkDropped)
    new = values(handler)
    assert sorted(set(new)) == [*range(25)]
    assert len(new) == 25


@simulated(seeds=1, nightly=5)
def test_a_letter_of_the_old_topic_completes_nothing_of_the_new_one(lab):
    """Its answer comes when the new topic is read; the letter names where it failed."""
    filled(lab, 1, "a", "b", "bad")
    handler = Handler(lab, bad=fails)
    run = Working(
        lab,
        handler,
        retry=Retry(attempts=1),
        dead_letter=DeadLetter(producer(lab), "dead", max_ratio=None),
        settings=quick(metadata_max_age_ms=1000),
    )
    late = lab.cluster.fail("Produce", is_held=True)
    lab.until(lambda: late.kept)
    lab.sleep(3)  # an answer about metadata has named the topic since it was gained
    lab.cluster.delete_topic("t")
    filled(lab, 1, "bad", *(f"new{number}" for number in range(5)))
    lab.sleep(5)
    assert committed(lab)[0] in {None, 0}
    late.end()
    lab.until(lambda: committed(lab) == [6], 100.0)
    run.stop()
    assert values(handler) == [*range(5)]
    places = [dict(one.headers)["dead-letter-offset"] for one in letters(lab)]
    assert sorted(places) in ([b"0", b"2"], [b"0"])
