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
from tests.sim.reading import COOPERATIVE, Reader, both_ways
from tests.sim.test_membership import ILLEGAL_GENERATION

pytestmark = pytest.mark.contract("P16")

NOT_LEADER_OR_FOLLOWER, TOPIC_AUTHORIZATION_FAILED = 6, 29
POSITION, START, END = 10, 60, 100
LEFT = list(range(START, END))
GONE = (POSITION, START, START - POSITION)

MEMBER = {"is_member": True}


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

    def is_told(self, *, gone=(), resets=()):
        """Assert what the events say: each position, the new one, and how many are gone."""
        assert (self.of_gone(), self.of_resets()) == ([*gone], [*resets])

    def of_gone(self):
        """Return what was told of deleted records: old and new position, and how many."""
        found = self._told_of(UnreadRecordsDeleted)
        return [(one.position, one.start, one.gone) for one in found]

    def of_resets(self):
        """Return what was told of other resets: old and new position."""
        found = self._told_of(PositionOutOfRange)
        assert all(one.skipped == max(0, one.offset - one.position) for one in found)
        return [(one.position, one.offset) for one in found]

    def _told_of(self, kind):
        found = [one for one in self.told if isinstance(one, kind)]
        return [one for one in found if one.partition == self.tp]

    def held_past_retention(self):
        """Pause, let retention pass, and resume."""
        self.consumer.pause(self.tp)
        self.is_silent(seconds=2)
        self.loses()
        self.is_silent(seconds=2)
        self.consumer.resume(self.tp)

    def asks(self):
        """Let it ask where the log begins after a hold; return the answer, kept back."""
        asked = self.lab.cluster.fail("ListOffsets", is_held=True, count=1)
        self.held_past_retention()
        self.until(lambda: asked.kept)
        return asked

    def joins_again(self):
        """Let its membership be lost, and another begin."""
        generation = self.lab.generation()
        self.lab.cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
        self.until(lambda: self.lab.generation() > generation, each=5)
        self.owns([self.tp])


# ------------------------------------------------------------ held


@pytest.mark.contract("P16", "P14")
@pytest.mark.parametrize(
    ("reset", "how", "level"),
    [
        pytest.param(*one, id="-".join(one))
        for one in (
            ("earliest", "poll", "read_committed"),
            ("latest", "iterate", "read_committed"),
            ("earliest", "iterate", "read_uncommitted"),
            ("latest", "poll", "read_uncommitted"),
        )
    ],
)
def test_a_held_partition_goes_on_at_the_first_record_that_is_left(
    lab, reset, how, level
):
    """P16: whatever the policy says; one event has both positions and what is gone."""
    reader = Late(lab, auto_offset_reset=reset, how=how, isolation_level=level)
    reader.held_past_retention()
    reader.goes_on_at(START)
    reader.is_told(gone=[GONE])


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


def _while_its_gate_is_closed(reader):
    reader.loses()  # while it reads the control topics


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
    (_without_a_poll, {}),
    (_of_a_seek, {}),
    (_before_a_seek, {}),
    (_away_while_another_is_read, {}),
    (_while_its_gate_is_closed, {**MEMBER, "control": CONTROL}),
    (_through_a_lost_membership, MEMBER),
    (_through_a_lost_membership, {**MEMBER, "assignor": COOPERATIVE}),
    (_resumed_while_it_is_away, MEMBER),
    (_refused_at_first, {}),
    (_raised_at_first, {}),
]


@pytest.mark.contract("P16", "P6")
@pytest.mark.parametrize(("act", "settings"), HOLDS)
def test_any_hold_since_the_last_valid_position_counts(lab, act, settings):
    """P16: however it was placed and ended; also if nobody looked meanwhile."""
    Operator(lab)
    reader = Late(lab, **settings)
    act(reader)
    reader.goes_on_at(START)
    reader.is_told(gone=[GONE])


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


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_nothing_is_left(lab, reset):
    reader = Late(lab, auto_offset_reset=reset)
    reader.consumer.pause(reader.tp)
    reader.loses(END)
    reader.consumer.resume(reader.tp)
    reader.until(reader.of_gone)
    reader.fill(lab, 5, first=END)
    reader.goes_on_at(END, END + 5)
    reader.is_told(gone=[(POSITION, END, END - POSITION)])


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
    reader.is_told()
    reader.consumer.seek_to_beginning(reader.tp)
    reader.goes_on_at(START)


# ------------------------------------------------------------ while it is asked for


def test_taken_away_while_its_start_is_asked_for(lab):
    """P16: the answer is not used; the next ownership asks for itself, and tells it once."""
    reader = Late(lab, is_member=True)
    asked = reader.asks()
    reader.joins_again()
    reader.until(lambda: reader.log)
    asked.end()
    reader.until(lambda: len(reader.log) >= len(LEFT))
    assert reader.offsets(reader.tp) == LEFT
    reader.is_told(gone=[GONE])


@pytest.mark.parametrize("to", [80, END], ids=["to an offset", "to the end"])
def test_a_seek_while_it_is_asked_for_is_no_reset_of_ours(lab, to):
    """P16: reading goes on where the program has sought, and nothing is told."""
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
    reader.is_told()


def test_paused_again_while_it_is_asked_for(lab):
    """P16: the position is right when it is resumed; nothing comes before."""
    reader = Late(lab)
    asked = reader.asks()
    reader.consumer.pause(reader.tp)
    asked.end()
    reader.is_silent()
    assert reader.consumer.position(reader.tp) == START
    assert reader.of_gone() == [GONE]
    reader.loses(70)
    reader.consumer.resume(reader.tp)
    reader.goes_on_at(70)
    reader.is_told(gone=[GONE, (START, 70, 10)])


# ------------------------------------------------------------ not held


def test_never_held_to_the_earliest(lab):
    """P16: as kafka-python does; what is gone is told all the same."""
    reader = Late(lab, auto_offset_reset="earliest")
    reader.loses()
    reader.goes_on_at(START)
    reader.is_told(gone=[GONE])


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
    reader.lab.sleep(3600)  # it does something else; no fetch is under way
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
def test_without_a_hold_since_the_last_valid_position_the_policy_decides(lab, act):
    """P16: as kafka-python does, which passes over what is left; and told."""
    reader = Late(lab)
    position = act(reader)
    reader.until(reader.of_resets)
    since = len(reader.log)
    reader.fill(lab, 2, first=END)
    reader.until(lambda: len(reader.log) >= since + 2)
    assert reader.offsets(reader.tp, since) == [END, END + 1]
    reader.is_told(resets=[(position, END)])


@pytest.mark.parametrize("reset", ["earliest", "latest"])
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
    reader.is_told(resets=[(1000, begins)])


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
