"""A poll reads all positions only if a position or a leader has changed."""

import pytest

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from tests.sim.playing import simulated
from tests.sim.reading import Reader


@simulated(seeds=1)
def test_poll_validates_positions_only_after_a_new_position_or_leader(lab, monkeypatch):
    """In each poll kafka-python compares all positions, which takes most of the time."""
    first, second = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, "t")
    reader.take(20)
    reader.is_silent(seconds=2)  # a metadata response has named the gained topics
    subscription = reader.consumer._subscription
    compared = []
    ask = subscription.maybe_validate_position_for_current_leader

    def counted(tp, epoch):
        compared.append(tp)
        return ask(tp, epoch)

    monkeypatch.setattr(
        subscription, "maybe_validate_position_for_current_leader", counted
    )
    lab.append(first, 5)
    reader.take(5)
    reader.is_silent()
    assert compared == []
    reader.consumer.seek(first, 12)
    reader.take(3)
    assert set(compared) == {first, second}
    compared.clear()
    reader.is_silent()
    assert compared == []
    reader.consumer._cluster.request_update()
    reader.is_silent()
    assert set(compared) == {first, second}


UNSETTLING = {
    "to the beginning": lambda consumer, tp: consumer.seek_to_beginning(tp),
    "another assignment": lambda consumer, tp: consumer.assign([tp]),
    "another epoch": lambda consumer, tp: (
        consumer._subscription.request_position_validation(tp)
    ),
}


@pytest.mark.parametrize("how", UNSETTLING)
def test_poll_reads_all_states_only_while_a_position_is_unsettled(
    lab, monkeypatch, how
):
    """kafka-python reads all states three times in each poll."""
    first, second = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, tps=[first, second])
    reader.take(20)
    reader.is_silent(seconds=2)
    looked = []
    look = OwnedPartitionState.is_settled.fget

    def counted(state):
        looked.append(state)
        return look(state)

    monkeypatch.setattr(OwnedPartitionState, "is_settled", property(counted))
    lab.append(first, 5, first=10)
    reader.take(5)
    reader.is_silent()
    assert looked == []
    UNSETTLING[how](reader.consumer, first)
    lab.append(first, 1, first=15)
    reader.until(lambda: reader.log[-1].value == b"15")
    assert looked
    reader.is_silent()
    looked.clear()
    reader.is_silent()
    assert looked == []
