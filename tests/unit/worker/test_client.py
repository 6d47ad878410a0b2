"""W9: ``ConsumerClient.hold`` brings the worker's own holds into the intended state."""

import pytest
from kafka.structs import TopicPartition

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.holds.view import Holds
from safeconsumer.worker.brakes import BACKPRESSURE, DRAIN, OWNERS
from safeconsumer.worker.client import ConsumerClient
from tests.harness.kafka.offline import offline

TP = TopicPartition("orders", 0)


@pytest.fixture
def consumer():
    """Return a consumer that owns partitions, with many holds of other owners."""
    with offline(SafeConsumer) as made:
        made.assign([TP, TopicPartition("orders", 1)])
        targets = [f"orders:{number}" for number in range(2)]
        for number in range(20):
            made.pause(*targets, owner=f"ops-{number}", lifetime=Lifetime.UNTIL_RESUMED)
        yield made


def ours(consumer):
    """Return the owners and scopes of the worker's holds."""
    holds = consumer.holds()
    return {(one.owner, str(one.scope)) for one in holds if one.owner in OWNERS}


def test_later_calls_do_not_read_holds_of_other_owners(consumer, monkeypatch):
    client = ConsumerClient(consumer)
    client.hold(OWNERS, {})  # the first call looks for holds of an earlier worker
    wanted = {(DRAIN, None): "planted", (BACKPRESSURE, TP): "planted"}

    def refuse(_state):
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(Holds, "__iter__", refuse)
        client.hold(OWNERS, {})
        client.hold(OWNERS, wanted)
        client.hold(OWNERS, wanted)
    assert ours(consumer) == {(DRAIN, "@all"), (BACKPRESSURE, "orders:0")}


def test_lifted_hold_of_the_worker_is_placed_again(consumer):
    client = ConsumerClient(consumer)
    wanted = {(DRAIN, None): "planted"}
    for _ in range(2):
        client.hold(OWNERS, wanted)
    consumer.resume_all(owner=DRAIN)
    client.hold(OWNERS, wanted)
    assert ours(consumer) == {(DRAIN, "@all")}
    client.hold(OWNERS, {})
    assert ours(consumer) == set()
    assert len(consumer.holds()) == 40


@pytest.mark.parametrize("stands", [False, True])
def test_next_call_corrects_a_hold_whose_placement_was_interrupted(
    consumer, monkeypatch, *, stands
):
    client = ConsumerClient(consumer)
    client.hold(OWNERS, {})
    place = consumer.pause

    def interrupted(*targets, **options):
        if stands:
            place(*targets, **options)
        raise KeyboardInterrupt

    for wanted in ({(DRAIN, None): "planted"}, {}):
        with monkeypatch.context() as patch:
            patch.setattr(consumer, "pause", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.hold(OWNERS, {(DRAIN, None): "planted"})
        client.hold(OWNERS, wanted)
        assert ours(consumer) == {(owner, "@all") for owner, _ in wanted}
        client.hold(OWNERS, {})
        assert ours(consumer) == set()
