"""The only broker freezes, or goes and comes back: what then comes, and what does not."""

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import Reader

both = pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])


def three_read(lab, kind):
    """Return a reader that has fetched 20 records, and read and committed three."""
    lab.topic("t", 1, records=20)
    reader = Reader(lab, kind, "t")
    reader.take(3)
    reader.consumer.commit()
    return reader


@pytest.mark.contract("P8", "P10")
@simulated(seeds=1, nightly=2)
def test_what_was_fetched_comes_after_a_resume_while_it_is_frozen(lab):
    """It waits in the consumer, and needs nobody's answer."""
    reader = three_read(lab, SafeConsumer)
    (tp,) = lab.partitions("t")
    reader.consumer.pause(tp)
    lab.cluster.freeze(1)
    reader.is_silent(seconds=2)
    assert reader.consumer.position(tp) == 3
    reader.consumer.resume(tp)
    reader.reads(tp, range(3, 20))
    lab.cluster.unfreeze(1)
    reader.consumer.commit()
    assert lab.committed(tp) == 20


@pytest.mark.contract("P8", "P10")
@both
@simulated(seeds=1, nightly=2)
def test_without_a_coordinator_nothing_comes_and_nothing_is_lost(lab, kind):
    """Who cannot ask whether it is a member still delivers nothing, as kafka-python's."""
    reader = three_read(lab, kind)
    (tp,) = lab.partitions("t")
    reader.consumer.pause(tp)
    lab.cluster.down(1, failover=None)
    reader.is_silent(seconds=4)  # a heartbeat, which finds nobody
    reader.consumer.resume(tp)
    reader.is_silent(seconds=5)
    assert reader.consumer.position(tp) == 3
    lab.cluster.up(1)
    reader.reads(tp, range(3, 20))


@pytest.mark.contract("P8")
@pytest.mark.parametrize("is_killed", [False, True])
@simulated(seeds=1, nightly=2)
def test_a_commit_in_flight_counts_if_it_is_acknowledged(lab, *, is_killed):
    """Nothing that was acknowledged as committed comes again, whoever reads on."""
    reader = three_read(lab, SafeConsumer)
    (tp,) = lab.partitions("t")
    reader.take(7)
    lab.cluster.freeze(1)
    reader.consumer.pause(tp)
    answers = []
    reader.consumer.commit_async(callback=lambda _, answer: answers.append(answer))
    with pytest.raises(KafkaTimeoutError):
        reader.consumer.commit(timeout_ms=500)
    reader.is_silent(seconds=2)
    assert answers == []
    if is_killed:
        lab.cluster.down(1, failover=None)
    lab.cluster.unfreeze(1)
    lab.cluster.up(1)
    reader.until(lambda: answers)
    if isinstance(answers[0], Exception):
        reader.consumer.commit()
    assert reader.consumer.position(tp) == 10
    reader.consumer.close(autocommit=False)
    Reader(lab, SafeConsumer, "t").reads(tp, range(10, 20))
