from contextlib import closing

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import InconsistentGroupProtocolError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.testing import Clients, EmbeddedBroker, poll_until
from tests.harness.members import is_shared_out, partitions_of
from tests.harness.polling import read
from tests.harness.producing import produce

ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda a: a.name)
def test_members_share_out_a_topic_and_inherit_it(
    broker: EmbeddedBroker, clients: Clients, assignor: type
) -> None:
    """Three members divide the partitions; who stays gets what a leaver had."""
    topic = clients.topic(partitions=6)
    members = [
        clients.consumer(
            KafkaConsumer, topic, group="g", partition_assignment_strategy=[assignor]
        )
        for _ in range(3)
    ]
    poll_until(members, lambda: is_shared_out(members, partitions_of(topic, 6)))
    assert len(broker.members("g")) == 3
    while len(members) > 1:
        members.pop(0).close()
        poll_until(members, lambda: is_shared_out(members, partitions_of(topic, 6)))
    assert len(broker.members("g")) == 1


def test_a_member_that_dies_is_missed(broker: EmbeddedBroker, clients: Clients) -> None:
    """A member without heartbeats is out after its session; the other inherits."""
    topic = clients.topic(partitions=2)
    members = [
        clients.consumer(KafkaConsumer, topic, group="g", client_id=name)
        for name in ("silent", "survivor")
    ]
    poll_until(members, lambda: is_shared_out(members, partitions_of(topic, 2)))
    # Its answers are kept from the silent one, so it sends no further heartbeat.
    with broker.hold("Heartbeat", client_id="silent") as hold:
        hold.wait(1)
        survivor = members[1]
        poll_until(
            [survivor], lambda: is_shared_out([survivor], partitions_of(topic, 2))
        )
    assert len(broker.members("g")) == 1


def test_a_commit_during_a_rebalance_is_kept(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """As on a real broker: the old generation may commit until all have joined."""
    topic = clients.topic(partitions=2)
    produce(clients.producer(), topic, 1, 1)
    first = clients.consumer(KafkaConsumer, topic, group="g")
    read(first, 2)
    generation = broker.generation("g")
    second = clients.consumer(KafkaConsumer, topic, group="g")
    poll_until([second], lambda: len(broker.members("g")) == 2)  # it joins, and waits
    first.commit()
    assert broker.generation("g") == generation
    committed = {first.committed(TopicPartition(topic, p)) for p in range(2)}
    assert committed == {1}


def test_a_lone_member_takes_a_new_topic_of_its_pattern(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """
    A member that rejoins by itself is answered.

    kafka-python's own consumer forgets such a join where a ``poll`` ends before it.
    """
    broker.create_topic("orders-1", partitions=1)
    consumer = clients.consumer(SafeConsumer, group="g", metadata_max_age_ms=200)
    consumer.subscribe(pattern=r"orders-\d+")
    poll_until([consumer], consumer.assignment)
    broker.create_topic("orders-2", partitions=1)
    both = {TopicPartition("orders-1", 0), TopicPartition("orders-2", 0)}
    poll_until([consumer], lambda: consumer.assignment() == both)


def test_members_without_a_common_assignor_are_refused(clients: Clients) -> None:
    """A member that speaks none of the group's protocols hears so."""
    topic = clients.topic(partitions=2)
    strategy = "partition_assignment_strategy"
    first = clients.consumer(
        KafkaConsumer, topic, group="g", **{strategy: [RangePartitionAssignor]}
    )
    poll_until([first], first.assignment)
    second = clients.consumer(
        KafkaConsumer, topic, group="g", **{strategy: [RoundRobinPartitionAssignor]}
    )
    with pytest.raises(InconsistentGroupProtocolError):
        poll_until([first, second], second.assignment)


def test_a_static_member_comes_back_without_a_rebalance(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """A member with a group.instance.id takes its old place in the same generation."""
    topic = clients.topic(partitions=4)

    def member(name: str) -> KafkaConsumer:
        return clients.consumer(KafkaConsumer, topic, group="g", group_instance_id=name)

    members = [member("a"), member("b")]
    poll_until(members, lambda: is_shared_out(members, partitions_of(topic, 4)))
    generation, owned = broker.generation("g"), members[1].assignment()
    members[1].close()  # a static member does not leave by closing
    members[1] = member("b")
    poll_until(members, lambda: is_shared_out(members, partitions_of(topic, 4)))
    assert members[1].assignment() == owned
    assert broker.generation("g") == generation


def test_a_group_moves_to_another_coordinator() -> None:
    """After move_coordinator the members go on at the other broker, in the same group."""
    with EmbeddedBroker(brokers=2) as broker, closing(Clients(broker)) as clients:
        topic = clients.topic(partitions=2)
        broker.move_coordinator("g", 1)
        consumer = clients.consumer(KafkaConsumer, topic, group="g")
        poll_until([consumer], consumer.assignment)
        broker.move_coordinator("g", 2)
        broker.clear_requests()

        def is_heard_by_the_second() -> bool:
            beats = broker.requests("Heartbeat")
            return any(beat.broker_id == 2 for beat in beats)

        poll_until([consumer], is_heard_by_the_second)
        assert len(broker.members("g")) == 1
        assert len(consumer.assignment()) == 2


def test_an_admin_sees_groups_members_and_offsets(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """What tools ask of a broker: which groups, who owns what, and what is committed."""
    topic = clients.topic(partitions=2)
    member = clients.consumer(KafkaConsumer, topic, group="g", client_id="a")
    poll_until([member], lambda: is_shared_out([member], partitions_of(topic, 2)))
    one = TopicPartition(topic, 1)
    member.commit({one: OffsetAndMetadata(7, "", -1)})
    with KafkaAdminClient(**broker.client_config) as admin:
        assert [found["group_id"] for found in admin.list_groups()] == ["g"]
        described = admin.describe_groups(["g", "none"])
        (told,) = described["g"]["members"]
        offsets = admin.list_group_offsets("g")["g"]
        assert admin.list_group_offsets("none") == {"none": {}}
    assert described["none"]["group_state"] == "Dead"
    assert (told["client_id"], told["member_id"]) == ("a", broker.members("g")[0])
    owned = told["member_assignment"]["assigned_partitions"]
    assert owned == [{"topic": topic, "partitions": [0, 1]}]
    assert {tp: found.offset for tp, found in offsets.items()} == {one: 7}
