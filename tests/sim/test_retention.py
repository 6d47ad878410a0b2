"""Records are deleted below the position of a partition, held or not."""

import pytest
from kafka import KafkaConsumer
from kafka.errors import OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import (
    PositionOutOfRange,
    UnreadRecordsDeleted,
)
from safeconsumer.testing import _fetching
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.lab import GROUP
from tests.sim.reading import Reader, both_protocols, both_ways
from tests.sim.test_membership import ILLEGAL_GENERATION

pytestmark = pytest.mark.contract("P16")

NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED = 6, 29
POSITION, START, END = 10, 60, 100
LEFT = list(range(START, END))
GONE = (POSITION, START, START - POSITION)

both_resets = pytest.mark.parametrize("reset", ["earliest", "latest"])


class Late(Reader):
    """
    Reads ``t-0``, which has a hundred batches, from its tenth record on.

    Attributes:
        tp: the partition.
        told: the events of its consumer.
    """

    def __init__(self, lab, *, is_member=False, **settings):
        (self.tp,) = lab.topic("t")
        self.told = []
        self.fill(lab, END)
        if is_member:
            asking = KafkaConsumer(**lab.settings(group_id=GROUP))
            asking.assign([self.tp])
            asking.commit({self.tp: OffsetAndMetadata(POSITION, "", -1)})
            asking.close(autocommit=False)
        small = {"max_partition_fetch_bytes": 200, "hooks": [self.told.append]}
        chosen = {"auto_offset_reset": "latest", **small, **settings}
        if is_member:
            super().__init__(lab, SafeConsumer, "t", **chosen)
            if not settings.get("control"):
                self.consumer.pause(self.tp)  # it reads nothing before the test begins
                self.owns([self.tp])
        else:
            super().__init__(lab, SafeConsumer, tps=[self.tp], **chosen)
            self.consumer.seek(self.tp, POSITION)

    def fill(self, lab, count, first=0):
        """Append so many records, a batch each."""
        for number in range(first, first + count):
            lab.append(self.tp, first=number)

    def loses(self, before=START):
        """Let retention delete what is below an offset."""
        self.lab.cluster.delete_before("t", 0, before)

    def goes_on_at(self, offset, end=END):
        """Read to the end, and assert that what came begins there; once, in order."""
        self.until(lambda: len(self.log) >= end - offset)
        self.is_silent(seconds=1)
        assert self.offsets(self.tp) == list(range(offset, end))

    def of_gone(self):
        """Return what was told of deleted records: old and new position, and how many."""
        return [
            (one.position, one.start, one.gone)
            for one in self.told
            if isinstance(one, UnreadRecordsDeleted) and one.partition == self.tp
        ]

    def of_resets(self):
        """Return what was told of other resets: old and new position."""
        assert all(
            one.skipped == max(0, one.offset - one.position)
            for one in self.told
            if isinstance(one, PositionOutOfRange)
        )
        return [
            (one.position, one.offset)
            for one in self.told
            if isinstance(one, PositionOutOfRange) and one.partition == self.tp
        ]

    def held_past_retention(self):
        """Pause, let retention pass, and resume."""
        self.consumer.pause(self.tp)
        self.is_silent(seconds=2)
        self.loses()
        self.is_silent(seconds=2)
        self.consumer.resume(self.tp)


# ------------------------------------------------------------ held


@pytest.mark.contract("P16", "P14")
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@both_ways
@both_resets
def test_a_held_partition_goes_on_at_the_first_record_that_is_left(
    lab, reset, how, level
):
    """P16: whatever the policy says; one event has both positions and what is gone."""
    reader = Late(lab, auto_offset_reset=reset, how=how, isolation_level=level)
    reader.held_past_retention()
    reader.goes_on_at(START)
    assert (reader.of_gone(), reader.of_resets()) == ([GONE], [])


def _without_a_poll(reader):
    reader.consumer.pause(reader.tp)
    reader.loses()
    reader.consumer.resume(reader.tp)


def _of_a_seek(reader):
    reader.consumer.pause(reader.tp)
    reader.loses()
    reader.consumer.seek(reader.tp, POSITION)
    reader.consumer.resume(reader.tp)


def _before_a_seek(reader):
    reader.consumer.pause(reader.tp)
    reader.loses()
    reader.consumer.resume(reader.tp)
    reader.consumer.seek(reader.tp, POSITION)


def _away_while_another_is_read(reader):
    (other,) = reader.lab.topic("u", 1)
    reader.consumer.pause(reader.tp)
    reader.consumer.assign([other])
    reader.is_silent(seconds=2)
    reader.loses()
    reader.consumer.assign([reader.tp, other])
    reader.consumer.seek(reader.tp, POSITION)


HOLDS = {
    "no poll between": _without_a_poll,
    "a seek while held": _of_a_seek,
    "a seek after it": _before_a_seek,
    "away while another is read": _away_while_another_is_read,
}


@pytest.mark.parametrize("name", HOLDS)
def test_any_hold_since_the_last_valid_position_counts(lab, name):
    """P16: however it was placed and ended; also if nobody looked meanwhile."""
    reader = Late(lab)
    HOLDS[name](reader)
    reader.goes_on_at(START)
    assert reader.of_gone() == [GONE]


def test_a_closed_gate_counts_as_a_hold(lab):
    """P16: the gate at an assignment, while the control topics are read."""
    Operator(lab)
    reader = Late(lab, is_member=True, control=CONTROL)
    reader.loses()
    reader.goes_on_at(START)
    assert reader.of_gone() == [GONE]


@pytest.mark.contract("P16", "P8")
@both_ways
def test_what_is_parked_comes_though_it_was_deleted(lab, how):
    """P16, P8: parked records are delivered; what follows them and is gone is told."""
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
    begun = parked[-1] + 1  # nothing of it was parked
    assert reader.of_gone() == [(begun, START, START - begun)]


def test_others_read_on(lab):
    """P16: of several topics only what was passed is reset, and told."""
    reader = Late(lab)
    others = lab.topic("u", 2, records=5)
    reader.consumer.assign([reader.tp, *others])
    for tp in others:
        reader.consumer.seek(tp, 0)
    reader.consumer.pause(reader.tp)
    reader.until(lambda: len(reader.log) == 10)
    reader.loses()
    reader.consumer.resume(reader.tp)
    for tp in others:
        lab.append(tp, 2, first=5)
    reader.until(lambda: len(reader.log) >= 14 + len(LEFT))
    assert [reader.offsets(tp) for tp in others] == [list(range(7))] * 2
    assert reader.offsets(reader.tp) == LEFT
    assert [type(one) for one in reader.told if hasattr(one, "gone")] == [
        UnreadRecordsDeleted
    ]
    assert reader.of_gone() == [GONE]


@both_resets
def test_nothing_is_left(lab, reset):
    """P16: everything was deleted; what is written next comes."""
    reader = Late(lab, auto_offset_reset=reset)
    reader.consumer.pause(reader.tp)
    reader.loses(END)
    reader.consumer.resume(reader.tp)
    reader.until(reader.of_gone)
    reader.fill(lab, 5, first=END)
    reader.goes_on_at(END, END + 5)
    assert reader.of_gone() == [(POSITION, END, END - POSITION)]


def test_where_it_goes_on_is_what_is_committed(lab):
    """P16: the new position is the partition's, so that lag and commits are right."""
    reader = Late(lab, is_member=True)
    reader.held_past_retention()
    reader.until(lambda: len(reader.log) > 5)
    position = reader.consumer.position(reader.tp)
    assert position == START + len(reader.log)
    reader.consumer.commit()
    assert lab.committed(reader.tp) == position


def test_without_a_policy_it_raises(lab):
    """P16: ``none`` raises as in kafka-python, until the program seeks."""
    reader = Late(lab, auto_offset_reset="none")
    reader.consumer.pause(reader.tp)
    reader.loses()
    reader.consumer.resume(reader.tp)
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            reader.is_silent()
        assert raised.value.args[0] == {reader.tp: POSITION}
    assert reader.consumer.position(reader.tp) == POSITION
    assert (reader.of_gone(), reader.of_resets()) == ([], [])
    reader.consumer.seek_to_beginning(reader.tp)
    reader.goes_on_at(START)


# ------------------------------------------------------------ ownerships


@pytest.mark.contract("P16", "P6")
@both_protocols
def test_held_through_a_lost_membership(lab, assignor):
    """P16: the next ownership begins at a committed offset that is gone meanwhile."""
    reader = Late(lab, is_member=True, assignor=assignor)
    generation = lab.generation()
    lab.cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
    reader.until(lambda: lab.generation() > generation, each=5)
    reader.owns([reader.tp])
    reader.loses()
    reader.is_silent()
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(START)
    assert reader.of_gone() == [GONE]


def test_resumed_while_it_is_away(lab):
    """P16: it was held here, and no position of it has been valid since."""
    reader = Late(lab, is_member=True)
    reader.consumer.pause(*reader.consumer.assignment())
    late = lab.cluster.fail("JoinGroup", is_held=True)
    lab.cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
    reader.until(lambda: not reader.consumer.assignment(), each=5)
    reader.consumer.resume(*reader.consumer.assignment())
    reader.loses()
    late.end()
    reader.goes_on_at(START)
    assert reader.of_gone() == [GONE]


def test_taken_away_while_its_start_is_asked_for(lab):
    """P16: the answer is not used; the next ownership asks for itself, and tells it once."""
    reader = Late(lab, is_member=True)
    asked = lab.cluster.fail("ListOffsets", is_held=True, count=1)
    reader.held_past_retention()
    reader.until(lambda: asked.kept)
    generation = lab.generation()
    lab.cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
    reader.until(lambda: lab.generation() > generation, each=5)
    reader.owns([reader.tp])
    reader.until(lambda: reader.log)
    asked.end()
    reader.until(lambda: len(reader.log) >= len(LEFT))
    assert reader.offsets(reader.tp) == LEFT
    assert reader.of_gone() == [GONE]


# ------------------------------------------------------------ while it is asked for


def test_a_refusal_to_say_where_the_log_begins(lab):
    """P16: it is asked again, and told once; what is raised does not end it."""
    reader = Late(lab)
    lab.cluster.fail("ListOffsets", error=NOT_LEADER_OR_FOLLOWER, count=3)
    reader.held_past_retention()
    reader.goes_on_at(START)
    assert reader.of_gone() == [GONE]


def test_an_error_where_the_log_begins_is_raised_once(lab):
    """P16: then it goes on where it must."""
    reader = Late(lab)
    lab.cluster.fail("ListOffsets", error=TOPIC_AUTHORIZATION_FAILED, count=1)
    reader.held_past_retention()
    with pytest.raises(TopicAuthorizationFailedError):
        reader.is_silent()
    reader.goes_on_at(START)
    assert reader.of_gone() == [GONE]


def test_a_seek_while_it_is_asked_for(lab):
    """P16: the seek counts, and nothing is told."""
    reader = Late(lab)
    asked = lab.cluster.fail("ListOffsets", is_held=True, count=1)
    reader.held_past_retention()
    reader.until(lambda: asked.kept)
    reader.consumer.seek(reader.tp, 80)
    asked.end()
    reader.goes_on_at(80)
    assert (reader.of_gone(), reader.of_resets()) == ([], [])


def test_to_the_end_while_it_is_asked_for(lab):
    """P16: what the program asks for is no reset of ours."""
    reader = Late(lab)
    asked = lab.cluster.fail("ListOffsets", is_held=True, count=1)
    reader.held_past_retention()
    reader.until(lambda: asked.kept)
    reader.consumer.seek_to_end(reader.tp)
    asked.end()
    assert reader.consumer.position(reader.tp) == END
    reader.fill(lab, 2, first=END)
    reader.goes_on_at(END, END + 2)
    assert (reader.of_gone(), reader.of_resets()) == ([], [])


def test_paused_again_while_it_is_asked_for(lab):
    """P16: the position is right when it is resumed; nothing comes before."""
    reader = Late(lab)
    asked = lab.cluster.fail("ListOffsets", is_held=True, count=1)
    reader.held_past_retention()
    reader.until(lambda: asked.kept)
    reader.consumer.pause(reader.tp)
    asked.end()
    reader.is_silent()
    assert reader.consumer.position(reader.tp) == START
    assert reader.of_gone() == [GONE]
    reader.loses(70)
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(70)
    assert reader.of_gone() == [GONE, (START, 70, 10)]


def test_retention_is_quicker_than_the_answer(lab):
    """P16: what is deleted between answer and fetch is told, too."""
    reader = Late(lab)
    asked = lab.cluster.fail("ListOffsets", is_held=True, count=1)
    reader.held_past_retention()
    reader.until(lambda: asked.kept)
    reader.loses(70)
    asked.end()
    reader.goes_on_at(70)
    assert reader.of_gone() == [GONE, (START, 70, 10)]


# ------------------------------------------------------------ not held


def test_never_held_to_the_latest(lab):
    """P16: as kafka-python does, which passes over what is left; and told."""
    reader = Late(lab)
    reader.loses()
    reader.until(reader.of_resets)
    reader.fill(lab, 2, first=END)
    reader.goes_on_at(END, END + 2)
    assert (reader.of_gone(), reader.of_resets()) == ([], [(POSITION, END)])


def test_never_held_to_the_earliest(lab):
    """P16: as kafka-python does; what is gone is told all the same."""
    reader = Late(lab, auto_offset_reset="earliest")
    reader.loses()
    reader.goes_on_at(START)
    assert (reader.of_gone(), reader.of_resets()) == ([GONE], [])


def _read_a_record(reader):
    reader.take(1)


def _had_no_news(reader):
    reader.consumer.seek_to_end(reader.tp)
    reader.is_silent(seconds=2)
    reader.consumer.pause(reader.tp)
    reader.consumer.resume(reader.tp)
    reader.is_silent(seconds=2)  # the answers to its fetches leave it out


@pytest.mark.parametrize("reads", [_read_a_record, _had_no_news])
def test_a_hold_counts_until_a_position_is_valid(lab, reads):
    """P16: what retention passes long after it is as if it had never been held."""
    reader = Late(lab)
    reader.consumer.pause(reader.tp)
    reader.is_silent(seconds=1)
    reader.consumer.resume(reader.tp)
    reads(reader)
    lab.sleep(3600)  # it does something else; no fetch is under way
    reader.loses()
    reader.consumer.seek(reader.tp, 2 * POSITION)
    reader.until(reader.of_resets)
    assert (reader.of_gone(), reader.of_resets()) == ([], [(2 * POSITION, END)])


@both_resets
@pytest.mark.parametrize("is_held", [True, False])
def test_beyond_the_end(lab, reset, *, is_held):
    """P16: the policy decides, held or not; one event has both positions."""
    reader = Late(lab, auto_offset_reset=reset)
    reader.consumer.seek(reader.tp, 1000)
    if is_held:
        reader.consumer.pause(reader.tp)
        reader.is_silent(seconds=1)
        reader.consumer.resume(reader.tp)
    reader.until(reader.of_resets)
    reader.fill(lab, 2, first=END)
    begins = {"earliest": 0, "latest": END}[reset]
    reader.goes_on_at(begins, END + 2)
    assert (reader.of_gone(), reader.of_resets()) == ([], [(1000, begins)])


def test_a_topic_that_is_made_again_while_held(lab):
    """P16: its position is beyond the new end, so the policy decides."""
    reader = Late(lab, auto_offset_reset="earliest", metadata_max_age_ms=1000)
    reader.consumer.pause(reader.tp)
    lab.cluster.delete_topic("t")
    lab.topic("t", 1, records=5)
    reader.is_silent()
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(0, 5)
    assert (reader.of_gone(), reader.of_resets()) == ([], [(POSITION, 0)])


def test_a_seek_below_the_start_that_was_never_held(lab):
    """P16: kafka-python's policy decides."""
    reader = Late(lab)
    reader.loses()
    reader.consumer.seek(reader.tp, START)
    reader.take(5)
    reader.consumer.seek(reader.tp, 3)
    reader.until(reader.of_resets)
    assert (reader.of_gone(), reader.of_resets()) == ([], [(3, END)])


@pytest.mark.parametrize(
    "instead",
    [
        None,
        {"preferred_read_replica": 0},
        {"diverging_epoch": {"epoch": 0, "end_offset": END}},
    ],
    ids=["throttled", "preferred", "diverging"],
)
def test_an_answer_that_read_nothing_proves_no_position(lab, monkeypatch, instead):
    """
    A leader that names a replica to read from, or another log, looks at no offset.

    Nor does one that throttles: it names no partition, also none that is out of range.
    """
    reader = Late(lab)
    at = OffsetAndMetadata(POSITION, "", 0)
    reader.consumer._subscription.seek(reader.tp, at)
    reader.consumer.pause(reader.tp)
    reader.poll(2)
    reader.loses()
    reply, left = _fetching.Fetches._reply, [1]

    def elsewhere(self, exchange, session, told):
        if told and left:
            left.pop()
            if instead is None:
                number = 0 if session is None else session.number
                exchange.reply(session_id=number, throttle_time_ms=100, responses=[])
                return
            told = {
                key: {**one, "error_code": 0, **instead} for key, one in told.items()
            }
        reply(self, exchange, session, told)

    monkeypatch.setattr(_fetching.Fetches, "_reply", elsewhere)
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(START)
    assert left == []
    assert reader.of_gone() == [GONE]
