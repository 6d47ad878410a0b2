"""What a member says it owns when it joins: a leader gives it nothing else at once."""

import pytest
from kafka.structs import TopicPartition

from tests.broker.regression.groups import group
from tests.harness.regression.choices import COOPERATIVE
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import wait_until
from tests.harness.regression.wire import Wire


def claimed(wire: Wire) -> list[set[TopicPartition]]:
    """Return what each join that was sent claims to own."""
    return [
        {
            TopicPartition(owned.topic, partition)
            for owned in offered.owned_partitions or ()
            for partition in owned.partitions
        }
        for sent in tuple(wire.sent)
        if sent.name == "JoinGroup"
        for _, offered in sent.request.protocols
    ]


@pytest.mark.contract("P6")
@pytest.mark.any_broker
def test_a_member_that_was_lost_claims_nothing(lab: Lab, client: str) -> None:
    """
    Whoever owns it now gives it up first, and commits; nothing of that comes again.

    An hour of churn found it: a member that thawed got partitions in the very
    generation in which their owner was asked for them, began at the last offset
    committed so far, and delivered what the owner committed a moment later.
    """
    here = group(lab, client, assignor=COOPERATIVE)
    coordinator = here.reader.consumer._coordinator
    wire = Wire(here.reader.consumer)
    owned = set(here.reader.consumer.assignment())
    coordinator.request_rejoin()
    here.reader.until(lambda: claimed(wire))
    assert claimed(wire)[0] == owned, "what it owns, it claims"
    here.reader.until(lambda: not coordinator.rejoining)
    coordinator.reset_generation()
    wait_until(coordinator._generation.is_lost)
    wire.sent.clear()
    here.reader.until(lambda: claimed(wire))
    assert claimed(wire)[0] == set()
    here.reader.until(here.alone())


@pytest.mark.any_broker
def test_a_member_that_subscribes_again_claims_nothing(lab: Lab, client: str) -> None:
    """It has left its group meanwhile, and others own what it had."""
    here = group(lab, client, assignor=COOPERATIVE)
    consumer, wire = here.reader.consumer, Wire(here.reader.consumer)
    topics = [here.topic, here.witnesses[0].topic]
    consumer.unsubscribe()
    consumer.subscribe(topics)
    here.reader.until(lambda: claimed(wire))
    assert claimed(wire)[0] == set()
    here.reader.until(here.alone())
