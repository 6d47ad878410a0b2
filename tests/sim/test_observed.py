"""
``docs/examples/observe.py`` counts leaks and silent partitions that SafeConsumer prevents.

The example's mixin precedes kafka-python's consumer among the base classes. The programs
and verdicts are those of ``idioms.py``.
"""

import pickle
import runpy

import pytest
from kafka import KafkaConsumer

from tests.harness.docs.pages import ROOT
from tests.sim.idioms import STOCK, params
from tests.sim.playing import simulated
from tests.sim.reading import Reader

OBSERVE = runpy.run_path(str(ROOT / "docs" / "examples" / "observe.py"))


class Observed(OBSERVE["ObservedPauses"], KafkaConsumer):
    """A consumer that uses the mixin as the docstring of the example shows."""


@pytest.mark.parametrize("case", params(STOCK, STOCK[::93]))
@simulated(seeds=1, nightly=2)
def test_leaks_that_safe_consumer_prevents_are_counted(lab, case):
    """
    The mixin does not count other leaks.

    If a program stalls with ``SafeConsumer``, it has dropped a pause without calling
    ``resume``. The mixin then also counts records that the program wants. If ``resume``
    raises ``KeyError``, the program does not record that it has resumed.
    """
    game = case.played(lab, Observed)
    leaked, counted = game.leaked, sum(game.consumer.leaked.values())
    stock, ours = case.known()
    if "S" in ours:
        assert counted >= leaked
    elif "L" in ours or "E" in stock:
        assert counted <= leaked
    else:
        assert counted == leaked


def test_leak_from_a_topic_gained_while_everything_is_paused_is_counted(lab):
    """The loop of KAFKA-13463 pauses the new topic only before the next poll."""
    lab.topic("a", 1, records=1)
    lab.topic("b", 1, records=1)
    reader = Reader(lab, Observed, "a")
    reader.take(1)
    reader.consumer.pause(*reader.consumer.assignment())
    reader.consumer.subscribe(["a", "b"])
    reader.take(1)
    assert reader.consumer.leaked == {("b", 0): 1}
    lab.append(*lab.partitions("b"))
    reader.take(1)
    assert reader.consumer.leaked == {("b", 0): 1}


def resumed_within_a_batch(lab):
    """Return a reader, and a partition that stays silent after it was resumed."""
    other, silent = lab.topic("t", 2)
    lab.append(silent, 100)
    reader = Reader(lab, Observed, tps=[other, silent])
    reader.until(lambda: reader.offsets(silent), limit=10)
    reader.consumer.pause(silent)
    lab.append(other, 5)
    reader.until(lambda: reader.offsets(other) == [*range(5)])
    reader.consumer.resume(silent)
    return reader, silent


def poll_for(reader, seconds):
    end = reader.lab.now + seconds
    while reader.lab.now < end:
        reader.poll(1)


def test_partition_resumed_within_a_batch_counts_as_silent_after_a_minute(lab):
    reader, silent = resumed_within_a_batch(lab)
    waiting = 100 - len(reader.offsets(silent))
    poll_for(reader, 50)
    assert reader.consumer.silent == {}
    poll_for(reader, 20)
    assert reader.consumer.silent == {silent: waiting}
    assert reader.consumer.leaked == {}


def test_partition_that_delivers_again_no_longer_counts_as_silent(lab):
    """The partition's broker does not answer for a minute."""
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, Observed, tps=[tp])
    reader.take(10)
    reader.consumer.pause(tp)
    reader.consumer.seek(tp, 0)
    fault = lab.cluster.fail("Fetch", is_held=True)
    reader.consumer.resume(tp)
    poll_for(reader, 70)
    assert reader.consumer.silent == {tp: 10}
    fault.end()
    reader.take(10)
    assert reader.consumer.silent == {}


def test_partition_without_records_does_not_count_as_silent(lab):
    """The partition was read to its end before the pause."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, Observed, tps=[tp])
    reader.take(3)
    reader.consumer.pause(tp)
    reader.consumer.resume(tp)
    poll_for(reader, 70)
    assert reader.consumer.silent == {}


def test_partitions_of_an_assignment_equal_plain_topic_partitions(lab):
    (tp,) = lab.topic("t", 1, records=1)
    reader = Reader(lab, Observed, tps=[tp])
    (found,) = reader.consumer.assignment()
    assert (found, hash(found), repr(found)) == (tp, hash(tp), repr(tp))
    assert type(pickle.loads(pickle.dumps(found))) is type(tp)  # noqa: S301 - this test's own data
