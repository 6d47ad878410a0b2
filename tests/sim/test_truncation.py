"""A member moves back if an unclean election truncates a log below its position."""

import pytest
from kafka.errors import LogTruncationError
from kafka.structs import OffsetAndMetadata

from safeconsumer.events.consumer import LogTruncated, PositionOutOfRange
from safeconsumer.testing import _protocol
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Watching, both_protocols, both_ways

pytestmark = pytest.mark.contract("P20")

END, TRUNCATION = 10, 5
both_resets = pytest.mark.parametrize("reset", ["earliest", "latest"])


def truncate(lab, tp, offset=TRUNCATION, count=10):
    """Truncate a log by an unclean election, and append records with the new leader."""
    lab.cluster.truncate(tp.topic, tp.partition, offset)
    lab.append(tp, count, first=100)


NEW = list(range(100, 110))  # the values that the new leader appends


class Member(Watching):
    """Reads ``t``, whose partition has ten records."""

    def __init__(self, lab, **settings):
        super().__init__(lab, "t", **settings)

    def reads_new(self, since=0, before=()):
        """Read until the last new record, and check all records."""
        self.until(lambda: 109 in self.values(since))
        assert self.values(since) == [*before, *NEW]

    def moves(self):
        """Return the partition, the old and the new position of each LogTruncated event."""
        found = self.events_of(LogTruncated)
        return [(one.partition, one.position, one.offset) for one in found]


def reads_and_commits(lab, **settings):
    """Let a member of the group read the ten records, commit and leave."""
    first = Member(lab, **{**settings, "auto_offset_reset": "earliest"})
    first.take(END)
    first.consumer.commit()
    first.consumer.close()


# ------------------------------------------------------------ truncation without an owner


@pytest.mark.contract("P20", "P8")
@both_protocols
@both_resets
def test_restarted_member_reads_from_the_truncation_offset(lab, reset, assignor):
    """The committed offset is 10, and the log's records 5 to 9 are new and unread."""
    (tp,) = lab.topic("t", records=END)
    reads_and_commits(lab, assignor=assignor)
    truncate(lab, tp)
    second = Member(lab, assignor=assignor, auto_offset_reset=reset)
    second.reads_new()


def test_member_that_has_read_no_record_starts_at_the_truncation_offset(lab):
    """The position has the leader epoch that the broker returned with the end offset."""
    (tp,) = lab.topic("t", records=END)
    reader = Member(lab, auto_offset_reset="latest", metadata_max_age_ms=1000)
    reader.owns([tp])
    assert reader.consumer.position(tp) == END
    truncate(lab, tp)
    reader.reads_new()


# ------------------------------------------------------------ truncation while a member reads


@pytest.mark.contract("P20", "P16")
@both_resets
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "flowing"])
def test_truncation_moves_a_live_member_back_and_emits_an_event(lab, reset, *, is_held):
    (tp,) = lab.topic("t")
    reader = Member(lab, auto_offset_reset=reset, metadata_max_age_ms=1000)
    reader.owns([tp])
    reader.until(lambda: reader.consumer.position(tp) == 0)
    lab.append(tp, END)
    reader.take(END)
    if is_held:
        reader.consumer.pause(tp)
    truncate(lab, tp)
    if is_held:
        reader.is_silent()
        assert reader.consumer.position(tp) == TRUNCATION
        reader.consumer.resume(tp)
    reader.reads_new(END)
    assert reader.moves() == [(tp, END, TRUNCATION)]


@both_protocols
def test_member_at_the_end_of_its_log_returns_to_the_truncation_offset(lab, assignor):
    (tp,) = lab.topic("t", records=END)
    reads_and_commits(lab, assignor=assignor)
    second = Member(lab, assignor=assignor, metadata_max_age_ms=1000)
    second.owns([tp])
    second.is_silent()
    truncate(lab, tp)
    second.reads_new()
    assert second.moves() == [(tp, END, TRUNCATION)]


@pytest.mark.contract("P20", "P10")
@pytest.mark.parametrize(
    ("offset", "parked"),
    [(5, range(3, END)), (2, ())],
    ids=["after-the-position", "before-the-position"],
)
def test_parked_records_of_the_old_log_are_delivered_if_their_position_is_valid(
    lab, offset, parked
):
    """The records after the parked ones are those of the new log."""
    (tp,) = lab.topic("t", records=END)
    reader = Member(lab, metadata_max_age_ms=1000)
    reader.take(3)
    reader.consumer.pause(tp)
    truncate(lab, tp, offset)
    reader.is_silent()
    reader.consumer.resume(tp)
    reader.reads_new(3, parked)
    assert reader.moves() == [(tp, END if parked else 3, offset)]


@both_ways
@simulated(seeds=1, nightly=2, nodes=2)
def test_leader_that_lacks_records_moves_a_member_to_the_truncation_offset(lab, how):
    """The old leader refuses the fetch, and the metadata names the new one with its epoch."""
    (tp,) = lab.topic("t", records=END)
    reader = Member(lab, how=how)
    reader.take(END)
    node = lab.cluster.log("t", 0).leader
    lab.cluster.truncate("t", 0, TRUNCATION, node=3 - node)
    lab.append(tp, 10, first=100)
    reader.reads_new(END)
    assert reader.moves() == [(tp, END, TRUNCATION)]


@pytest.mark.contract("P20", "P16")
def test_truncation_without_a_reset_policy_raises_until_a_seek(lab):
    (tp,) = lab.topic("t", records=END)
    reads_and_commits(lab)
    truncate(lab, tp)
    second = Member(lab, auto_offset_reset="none")
    for _ in range(2):
        with pytest.raises(LogTruncationError) as raised:
            second.until(lambda: second.log)
        assert raised.value.divergent_offsets[tp].offset == TRUNCATION
    assert (second.log, second.moves()) == ([], [])
    second.consumer.seek(tp, TRUNCATION)
    second.reads_new()


@pytest.mark.contract("P20", "P16")
def test_seek_to_an_offset_beyond_the_end_has_no_epoch(lab):
    """The reset policy decides, because nothing shows that the log was truncated."""
    (tp,) = lab.topic("t", records=END)
    reader = Member(lab)
    reader.take(END)
    reader.consumer.seek(tp, 1000)
    reader.reads(tp, range(END))
    (event,) = reader.events_of(PositionOutOfRange)
    assert (event.position, event.offset, reader.moves()) == (1000, 0, [])


def test_clean_election_does_not_move_a_position(lab):
    """Several epochs have started since the commit, some of them without a record."""
    (tp,) = lab.topic("t", records=END)
    reads_and_commits(lab)
    for count in (0, 0, 3, 0, 2):
        lab.cluster.lead("t", 0, 1)
        for number in range(count):
            lab.append(tp, first=number)
    second = Member(lab)
    second.reads(tp, range(END, END + 5))
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, 5)
    second.reads(tp, range(END + 5, END + 10))
    assert second.moves() == []


# ------------------------------------------------------------ late responses


@pytest.mark.parametrize("fetch", [11, 12], ids=["Kafka-2.6", "Kafka-2.7"])
@simulated(seeds=1, nightly=10, nodes=2)
def test_response_of_an_earlier_leader_does_not_validate_a_held_position(
    lab, monkeypatch, fetch
):
    """Brokers before Kafka 2.7 do not report a diverging log in the response to a fetch."""
    monkeypatch.setitem(_protocol._NEWEST, "Fetch", fetch)
    (tp,) = lab.topic("t", records=END)
    reader = Member(lab, metadata_max_age_ms=1000)
    reader.take(END)
    late = lab.cluster.fail("OffsetForLeaderEpoch", is_held=True, count=1)
    reader.consumer.pause(tp)
    lab.cluster.lead("t", 0, lab.cluster.log("t", 0).leader)
    reader.until(lambda: late.kept)
    truncate(lab, tp)
    reader.is_silent(seconds=3)
    late.end()
    reader.is_silent()
    assert reader.consumer.position(tp) == TRUNCATION
    reader.consumer.resume(tp)
    reader.reads_new(END)
    assert reader.moves() == [(tp, END, TRUNCATION)]


# ------------------------------------------------------------ without OffsetForLeaderEpoch


def test_broker_without_offset_for_leader_epoch_is_still_read(lab):
    """Some brokers that speak Kafka's protocol lack OffsetForLeaderEpoch."""
    (tp,) = lab.topic("t", records=END)
    del lab.cluster._handlers["OffsetForLeaderEpoch"]
    reader = Member(lab, metadata_max_age_ms=1000)
    reader.take(END)
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, 5, first=END)
    reader.reads(tp, range(END, END + 5))


def test_position_has_the_epoch_that_was_committed(lab):
    """A member that has read nothing commits the epoch that another member committed."""
    (tp,) = lab.topic("t", records=END)
    for _ in range(3):
        lab.cluster.lead("t", 0, 1)
    lab.append(tp, END)
    first = Member(lab)
    first.take(2 * END)
    first.consumer.commit()
    first.consumer.close()
    second = Member(lab)
    second.owns([tp])
    second.is_silent(seconds=1)
    second.consumer.commit()
    committed = lab.cluster.committed(GROUP)["t", 0]
    assert (committed.offset, committed.leader_epoch) == (2 * END, 3)


def test_position_before_a_record_that_is_put_back_has_the_records_epoch(lab):
    """Records are put back when a signal handler raises in a wrapped iteration step."""
    (tp,) = lab.topic("t", records=END)
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, END)
    reader = Member(lab, how="iterate")
    reader.take(END + 3)
    reader.consumer._safe_iteration.put_back(reader.log[-1])
    position = reader.consumer._subscription.assignment[tp].position
    assert position == OffsetAndMetadata(END + 2, "", 1)


@simulated(seeds=1)
def test_position_that_the_worker_moves_back_keeps_its_epoch(lab):
    """In contrast, a position that the worker moves forward has no epoch."""
    (tp,) = lab.topic("t", records=END)
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, END)
    reader = Member(lab)
    reader.take(END + 3)
    state = reader.consumer._subscription.assignment[tp]
    reader.consumer._safe_go_back(tp, END + 1)
    assert state.position == OffsetAndMetadata(END + 1, "", 1)
    reader.consumer._safe_go_back(tp, END + 5)
    assert state.position == OffsetAndMetadata(END + 5, "", -1)
