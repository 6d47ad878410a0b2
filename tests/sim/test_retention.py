"""Retention moves the start of a log past a partition's position, held or not."""

import pytest
from kafka import KafkaConsumer
from kafka.errors import OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from safeconsumer.events.consumer import (
    PositionOutOfRange,
    UnreadRecordsDeleted,
)
from safeconsumer.testing import _fetching
from safeconsumer.testing._codes import ILLEGAL_GENERATION
from tests.sim.lab import GROUP
from tests.sim.reading import Watching, at, both_ways

pytestmark = pytest.mark.contract("P16")

NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED = 6, 29
POSITION, START, END = 10, 60, 100
LEFT = list(range(START, END))
GONE = (POSITION, START, START - POSITION)


class Late(Watching):
    """
    Reads ``t-0``, which has a hundred batches, from offset 10 on.

    Attributes:
        tp: the partition.
    """

    def __init__(self, lab, *, is_member=False, **settings):
        (self.tp,) = lab.topic("t")
        self.fill(lab, END)
        chosen = {
            "auto_offset_reset": "latest",
            "max_partition_fetch_bytes": 200,
            **settings,
        }
        if not is_member:
            super().__init__(lab, tps=[self.tp], **chosen)
            self.consumer.seek(self.tp, POSITION)
            return
        asking = KafkaConsumer(**lab.settings(group_id=GROUP))
        asking.assign([self.tp])
        asking.commit({self.tp: at(POSITION)})
        asking.close(autocommit=False)
        super().__init__(lab, "t", **chosen)
        self.consumer.pause(self.tp)  # the reader reads nothing before the test starts
        self.owns([self.tp])

    def fill(self, lab, count, first=0):
        """Append this many records, each in a batch of its own."""
        for number in range(first, first + count):
            lab.append(self.tp, first=number)

    def loses(self, before=START):
        """Let retention delete the records below an offset."""
        self.lab.cluster.delete_before("t", 0, before)

    def goes_on_at(self, offset, end=END):
        """Read to the end; assert that records from an offset on arrive once, in order."""
        self.until(lambda: len(self.log) >= end - offset)
        self.is_silent(seconds=1)
        assert self.offsets(self.tp) == list(range(offset, end))

    def reports(self, *, gone=(), resets=()):
        """Assert the reported deletions (position, start, count) and resets."""
        assert (self.reported_gone(), self.reported_resets()) == ([*gone], [*resets])

    def reported_gone(self):
        found = self.events_of(UnreadRecordsDeleted)
        assert {one.partition for one in found} <= {self.tp}
        return [(one.position, one.start, one.gone) for one in found]

    def reported_resets(self):
        found = self.events_of(PositionOutOfRange)
        assert all(one.skipped == max(0, one.offset - one.position) for one in found)
        return [(one.position, one.offset) for one in found]

    def held_past_retention(self):
        """Pause, let retention delete records, and resume."""
        self.consumer.pause(self.tp)
        self.is_silent(seconds=2)
        self.loses()
        self.is_silent(seconds=2)
        self.consumer.resume(self.tp)

    def asks(self):
        """Make the reader request the log start after a hold; hold back the response."""
        asked = self.lab.cluster.fail("ListOffsets", is_held=True, count=1)
        self.held_past_retention()
        self.until(lambda: asked.kept)
        return asked

    def joins_again(self):
        """End the reader's membership, and wait until it has joined again."""
        generation = self.lab.generation()
        self.lab.cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
        self.until(lambda: self.lab.generation() > generation, each=5)
        self.owns([self.tp])


# ------------------------------------------------------------ held


@pytest.mark.contract("P16", "P14")
@pytest.mark.parametrize(
    ("reset", "how", "level"),
    [
        ("earliest", "poll", "read_committed"),
        ("latest", "iterate", "read_uncommitted"),
    ],
)
def test_held_partition_continues_at_the_first_remaining_record(lab, reset, how, level):
    """P16: under each policy, one event has both positions and the number of offsets."""
    reader = Late(lab, auto_offset_reset=reset, how=how, isolation_level=level)
    reader.held_past_retention()
    reader.goes_on_at(START)
    reader.reports(gone=[GONE])


def _of_a_seek(reader):
    reader.consumer.pause(reader.tp)
    reader.loses()
    reader.consumer.seek(reader.tp, POSITION)
    reader.consumer.resume(reader.tp)


def _through_a_lost_membership(reader):
    reader.joins_again()
    reader.loses()
    reader.is_silent()
    reader.consumer.resume(reader.tp)


def _resumed_while_it_is_away(reader):
    cluster = reader.lab.cluster
    late = cluster.fail("JoinGroup", is_held=True)
    cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
    reader.until(lambda: not reader.consumer.assignment(), each=5)
    reader.consumer.resume()
    reader.loses()
    late.end()


def _refused_at_first(reader):
    reader.lab.cluster.fail("ListOffsets", error=NOT_LEADER_OR_FOLLOWER, count=3)
    reader.held_past_retention()


def _raised_at_first(reader):
    reader.lab.cluster.fail("ListOffsets", error=TOPIC_AUTHORIZATION_FAILED, count=1)
    reader.held_past_retention()
    with pytest.raises(TopicAuthorizationFailedError):
        reader.is_silent()


HOLDS = [
    (_of_a_seek, {}),
    (_through_a_lost_membership, {"is_member": True}),
    (_resumed_while_it_is_away, {"is_member": True}),
    (_refused_at_first, {}),
    (_raised_at_first, {}),
]


@pytest.mark.contract("P16", "P6")
@pytest.mark.parametrize(("act", "settings"), HOLDS)
def test_any_hold_since_the_last_valid_position_counts(lab, act, settings):
    """P16: a hold between two polls also counts; see unit/holds/test_ownerships.py."""
    reader = Late(lab, **settings)
    act(reader)
    reader.goes_on_at(START)
    reader.reports(gone=[GONE])


@pytest.mark.contract("P16", "P8")
@both_ways
def test_parked_records_are_delivered_although_they_were_deleted(lab, how):
    """P16, P8: the event counts only the deleted records that were not parked."""
    reader = Late(lab, how=how, max_partition_fetch_bytes=500)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause(reader.tp)
    late.end()
    reader.is_silent(seconds=1)
    reader.loses()
    reader.consumer.resume(reader.tp)
    reader.until(lambda: reader.offsets(reader.tp)[-1:] == [END - 1])
    found = reader.offsets(reader.tp)
    parked = found[: -len(LEFT)]
    assert parked == list(range(POSITION, POSITION + len(parked)))
    assert parked
    assert found[-len(LEFT) :] == LEFT
    begun = parked[-1] + 1  # the first offset that was not parked
    assert reader.reported_gone() == [(begun, START, START - begun)]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_new_record_is_delivered_after_all_earlier_records_were_deleted(lab, reset):
    reader = Late(lab, auto_offset_reset=reset)
    reader.consumer.pause(reader.tp)
    reader.loses(END)
    reader.consumer.resume(reader.tp)
    reader.until(reader.reported_gone)
    reader.fill(lab, 5, first=END)
    reader.goes_on_at(END, END + 5)
    reader.reports(gone=[(POSITION, END, END - POSITION)])


def test_poll_without_a_reset_policy_raises_until_a_seek(lab):
    """P16: kafka-python does the same."""
    reader = Late(lab, auto_offset_reset="none")
    reader.consumer.pause(reader.tp)
    reader.loses()
    reader.consumer.resume(reader.tp)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            reader.is_silent()
        assert raised.value.args[0] == {reader.tp: POSITION}
    assert reader.consumer.position(reader.tp) == POSITION
    reader.reports()
    reader.consumer.seek_to_beginning(reader.tp)
    reader.goes_on_at(START)


# ------------------------------------------------------------ during the request


def test_response_for_an_ended_ownership_is_not_used(lab):
    """P16: the next ownership sends its own request, and one event is emitted."""
    reader = Late(lab, is_member=True)
    asked = reader.asks()
    reader.joins_again()
    reader.until(lambda: reader.log)
    asked.end()
    reader.until(lambda: len(reader.log) >= len(LEFT))
    assert reader.offsets(reader.tp) == LEFT
    reader.reports(gone=[GONE])


@pytest.mark.parametrize("to", [80, END], ids=["to an offset", "to the end"])
def test_response_with_the_log_start_is_not_used_after_a_seek(lab, to):
    """P16: reading continues at the target of the seek, without an event."""
    reader = Late(lab)
    asked = reader.asks()
    if to == END:
        reader.consumer.seek_to_end(reader.tp)
    else:
        reader.consumer.seek(reader.tp, to)
    asked.end()
    assert reader.consumer.position(reader.tp) == to
    reader.fill(lab, 2, first=END)
    reader.goes_on_at(to, END + 2)
    reader.reports()


def test_pause_during_the_request_for_the_log_start_stays_in_force(lab):
    """P16: the position is correct when the partition is resumed."""
    reader = Late(lab)
    asked = reader.asks()
    reader.consumer.pause(reader.tp)
    asked.end()
    reader.is_silent()
    assert reader.consumer.position(reader.tp) == START
    assert reader.reported_gone() == [GONE]
    reader.loses(70)
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(70)
    reader.reports(gone=[GONE, (START, 70, 10)])


# ------------------------------------------------------------ not held


def test_partition_that_was_never_held_moves_to_the_earliest_with_an_event(lab):
    """P16: kafka-python does the same, without the event."""
    reader = Late(lab, auto_offset_reset="earliest")
    reader.loses()
    reader.goes_on_at(START)
    reader.reports(gone=[GONE])


def _nothing(reader):
    reader.loses()
    return POSITION


def _a_seek_below_the_start(reader):
    reader.loses()
    reader.consumer.seek(reader.tp, START)
    reader.take(5)
    reader.consumer.seek(reader.tp, 3)
    return 3


def _a_hold_and_then_a_record(reader, reads=lambda reader: reader.take(1)):
    reader.consumer.pause(reader.tp)
    reader.is_silent(seconds=1)
    reader.consumer.resume(reader.tp)
    reads(reader)
    reader.lab.sleep(3600)  # the program is busy, and no fetch is in flight
    reader.loses()
    reader.consumer.seek(reader.tp, 2 * POSITION)
    return 2 * POSITION


def _a_hold_and_then_answers_that_leave_it_out(reader):
    def reads(reader):
        reader.consumer.seek_to_end(reader.tp)
        reader.is_silent(seconds=2)
        reader.consumer.pause(reader.tp)
        reader.consumer.resume(reader.tp)
        reader.is_silent(seconds=2)

    return _a_hold_and_then_a_record(reader, reads)


NO_HOLDS = (
    _nothing,
    _a_seek_below_the_start,
    _a_hold_and_then_a_record,
    _a_hold_and_then_answers_that_leave_it_out,
)


@pytest.mark.parametrize("act", NO_HOLDS)
def test_reset_policy_applies_without_a_hold_after_the_last_valid_position(lab, act):
    """P16: the remaining records are skipped, as in kafka-python, but with an event."""
    reader = Late(lab)
    position = act(reader)
    reader.until(reader.reported_resets)
    since = len(reader.log)
    reader.fill(lab, 2, first=END)
    reader.until(lambda: len(reader.log) >= since + 2)
    assert reader.offsets(reader.tp, since) == [END, END + 1]
    reader.reports(resets=[(position, END)])


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("is_held", [True, False])
def test_position_beyond_the_end_follows_the_reset_policy(lab, reset, *, is_held):
    """P16: one event has both positions, whether the partition is held or not."""
    reader = Late(lab, auto_offset_reset=reset)
    reader.consumer.seek(reader.tp, 1000)
    if is_held:
        reader.consumer.pause(reader.tp)
        reader.is_silent(seconds=1)
        reader.consumer.resume(reader.tp)
    reader.until(reader.reported_resets)
    reader.fill(lab, 2, first=END)
    begins = {"earliest": 0, "latest": END}[reset]
    reader.goes_on_at(begins, END + 2)
    reader.reports(resets=[(1000, begins)])


@pytest.mark.parametrize(
    "instead",
    [
        None,
        {"preferred_read_replica": 0},
        {"diverging_epoch": {"epoch": 0, "end_offset": END}},
    ],
    ids=["throttled", "preferred", "diverging"],
)
def test_fetch_response_without_a_read_does_not_confirm_the_position(
    lab, monkeypatch, instead
):
    """
    A leader does not check the offset if it names another replica or a diverging log.

    A throttling response names no partition at all, even if a position is out of range.
    """
    reader = Late(lab)
    position = OffsetAndMetadata(POSITION, "", 0)
    reader.consumer._subscription.seek(reader.tp, position)
    reader.consumer.pause(reader.tp)
    reader.poll(2)
    reader.loses()
    reply, left = _fetching.Fetches._reply, [1]

    def elsewhere(self, exchange, session, topics):
        if topics and left:
            left.pop()
            if instead is None:
                number = 0 if session is None else session.number
                exchange.reply(session_id=number, throttle_time_ms=100, responses=[])
                return
            topics = {
                key: {**one, "error_code": 0, **instead} for key, one in topics.items()
            }
        reply(self, exchange, session, topics)

    monkeypatch.setattr(_fetching.Fetches, "_reply", elsewhere)
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(START)
    assert left == []
    assert reader.reported_gone() == [GONE]
