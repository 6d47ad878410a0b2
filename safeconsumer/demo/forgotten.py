"""Plays a join that lasts longer than one ``poll()``."""

from safeconsumer.demo.member import Member
from safeconsumer.demo.other import Other
from safeconsumer.demo.stage import Stage

SHORT_POLL_MS = 100

# This member looks for new topics four times before the other one polls again; the
# other hears of them from the group only, and joins when it polls.
LOOKS_EVERY_MS = 500
OTHER_WORKS_SECONDS = 2.0

# Records are produced for so many polls after the group has settled.
ROUNDS = 20
PACE_SECONDS = 0.05


def forgotten_join(stage: Stage) -> None:
    """
    Let a new topic appear while the other member is too busy to poll.

    Every record is produced after the group has settled, so one that both members
    deliver was delivered by two members that worked on one partition at once.
    """
    stage.topic("orders-eu")
    other = Other(stage, pattern=stage.pattern(), is_judged=True)
    # The first member leads the group, and a leader does not forget its own join.
    other.await_all()
    member = Member(stage, metadata_max_age_ms=LOOKS_EVERY_MS)
    # Without a listener, as most programs: with one the stock client, waiting for the
    # join that it forgot, also stops fetching what it still believes to own.
    member.subscribe(pattern=stage.pattern(), is_watched=False)
    member.say("two members join the group")
    member.await_share(other, 2)
    other.work(OTHER_WORKS_SECONDS)
    stage.topic("orders-us")
    member.say("a new topic; the other member is busy")
    member.await_gain(
        lambda: _has_settled(member, other), lambda: member.poll(SHORT_POLL_MS)
    )
    member.say("the group has settled; records arrive")
    for _ in range(ROUNDS):
        stage.produce()
        member.poll(SHORT_POLL_MS)
        stage.rest(PACE_SECONDS)
    member.drain()


def _has_settled(member: Member, other: Other) -> bool:
    # Either every partition has one owner, or somebody was thrown out and goes on
    # with what others own by now.
    mine, its = member.assignment(), other.assignment()
    return bool(mine & its) or len(mine | its) == len(member.stage.partitions)
