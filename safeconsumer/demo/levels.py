"""A topic, a pattern or the whole consumer is paused, and then partitions are gained."""

import re

from safeconsumer.demo.clients import Level
from safeconsumer.demo.member import Member
from safeconsumer.demo.other import Other
from safeconsumer.demo.stage import Stage

RECORDS = 100
READ_FIRST = 60

# How often the member looks for new topics.
METADATA_MAX_AGE_MS = 1000


def topic_pause(stage: Stage) -> None:
    """Pause a topic; then another member leaves."""
    topic = stage.topic("orders")
    other = Other(stage, topic)
    other.await_all()
    member = Member(stage, topic)
    _pause_and_gain(stage, member, other, level=topic)
    _resume(member, topic)


def pattern_pause(stage: Stage) -> None:
    """Pause a pattern; then another member leaves, and a new topic appears."""
    for label in ("orders-eu", "orders-us"):
        stage.topic(label, partitions=2)
    _pause_and_grow(stage, re.compile(re.escape(stage.prefix) + "orders-.*"))


def consumer_pause(stage: Stage) -> None:
    """Pause everything; then another member leaves, and a new topic appears."""
    for label in ("orders", "payments"):
        stage.topic(label, partitions=2)
    _pause_and_grow(stage, None)


def _pause_and_grow(stage: Stage, level: Level) -> None:
    subscribed = stage.pattern()
    other = Other(stage, pattern=subscribed)
    other.await_all()
    member = Member(stage, metadata_max_age_ms=METADATA_MAX_AGE_MS)
    member.subscribe(pattern=subscribed)
    _pause_and_gain(stage, member, other, level=level)
    _gain_topic(stage, member)
    _resume(member, level)


def _pause_and_gain(
    stage: Stage, member: Member, other: Other, *, level: Level
) -> None:
    member.say("two members join the group")
    member.await_share(other, 2)
    stage.produce(records=RECORDS)
    member.read(READ_FIRST)
    member.pause_level(level)
    member.say("paused; the other member leaves")
    other.leave()
    member.await_gain(lambda: member.owns(4))
    member.say("paused; partitions gained")
    member.linger()


def _gain_topic(stage: Stage, member: Member) -> None:
    member.say("paused; a new topic appears")
    stage.topic("orders-ap", partitions=2, records=RECORDS)
    member.await_gain(lambda: member.owns(6))
    member.linger()


def _resume(member: Member, level: Level) -> None:
    member.say("resumed")
    member.resume_level(level)
    member.drain()
