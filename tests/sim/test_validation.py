"""Positions are compared with the epochs of their leaders when one of either is new."""

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import Reader


@simulated(seeds=1)
def test_a_poll_compares_positions_only_when_one_or_a_leader_is_new(lab, monkeypatch):
    """Upstream compares all in each poll: most of its time with a thousand partitions."""
    first, second = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, "t")
    reader.take(20)
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
