"""Partitions are paused one by one, and then the group moves."""

from collections.abc import Callable

from safeconsumer.demo.member import Member
from safeconsumer.demo.other import Other
from safeconsumer.demo.stage import POLL_MS, Stage

RECORDS = 100
READ_FIRST = 60

# Shorter than any rebalance, so that the program is sure to be thrown out; longer
# than any poll here.
MAX_POLL_INTERVAL_MS = 2000


def ticket_loop(stage: Stage) -> None:
    """
    Pause the whole assignment before every single poll (KAFKA-13463).

    The other member is there first, so that what this one gains when it leaves was
    never paused before; then it joins and leaves once more.
    """
    topic = stage.topic("orders")
    stage.say("two members join the group")
    other = Other(stage, topic)
    other.await_all()
    member = Member(stage, topic)
    member.await_share(other, 2)
    stage.produce(records=RECORDS)
    member.read(READ_FIRST)

    def turn() -> None:
        member.consumer.pause(*member.assignment())
        stage.show(member.consumer)
        member.poll(POLL_MS)

    stage.tally.paused(lambda _: True)
    turn()
    member.say("pausing before every poll; the other member leaves")
    _leave(other, member, turn)
    stage.produce(records=RECORDS // 4)
    member.say("pausing before every poll; another member joins")
    other = Other(stage, topic)
    member.until(lambda: member.owns(2) and other.owns(2), "2 partitions again", turn)
    member.say("pausing before every poll; it leaves, too")
    _leave(other, member, turn)
    member.say("resumed")
    member.resume(*member.assignment())
    member.drain()


def _leave(other: Other, member: Member, turn: Callable[[], object]) -> None:
    other.leave()
    member.await_gain(lambda: member.owns(4), turn)
    for _ in range(2):
        turn()


def moved_away(stage: Stage) -> None:
    """Pause partitions once; then they move to another member and come back."""
    topic = stage.topic("orders")
    member = Member(stage, topic)
    member.say("joining the group")
    member.await_all()
    stage.produce(records=RECORDS)
    member.read(READ_FIRST)
    member.pause(*member.assignment())
    member.say("all paused; another member joins")
    other = Other(stage, topic)
    member.until(lambda: member.owns(2) and other.owns(2), "2 partitions to move away")
    member.say("all paused; the other member leaves again")
    other.leave()
    member.await_gain(lambda: member.owns(4))
    member.say("all paused; the partitions are back")
    member.linger()
    member.say("resumed")
    member.resume(*member.assignment())
    member.drain()


def lost_membership(stage: Stage) -> None:
    """Do not poll for longer than max.poll.interval.ms, then poll again."""
    topic = stage.topic("orders")
    member = Member(stage, max_poll_interval_ms=MAX_POLL_INTERVAL_MS)
    member.subscribe(topic)
    member.say("joining the group")
    member.await_all()
    stage.produce(records=RECORDS)
    member.read(READ_FIRST)
    member.pause(*member.assignment())
    member.say("all paused; too busy to poll, thrown out of the group")
    stage.rest(MAX_POLL_INTERVAL_MS / 1000 + 0.5)
    member.say("all paused; polling again")
    member.until(member.lost.is_set, "the membership to be lost")
    member.await_gain(lambda: member.owns(4))
    member.linger()
    member.say("resumed")
    member.resume(*member.assignment())
    member.drain()
