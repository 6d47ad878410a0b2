"""
Sends single requests that the test kit and Apache Kafka must answer alike.

Each function sends some requests and returns the responses. ``QUESTIONS`` lists the
expected responses; Kafka 4.1.0 gave these responses.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

from attrs import define, evolve, field
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from safeconsumer.testing import _codes
from tests.harness.testing.asking import Client, batch, fetch, records_in

NONE = _codes.NONE
_GROUP, _TRANSACTION = 0, 1
# The errors for a topic or coordinator that does not exist yet, and for a transaction
# that is not complete yet.
_NOT_YET = {3, 5, 6, 14, 15, 16, _codes.CONCURRENT_TRANSACTIONS}
# The metadata of a consumer that subscribes to one topic.
TOPIC_T = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
TOPIC_U = TOPIC_T.replace(b"t", b"u")


@define
class Place:
    """A cluster of one broker, with functions that query and change the cluster."""

    ask: Any
    create: Callable[[str, int], None]
    settle: Callable[[], None]
    delete_before: Callable[[str, int], None]

    def topic(self, partitions=1):
        """Create a topic with a record in each partition; return its name."""
        name = f"t-{uuid4().hex}"
        self.create(name, partitions)
        for number in range(partitions):
            self.until(partial(self._writes, name, number))
        return name

    def _writes(self, topic, partition):
        return int(self.ask.produce(topic, batch(b""), partition).error_code)

    def until(self, ask):
        """Repeat a request until its error is not transient; return the last error code."""
        while (error := ask()) in _NOT_YET:
            self.settle()
        return error

    def coordinated(self, kind):
        """Return a new group id or transactional id for which a coordinator exists."""
        name = uuid4().hex
        request = FindCoordinatorRequest(key=name, key_type=kind)
        self.until(lambda: int(self.ask.ask(request, 3).error_code))
        return name


# Groups


def joined(place, group, **how):
    """Join as a static member; return the response."""
    kind = JoinGroupRequest.JoinGroupRequestProtocol
    protocols = how.pop("protocols", {"range": TOPIC_T})
    fields = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "group_instance_id": "static",
        "protocol_type": "consumer",
        "protocols": [kind(name=name, metadata=m) for name, m in protocols.items()],
    }
    return place.ask.ask(JoinGroupRequest(**{**fields, **how}), 5)


def joiner_of(place, **how):
    """Join a new group; return the group's name and the response."""
    group = place.coordinated(_GROUP)
    place.until(lambda: joined(place, group, **how).error_code)
    return group, joined(place, group, **how)


def member_of(place, **how):
    """Join a new group and sync; return the group's name and the response to the join."""
    group, answer = joiner_of(place, **how)
    request = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id="static",
        assignments=[],
    )
    place.ask.ask(request, 3)
    return group, answer


def the_only_member_changes_its_protocol(place):
    """Join again as the only member, with protocols that the first join did not name."""
    group, member = member_of(place)
    changes = [
        {"protocols": {"sticky": TOPIC_T}},
        {"protocol_type": "connect"},
    ]
    id_ = member.member_id
    return [joined(place, group, member_id=id_, **how).error_code for how in changes]


def a_static_member_returns(place):
    """Join again with another topic, which keeps the generation, or with another assignor."""
    group, member = member_of(place, protocols={"range": TOPIC_T, "sticky": TOPIC_T})
    changes = [
        {"range": TOPIC_U, "sticky": TOPIC_T},
        {"sticky": TOPIC_T, "range": TOPIC_T},
    ]
    now = [joined(place, group, protocols=one).generation_id for one in changes]
    return [one - member.generation_id for one in now]


def a_wrong_member_id_is_used(place):
    """Send heartbeats, joins and leaves with wrong member ids."""
    group, member = member_of(place)
    id_, generation, leaver = (
        member.member_id,
        member.generation_id,
        LeaveGroupRequest.MemberIdentity,
    )
    errors = []
    for name, instance in (("x", None), ("x", "static"), (id_, "other"), ("", None)):
        beat = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=name,
            group_instance_id=instance,
        )
        left = LeaveGroupRequest(
            group_id=group,
            members=[leaver(member_id=name, group_instance_id=instance)],
        )
        joiner = {"member_id": name or "y", "group_instance_id": instance}
        errors.append(
            [
                place.ask.ask(beat, 3).error_code,
                joined(place, group, **joiner).error_code,
                place.ask.ask(left, 3).members[0].error_code,
            ]
        )
    return errors


def commit(place, group, topic, offset, member=(-1, "", None)):
    """Commit an offset, as a member or not as a member; return the error code."""
    generation, id_, instance = member
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    one = kind.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=id_,
        group_instance_id=instance,
        topics=[kind(name=topic, partitions=[one])],
    )
    (one,) = place.ask.ask(request, 7).topics
    return int(one.partitions[0].error_code)


def committed(place, group, topic, *, is_stable=False):
    """Return a group's committed offset; on an error return the negated error code."""
    kind = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        group_id=group,
        topics=[kind(name=topic, partition_indexes=[0])],
        require_stable=is_stable,
    )
    (one,) = place.ask.ask(request, 7).topics[0].partitions
    return -int(one.error_code) if one.error_code else int(one.committed_offset)


# Transactions


@define
class Writer:
    """A transactional producer; most methods send a request and return its error code."""

    place: Place
    topic: str
    id: str
    producer: tuple[int, int] = (-1, -1)
    sequence: int = field(default=0)

    def begins(self):
        """Request a new producer id."""
        answer = self.requests_epoch(-1, -1)
        self.producer = answer.producer_id, answer.producer_epoch
        self.sequence = 0
        return int(answer.error_code)

    def requests_epoch(self, producer, epoch):
        """Request the epoch that follows this epoch; return the response."""
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=60_000,
            producer_id=producer,
            producer_epoch=epoch,
        )
        return self.place.ask.ask(request, 4)

    def adds(self):
        """Add the topic to the transaction."""
        id_, epoch = self.producer
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=id_,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[kind(name=self.topic, partitions=[0])],
        )
        (topic,) = self.place.ask.ask(request, 3).results_by_topic_v3_and_below
        return int(topic.results_by_partition[0].partition_error_code)

    def writes(self, *, is_transactional=True):
        id_, epoch = self.producer
        data = batch(
            b"value",
            producer_id=id_,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            is_transactional=is_transactional,
        )
        answer = self.place.ask.produce(self.topic, data, txn=self.id)
        self.sequence += not answer.error_code
        return int(answer.error_code)

    def _named(self):
        id_, epoch = self.producer
        return {
            "transactional_id": self.id,
            "producer_id": id_,
            "producer_epoch": epoch,
        }

    def adds_offsets(self, group):
        """Add a group's offsets to the transaction."""
        request = AddOffsetsToTxnRequest(group_id=group, **self._named())
        return int(self.place.ask.ask(request, 3).error_code)

    def commits_offset(self, group, offset, member=(-1, "", None)):
        """Commit an offset in the transaction, as a member or not as a member."""
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        one = kind.TxnOffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = TxnOffsetCommitRequest(
            **self._named(),
            group_id=group,
            generation_id=member[0],
            member_id=member[1],
            group_instance_id=member[2],
            topics=[kind(name=self.topic, partitions=[one])],
        )
        (topic,) = self.place.ask.ask(request, 3).topics
        return int(topic.partitions[0].error_code)

    def ends(self, *, is_committed):
        request = EndTxnRequest(**self._named(), committed=is_committed)
        return int(self.place.ask.ask(request, 3).error_code)


def a_producer_numbers_its_batches(place):
    """Send batches again; a broker recognises only a producer's last five batches."""
    topic, answers = place.topic(), []
    numbers = [(0, n) for n in (5, 6, 7, 8, 9, 10, 10, 6, 5, 12)]
    for epoch, number in (*numbers, (1, 3), (1, 0), (0, 11)):
        data = batch(b"", producer_id=7, producer_epoch=epoch, base_sequence=number)
        answer = place.ask.produce(topic, data)
        is_new = not answer.error_code
        answers.append((int(answer.error_code), answer.base_offset if is_new else -1))
    return answers


def a_producer_requests_its_epoch_again(place):
    """Request the next epoch again: after a lost response, and as a fenced producer."""
    writer, answers = writer_in(place), []
    for former in (0, 0, 1, 0):
        answer = writer.requests_epoch(writer.producer[0], former)
        epoch = -1 if answer.error_code else answer.producer_epoch
        answers.append((int(answer.error_code), epoch))
    return answers


def writer_in(place):
    """Return a producer with an id and an epoch."""
    writer = Writer(place, place.topic(), place.coordinated(_TRANSACTION))
    place.until(writer.begins)
    return writer


def a_fenced_producer_writes(place):
    """Write as a fenced producer, before its successor writes in the transaction."""
    old = writer_in(place)
    new = Writer(place, old.topic, old.id)
    return [place.until(new.begins), new.adds(), old.writes(), new.writes()]


def a_producer_writes_beside_its_transaction(place):
    """Write a record outside the producer's open transaction; a broker refuses the write."""
    writer = writer_in(place)
    return [writer.adds(), writer.writes(), writer.writes(is_transactional=False)]


def offsets_belong_to_no_transaction(place):
    """Commit offsets in a transaction without AddOffsetsToTxn; brokers refuse this."""
    writer, group = writer_in(place), place.coordinated(_GROUP)
    errors = [writer.adds(), writer.commits_offset(group, 5)]
    return [*errors, committed(place, group, writer.topic, is_stable=True)]


def offsets_of_an_unknown_topic(place):
    """Commit an offset for a missing topic, with and without a transaction."""
    writer, group = writer_in(place), place.coordinated(_GROUP)
    plainly = commit(place, group, "nowhere", 5)
    answers = [plainly, committed(place, group, "nowhere"), writer.adds_offsets(group)]
    nowhere = evolve(writer, topic="nowhere")
    return [*answers, nowhere.commits_offset(group, 5)]


def offsets_come_before_the_assignment(place):
    """Commit before the member has its assignment, with and without a transaction."""
    group, joiner = joiner_of(place)
    writer = writer_in(place)
    writer.adds_offsets(group)
    member = (joiner.generation_id, joiner.member_id, "static")
    plainly = commit(place, group, writer.topic, 5, member)
    return [plainly, writer.commits_offset(group, 5, member)]


def a_later_commit_overtakes_a_transaction(place):
    """Commit offsets in a transaction and then without one, before the transaction ends."""
    writer, group = writer_in(place), place.coordinated(_GROUP)
    errors = [writer.adds_offsets(group), writer.commits_offset(group, 5)]
    errors += [commit(place, group, writer.topic, 9), writer.ends(is_committed=True)]
    place.until(writer.adds)
    return [*errors, committed(place, group, writer.topic, is_stable=True)]


def an_open_transaction_loses_its_records(place):
    """Delete an open transaction's records; ListOffsets must return a fetchable offset."""
    writer = writer_in(place)
    errors = [writer.adds(), writer.writes()]
    for _ in range(4):
        place.ask.produce(writer.topic, batch(b""))
    place.delete_before(writer.topic, 4)
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = kind.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=-1
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[kind(name=writer.topic, partitions=[asked])],
    )
    end = place.ask.ask(request, 4).topics[0].partitions[0].offset
    read = place.ask.ask(fetch((0, end), topic=writer.topic, isolation=1), 11)
    return [*errors, end, read.responses[0].partitions[0].error_code]


# Fetches


def sizes(answer):
    """Return the number of bytes that a response has for each partition."""
    return [
        len(p.records or b"") for topic in answer.responses for p in topic.partitions
    ]


def a_batch_exceeds_the_limits(place):
    """Fetch three partitions with limits that are too small; the broker returns one batch."""
    topic = place.topic(3)
    for number in (1, 2):
        place.ask.produce(topic, batch(b"x" * 500), number)
    limits = ({"room": 100}, {"all_room": 100})
    asked = [fetch((0, 1), (1, 1), (2, 1), topic=topic, **how) for how in limits]
    return [[bool(size) for size in sizes(place.ask.ask(one, 11))] for one in asked]


def a_limit_ends_within_a_batch(place):
    """Fetch with a limit within a batch; return the numbers of bytes and complete records."""
    topic = place.topic()
    for _ in range(3):
        place.ask.produce(topic, batch(b"x" * 100))
    answer = place.ask.ask(fetch((0, 1), topic=topic, room=300), 11)
    return [*sizes(answer), len(records_in(answer))]


def a_fetch_has_a_last_epoch(place):
    """Fetch beyond the end, at the end and below the start, with and without an epoch."""
    topic = place.topic()
    for _ in range(4):
        place.ask.produce(topic, batch(b""))
    place.delete_before(topic, 2)
    asked = [(9, 0), (5, 0), (4, 0), (1, 0), (5, 1), (9, -1), (1, -1), (5, -1)]
    answers = [
        place.ask.ask(fetch((0, offset), topic=topic, last_epoch=epoch), 12)
        for offset, epoch in asked
    ]
    return [fetched(one) for one in answers]


def fetched(answer):
    """Return a partition's error, diverging epoch, log start and end, and offsets."""
    (one,) = answer.responses[0].partitions
    parted = one.diverging_epoch
    return (
        int(one.error_code),
        None if parted is None else (parted.epoch, parted.end_offset),
        None if one.error_code else (one.log_start_offset, one.high_watermark),
        [offset for offset, _ in records_in(answer)],
    )


def a_session_diverges_from_the_log(place):
    """Fetch beyond the end, twice in a session and once in a version that has no epochs."""
    topic = place.topic()
    beyond = {"topic": topic, "last_epoch": 0}
    first = place.ask.ask(fetch((0, 9), session=(0, 0), **beyond), 12)
    second = place.ask.ask(
        fetch(session=(first.session_id, 1), wait=600_000, **beyond), 12
    )
    old = place.ask.ask(fetch((0, 9), **beyond), 11)
    return [fetched(one)[:2] for one in (first, second, old)]


def a_reader_requests_the_ends_of_epochs(place):
    """Send OffsetForLeaderEpoch with the current epoch, a later epoch, and no epoch."""
    topic = place.topic()
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    answers = []
    for current, epoch in ((-1, 0), (0, 0), (0, 1), (-1, -1), (1, 0)):
        one = kind.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[kind(topic=topic, partitions=[one])]
        )
        (answer,) = place.ask.ask(request, 4).topics[0].partitions
        error = int(answer.error_code)
        answers.append((error, answer.leader_epoch, answer.end_offset))
    return answers


def the_ends_of_a_log_have_epochs(place):
    """Request the earliest offset, the latest offset, and the first offset since a time."""
    topic = place.topic()
    place.ask.produce(topic, batch(b""))
    kind = ListOffsetsRequest.ListOffsetsTopic
    answers = []
    for timestamp in (-2, -1, 0):
        asked = kind.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=-1, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[kind(name=topic, partitions=[asked])],
        )
        (answer,) = place.ask.ask(request, 4).topics[0].partitions
        answers.append((answer.offset, answer.leader_epoch))
    return answers


def a_fetch_requests_no_partition(place):
    """Send a Fetch without partitions and with a long wait; a broker responds immediately."""
    return sizes(place.ask.ask(fetch(wait=600_000), 11))


def in_kit(cluster, clock):
    return Place(
        Client(cluster),
        create=cluster.create_topic,
        settle=lambda: clock.pass_(1),
        delete_before=lambda topic, offset: cluster.delete_before(topic, 0, offset),
    )


QUESTIONS = {
    the_only_member_changes_its_protocol: [_codes.INCONSISTENT_GROUP_PROTOCOL] * 2,
    a_static_member_returns: [0, 1],
    a_wrong_member_id_is_used: [
        [_codes.UNKNOWN_MEMBER_ID] * 3,
        [_codes.FENCED_INSTANCE_ID] * 3,
        [_codes.UNKNOWN_MEMBER_ID] * 3,
        [_codes.UNKNOWN_MEMBER_ID] * 3,
    ],
    a_producer_numbers_its_batches: [
        *((NONE, offset) for offset in (1, 2, 3, 4, 5, 6, 6, 2)),
        *[(_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)] * 3,
        (NONE, 7),
        (_codes.INVALID_PRODUCER_EPOCH, -1),
    ],
    a_producer_requests_its_epoch_again: [
        (NONE, 1),
        (NONE, 1),
        (NONE, 2),
        (_codes.PRODUCER_FENCED, -1),
    ],
    a_fenced_producer_writes: [NONE, NONE, _codes.INVALID_PRODUCER_EPOCH, NONE],
    a_producer_writes_beside_its_transaction: [NONE, NONE, _codes.INVALID_TXN_STATE],
    offsets_belong_to_no_transaction: [NONE, _codes.INVALID_TXN_STATE, -1],
    offsets_of_an_unknown_topic: [
        _codes.UNKNOWN_TOPIC_OR_PARTITION,
        -1,
        NONE,
        _codes.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    offsets_come_before_the_assignment: [_codes.REBALANCE_IN_PROGRESS, NONE],
    a_later_commit_overtakes_a_transaction: [NONE, NONE, NONE, NONE, 9],
    an_open_transaction_loses_its_records: [NONE, NONE, 4, NONE],
    a_batch_exceeds_the_limits: [[False, True, False]] * 2,
    a_limit_ends_within_a_batch: [300, 1],
    a_fetch_requests_no_partition: [],
    a_fetch_has_a_last_epoch: [
        (NONE, (0, 5), (2, 5), []),
        (NONE, None, (2, 5), []),
        (NONE, None, (2, 5), [4]),
        *[(_codes.OFFSET_OUT_OF_RANGE, None, None, [])] * 4,
        (NONE, None, (2, 5), []),
    ],
    a_session_diverges_from_the_log: [
        (NONE, (0, 1)),
        (NONE, (0, 1)),
        (_codes.OFFSET_OUT_OF_RANGE, None),
    ],
    a_reader_requests_the_ends_of_epochs: [
        (NONE, 0, 1),
        (NONE, 0, 1),
        (NONE, -1, -1),
        (NONE, -1, -1),
        (_codes.UNKNOWN_LEADER_EPOCH, -1, -1),
    ],
    the_ends_of_a_log_have_epochs: [(0, 0), (2, 0), (0, 0)],
}
