"""Transactions by single requests: what belongs to one, and when its end counts."""

from typing import Any

import pytest
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from safeconsumer.testing import _codes
from safeconsumer.testing._cluster import Cluster
from safeconsumer.testing._log import Log
from tests.harness.testing.asking import Client, batch, cluster_of

GROUP = "g"
ENDED = 1.0  # seconds after which a transaction's end is written everywhere


class Writer:
    """A transactional producer, request by request; each returns its error code."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = Client(cluster)
        self.producer = (-1, -1)
        self.sequence = 0

    def begin(self) -> int:
        request = InitProducerIdRequest(
            transactional_id="t",
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        told = self.client.ask(request, 4)
        self.producer, self.sequence = (told.producer_id, told.producer_epoch), 0
        return int(told.error_code)

    def adds(self) -> int:
        id_, epoch = self.producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=id_,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                    name="t", partitions=[0]
                )
            ],
        )
        (topic,) = self.client.ask(request, 3).results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def writes(self, value: bytes, **how: Any) -> int:  # noqa: ANN401  a builder's own
        id_, epoch = self.producer
        given = {"is_transactional": True, **how}
        data = batch(
            value,
            producer_id=id_,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            **given,
        )
        told = self.client.produce("t", data, txn="t")
        self.sequence += not told.error_code
        return int(told.error_code)

    def adds_offsets(self) -> int:
        id_, epoch = self.producer
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=id_, producer_epoch=epoch, group_id=GROUP
        )
        return int(self.client.ask(request, 3).error_code)

    def commits_offset(self, offset: int) -> int:
        id_, epoch = self.producer
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = kind.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=GROUP,
            producer_id=id_,
            producer_epoch=epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[kind(name="t", partitions=[one])],
        )
        (topic,) = self.client.ask(request, 3).topics
        return int(topic.partitions[0].error_code)

    def ends(self, *, is_committed: bool) -> int:
        id_, epoch = self.producer
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=id_,
            producer_epoch=epoch,
            committed=is_committed,
        )
        return int(self.client.ask(request, 3).error_code)


class World:
    """A cluster, a clock, and a producer that has begun a transaction."""

    def __init__(self) -> None:
        self.cluster, self.clock = cluster_of()
        self.cluster.create_topic("t")
        self.cluster.transactions.end_takes = ENDED
        self.writer = Writer(self.cluster)
        assert self.writer.begin() == _codes.NONE

    def commit(self, offset: int) -> None:
        """Commit an offset without a transaction."""
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        one = kind.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[kind(name="t", partitions=[one])],
        )
        (topic,) = Client(self.cluster).ask(request, 7).topics
        assert topic.partitions[0].error_code == _codes.NONE

    def committed(self, *, is_stable: bool = False) -> int:
        """Return the group's offset, or the negative error code."""
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        request = OffsetFetchRequest(
            group_id=GROUP,
            topics=[kind(name="t", partition_indexes=[0])],
            require_stable=is_stable,
        )
        (topic,) = Client(self.cluster).ask(request, 7).topics
        (one,) = topic.partitions
        return -int(one.error_code) if one.error_code else int(one.committed_offset)

    @property
    def log(self) -> Log:
        """The partition's log."""
        return self.cluster.log("t", 0)


@pytest.fixture
def world() -> World:
    return World()


def test_an_end_is_acknowledged_before_it_counts(world: World) -> None:
    """Who asks for offsets in between has the old one, unless it asks for stable ones."""
    writer = world.writer
    world.commit(1)
    assert [writer.adds(), writer.writes(b"a"), writer.adds_offsets()] == [0, 0, 0]
    assert writer.commits_offset(5) == _codes.NONE
    assert writer.ends(is_committed=True) == _codes.NONE
    assert (world.log.stable_end, world.committed()) == (0, 1)
    assert world.committed(is_stable=True) == -_codes.UNSTABLE_OFFSET_COMMIT
    concurrent = _codes.CONCURRENT_TRANSACTIONS
    assert writer.adds() == writer.adds_offsets() == concurrent
    assert writer.ends(is_committed=True) == concurrent
    assert writer.ends(is_committed=False) == _codes.INVALID_TXN_STATE
    assert Writer(world.cluster).begin() == concurrent
    world.clock.pass_(ENDED)
    assert (world.log.stable_end, world.committed(is_stable=True)) == (2, 5)
    assert writer.ends(is_committed=True) == writer.adds() == _codes.NONE


def test_who_begins_anew_aborts_what_is_open_and_comes_again(world: World) -> None:
    """As in Kafka: the fence is there at once, the end of the abort is waited for."""
    assert [world.writer.adds(), world.writer.writes(b"a")] == [0, 0]
    successor = Writer(world.cluster)
    assert successor.begin() == _codes.CONCURRENT_TRANSACTIONS
    assert world.writer.ends(is_committed=True) == _codes.PRODUCER_FENCED
    world.clock.pass_(ENDED)
    assert successor.begin() == _codes.NONE
    assert [one.first for one in world.log.aborted] == [0]


def test_a_fenced_producer_writes_nothing_into_its_successors_transaction(
    world: World,
) -> None:
    """The partition's log has not heard of the successor yet: its coordinator has."""
    successor = Writer(world.cluster)
    assert [successor.begin(), successor.adds()] == [0, 0]
    assert world.writer.writes(b"late") == _codes.INVALID_PRODUCER_EPOCH
    assert successor.writes(b"right") == _codes.NONE


def test_a_producer_writes_nothing_beside_its_transaction(world: World) -> None:
    """Kafka refuses it: such a record would be readable, whatever ends the transaction."""
    assert [world.writer.adds(), world.writer.writes(b"a")] == [0, 0]
    beside = world.writer.writes(b"b", is_transactional=False)
    assert beside == _codes.INVALID_TXN_STATE


def test_offsets_belong_to_a_transaction_that_knows_their_group(world: World) -> None:
    """Else nothing would end them: they would be unstable for ever."""
    assert world.writer.commits_offset(5) == _codes.INVALID_TXN_STATE
    assert world.committed(is_stable=True) == -1


def test_a_later_commit_is_not_undone_by_an_older_transaction(world: World) -> None:
    """The one that was asked for last counts, though the other ends later."""
    assert world.writer.adds_offsets() == world.writer.commits_offset(5) == 0
    world.commit(9)
    world.writer.ends(is_committed=True)
    world.clock.pass_(ENDED)
    assert world.committed() == 9


@pytest.mark.parametrize("gone", ["topic", "group", "offset"])
def test_what_was_deleted_is_not_committed_by_a_transaction(
    world: World, gone: str
) -> None:
    """A topic of the same name would begin in its middle."""
    assert world.writer.adds_offsets() == world.writer.commits_offset(5) == 0
    if gone == "topic":
        world.cluster.delete_topic("t")
        world.cluster.create_topic("t")
    elif gone == "group":
        world.cluster.offsets.forget_group(GROUP)
    else:
        world.cluster.groups.group(GROUP)
        kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
        one = kind.OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest(
            group_id=GROUP, topics=[kind(name="t", partitions=[one])]
        )
        Client(world.cluster).ask(request, 0)
    world.writer.ends(is_committed=True)
    world.clock.pass_(ENDED)
    assert world.committed() == -1
