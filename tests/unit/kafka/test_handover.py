"""Tests pauses in join metadata: the bytes, a member's marks and the wrapped assignor."""

import zlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from safeconsumer._kafka import handover
from safeconsumer._kafka.handover import (
    LEADER,
    MEMBER,
    HandOver,
    Mark,
    PauseCarryingAssignor,
    merge,
    paused,
    unwrap,
    wrap,
)
from safeconsumer.errors import HoldSettingError
from safeconsumer.holds.scope import Partition
from tests.harness.holds.lab import LedgerLab

ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]
ORDERS_1 = TopicPartition("orders", 1)


def mark(generation, *, is_paused=True):
    return Mark(generation, is_own=False, is_paused=is_paused)


marks = st.dictionaries(
    st.builds(
        TopicPartition,
        st.sampled_from(["orders", "audit", "a.b-c_d"]),
        st.integers(0, 40),
    ),
    st.builds(mark, st.integers(0, 2**31 - 1), is_paused=st.booleans()),
    min_size=1,
    max_size=9,
)


# ------------------------------------------------------------ the bytes


@given(st.binary(max_size=60), marks, st.sampled_from([MEMBER, LEADER]))
def test_marks_are_decoded_as_they_were_encoded(inner, given_marks, writer):
    whole = wrap(inner, given_marks, writer)
    assert whole.startswith(inner)
    assert unwrap(whole) == (inner, writer, given_marks)
    assert wrap(inner, {}, writer) == inner


@given(st.binary(max_size=60), marks, st.data())
def test_corrupted_bytes_are_refused_or_decoded_to_the_same_marks(
    inner, given_marks, data
):
    whole = bytearray(wrap(inner, given_marks, LEADER))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at : at + 1] = data.draw(st.binary(max_size=2))
    _, writer, found = unwrap(bytes(whole))
    assert writer is None or found == given_marks


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"no deflated data", id="plain"),
        pytest.param(zlib.compress(b"\0" * 50_000_000, 9), id="large"),
        pytest.param(zlib.compress(b"[" * 100_000), id="deep"),
        *[
            pytest.param(
                zlib.compress(b'{"version":%b,"by":%b,"marks":%b}' % one), id=n
            )
            for n, one in {
                "newer": (b"9", b'"member"', b"[]"),
                "by": (b"1", b'"both"', b"[]"),
                "partition": (b"1", b'"member"', b'[["t",1,true,[true]]]'),
                "generation": (b"1", b'"member"', b'[["t",-1,true,[0]]]'),
                "topic": (b"1", b'"member"', b"[[7,1,true,[0]]]"),
            }.items()
        ],
    ],
)
def test_invalid_payload_is_read_as_if_it_had_no_marks(payload):
    """One payload expands from 50 kB to 50 MB; another nests a hundred thousand lists."""
    trailer = handover._TRAILER
    end = trailer.pack(len(payload), zlib.crc32(payload), handover.MAGIC)
    assert unwrap(b"inner" + payload + end) == (b"inner", None, {})


@given(marks, marks, marks)
def test_merged_marks_depend_on_neither_order_nor_repetition(a, b, c):
    assert merge(a, merge(b, c)) == merge(merge(c, a), b) == merge(merge(a, b), {**c})
    assert merge(a, a) == a


def test_paused_mark_takes_precedence_over_an_unpaused_mark_of_the_same_generation():
    free = mark(3, is_paused=False)
    assert merge({ORDERS_1: free}, {ORDERS_1: mark(3)}) == {ORDERS_1: mark(3)}
    assert merge({ORDERS_1: mark(2)}, {ORDERS_1: free}) == {ORDERS_1: free}


# ------------------------------------------------------------ the marks of a member


class Member:
    """A member that pauses all its partitions."""

    def __init__(self, *owned):
        self._lab = LedgerLab()
        self.handover = HandOver(self._lab.ledger)
        self.own(*owned)

    def own(self, *partitions):
        self._lab.assign(*partitions)
        if partitions:
            self._lab.hold(*(Partition(*tp) for tp in partitions))

    def before_join(self, inner=RangePartitionAssignor):
        """Prepare a join, and return the assignor that sends the marks."""
        self.handover.before_join()
        return PauseCarryingAssignor(inner, self.handover)

    def rebalanced(self, generation, *topics):
        """Run one join of a group led by this member, and return the number of bytes sent."""
        data = self.before_join().metadata(set(topics)).user_data or b""
        _, _, sent = unwrap(data)
        self.handover.joined(wrap(b"", sent, LEADER), generation)
        return len(data)


def test_pause_marks_echoed_by_a_leader_are_ignored():
    """A librdkafka leader copies a member's subscription data into its assignment."""
    handover = Member().handover
    for writer, known in [(MEMBER, {}), (LEADER, {ORDERS_1: mark(4)})]:
        handover.joined(wrap(b"", {ORDERS_1: mark(4)}, writer), 5)
        assert handover.known == known


def test_pause_marks_of_deleted_topics_are_forgotten():
    """The join metadata does not grow although fifty topics are paused and then deleted."""
    member, sizes = Member(), []
    for generation in range(1, 51):
        owned = [TopicPartition(f"short-{generation}", n) for n in range(40)]
        member.own(*owned)
        sizes.append(member.rebalanced(generation, f"short-{generation}"))
    assert max(sizes[25:]) <= 1.2 * max(sizes[:25])
    assert set(member.handover.known) >= set(owned)


@pytest.mark.parametrize(
    ("topic", "generations"),
    [
        # No member subscribes to the topic for a while, as in a rolling restart.
        pytest.param("audit", 12, id="unsubscribed-for-a-while"),
        # The partition's owner may be another client, which does not send pause marks.
        pytest.param("orders", 100, id="subscribed"),
    ],
)
def test_pause_mark_is_kept_for_a_topic_subscribed_now_or_recently(topic, generations):
    tp = TopicPartition(topic, 1)
    member = Member(tp)
    member.rebalanced(1, topic, "orders")
    member.own()
    for generation in range(2, generations):
        member.rebalanced(generation, "orders")
    assert paused(member.handover.known) == {tp}


# ------------------------------------------------------------ the wrapped assignor


def test_wrapped_assignor_without_pauses_equals_the_inner_assignor(safe):
    """The name, the version, the protocols and the bytes are equal."""
    strategies = [RangePartitionAssignor, RoundRobinPartitionAssignor]
    consumer = safe(
        group_id="g",
        pause_handover="assignor",
        partition_assignment_strategy=strategies,
    )
    for inner in strategies:
        wrapped = consumer._coordinator._assignors[inner.name]
        assert (wrapped.name, wrapped.version) == (inner.name, inner.version)
        assert wrapped.supported_protocols() == [RebalanceProtocol.EAGER]
        expected = inner.metadata({"orders"}).encode()
        assert wrapped.metadata({"orders"}).encode() == expected


@pytest.mark.parametrize("kind", ASSIGNORS)
def test_inner_assignors_user_data_precedes_the_pause_marks(kind):
    """Readers that decode from the front see the inner assignor's data."""
    inner = kind()
    inner.on_assignment(ConsumerProtocolAssignment(0, [("orders", [1])], b""), 3)
    ours = Member(ORDERS_1).before_join(inner).metadata({"orders"})
    plain = inner.metadata({"orders"}).user_data
    plain = plain if isinstance(plain, bytes) else plain.encode()
    front, _, sent = unwrap(ours.user_data)
    assert front == plain or (not plain and not front.strip(b"\0\xff"))
    assert set(sent) == {ORDERS_1}


@pytest.mark.parametrize(("most", "are_sent"), [(1_000, False), (1_000_000, True)])
def test_marks_of_a_generation_are_omitted_if_there_are_too_many(
    monkeypatch, most, are_sent
):
    """If the group's metadata exceeded the size limit, the group could never rebalance."""
    monkeypatch.setattr(handover, "MOST_BYTES_OF_A_GENERATION", most)
    many = [TopicPartition(f"topic-{n:05d}", n * 7 % 1000) for n in range(200)]
    assignor = Member(*many).before_join()
    members = [
        SimpleNamespace(
            member_id=str(n),
            group_instance_id=None,
            metadata=assignor.metadata({"orders"}),
        )
        for n in range(4)
    ]
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2, 3})
    assigned = assignor.assign(cluster, members)
    assert {one.user_data != b"" for one in assigned.values()} == {are_sent}


def test_wrong_handover_settings_are_refused(safe):
    with pytest.raises(HoldSettingError, match="pause_handover must be 'off' or"):
        safe(group_id="g", pause_handover="offsets")
    with pytest.raises(HoldSettingError, match="group_id"):
        safe(group_id=None, pause_handover="assignor")
