"""An unclean election cuts a log below a position; reading goes on where the logs part."""

from typing import Any

import pytest
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import SafeConsumer
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_protocols
from tests.sim.test_membership import ILLEGAL_GENERATION

END, CUT = 10, 5
both_resets = pytest.mark.parametrize("reset", ["earliest", "latest"])


def cut(lab: Lab, tp: TopicPartition, offset: int = CUT, count: int = 10) -> None:
    """Let an unclean election cut a log, and the new leader append other records."""
    lab.cluster.truncate(tp.topic, tp.partition, offset)
    lab.append(tp, count, first=100)


def values(reader: Reader, since: int = 0) -> list[int]:
    return [int(one.value) for one in reader.log[since:]]


NEW = list(range(100, 110))  # the values that the new leader appends, from CUT on


class Watching(Reader):
    """Reads ``t``, whose partition has ten records, and keeps its consumer's events."""

    def __init__(self, lab: Lab, **settings: Any) -> None:
        self.events: list[Any] = []
        super().__init__(lab, SafeConsumer, "t", hooks=[self.events.append], **settings)

    def moves(self) -> list[tuple[TopicPartition, int, int]]:
        """Return what events said of logs that were cut: old position and new."""
        return [
            (one.partition, one.position, one.offset)
            for one in self.events
            if one.name == "log_truncated"
        ]


def reads_and_commits(lab: Lab, **settings: Any) -> None:
    """Let a member of the group read the ten records, commit and leave."""
    first = Watching(lab, **{**settings, "auto_offset_reset": "earliest"})
    first.take(END)
    first.consumer.commit()
    first.consumer.close()


# ------------------------------------------------------------ while nobody owns it


@pytest.mark.xfail(strict=True, reason="the epoch of a commit is dropped")
@both_protocols
@both_resets
@simulated(seeds=2)
def test_a_log_that_was_cut_during_a_restart_is_read_from_the_cut(
    lab: Lab, reset: str, assignor: type
) -> None:
    """The commit says 10; records 5 to 9 are others now, and none of them was read."""
    (tp,) = lab.topic("t", records=END)
    reads_and_commits(lab, assignor=assignor)
    cut(lab, tp)
    second = Watching(lab, assignor=assignor, auto_offset_reset=reset)
    second.until(lambda: 109 in values(second))
    assert values(second) == NEW


@pytest.mark.xfail(strict=True, reason="the epoch of a commit is dropped")
@both_protocols
@simulated(seeds=2)
def test_a_log_that_was_cut_during_a_rebalance_is_read_from_the_cut(
    lab: Lab, assignor: type
) -> None:
    (tp,) = lab.topic("t", records=END)
    reader = Watching(lab, assignor=assignor)
    reader.take(END)
    reader.consumer.commit()
    late = lab.cluster.fail("JoinGroup", is_held=True)
    lab.cluster.fail("Heartbeat", error=ILLEGAL_GENERATION, count=1)
    reader.until(lambda: not reader.consumer.assignment(), each=5)
    cut(lab, tp)
    late.end()
    reader.until(lambda: 109 in values(reader))
    assert values(reader, END) == NEW


@pytest.mark.xfail(strict=True, reason="the epoch of a reset's answer is dropped")
@simulated(seeds=2)
def test_an_end_that_was_cut_before_a_record_came_is_read_from_the_cut(
    lab: Lab,
) -> None:
    """A broker has said where the log ends, and in which epoch."""
    (tp,) = lab.topic("t", records=END)
    reader = Watching(lab, auto_offset_reset="latest", metadata_max_age_ms=1000)
    reader.until(lambda: reader.consumer.assignment())
    assert reader.consumer.position(tp) == END
    cut(lab, tp)
    reader.until(lambda: 109 in values(reader))
    assert values(reader) == NEW


# ------------------------------------------------------------ while it is read


@pytest.mark.xfail(strict=True, reason="nothing says that the position moved back")
@both_resets
@pytest.mark.parametrize("is_held", [True, False], ids=["held", "flowing"])
@simulated(seeds=2)
def test_a_live_member_goes_back_to_the_cut_and_says_so(
    lab: Lab, reset: str, *, is_held: bool
) -> None:
    (tp,) = lab.topic("t")
    reader = Watching(lab, auto_offset_reset=reset, metadata_max_age_ms=1000)
    reader.owns([tp])
    reader.until(lambda: reader.consumer.position(tp) == 0)
    lab.append(tp, END)
    reader.take(END)
    if is_held:
        reader.consumer.pause(tp)
    cut(lab, tp)
    if is_held:
        reader.is_silent()
        assert reader.consumer.position(tp) == CUT
        reader.consumer.resume(tp)
    reader.until(lambda: 109 in values(reader))
    assert values(reader, END) == NEW
    assert reader.moves() == [(tp, END, CUT)]


# ------------------------------------------------------------ where it cannot be asked


@pytest.mark.xfail(strict=True, reason="the position waits for an answer for ever")
@simulated(seeds=1)
def test_a_broker_without_the_request_is_read_on(lab: Lab) -> None:
    """Some brokers that speak Kafka's protocol lack OffsetForLeaderEpoch."""
    (tp,) = lab.topic("t", records=END)
    del lab.cluster._handlers["OffsetForLeaderEpoch"]
    reader = Watching(lab, metadata_max_age_ms=1000)
    reader.take(END)
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, 5, first=END)
    reader.reads(tp, range(END, END + 5))


@pytest.mark.xfail(strict=True, reason="the epoch of a commit is dropped")
@simulated(seeds=1)
def test_a_position_has_the_epoch_that_was_committed(lab: Lab) -> None:
    """Who has read nothing commits the epoch that somebody else has committed."""
    (tp,) = lab.topic("t", records=END)
    for _ in range(3):
        lab.cluster.lead("t", 0, 1)
    lab.append(tp, END)
    first = Watching(lab)
    first.take(2 * END)
    first.consumer.commit()
    first.consumer.close()
    second = Watching(lab)
    second.owns([tp])
    second.is_silent(seconds=1)
    second.consumer.commit()
    committed = lab.cluster.committed(GROUP)["t", 0]
    assert (committed.offset, committed.leader_epoch) == (2 * END, 3)


@pytest.mark.xfail(strict=True, reason="the epoch of what is taken back is dropped")
@simulated(seeds=1)
def test_a_record_that_is_taken_back_leaves_its_epoch(lab: Lab) -> None:
    """A signal handler raised in a step of an iteration that something wraps."""
    (tp,) = lab.topic("t", records=END)
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, END)
    reader = Watching(lab, how="iterate")
    reader.take(END + 3)
    reader.consumer._safe_iteration.take_back(reader.log[-1])
    position = reader.consumer._subscription.assignment[tp].position
    assert position == OffsetAndMetadata(END + 2, "", 1)
