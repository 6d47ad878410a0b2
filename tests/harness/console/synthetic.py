"""Makes snapshots of made-up clusters in the form in which a follower makes them."""

import time

from attrs import define, evolve, field
from kafka import TopicPartition

from safeconsumer.group import wire
from safeconsumer.group.facts import GroupFacts, HoldRecord, MemberFacts
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.follower import Snapshot
from safeconsumer.group.report_wire import Report
from safeconsumer.group.settings import Control
from safeconsumer.group.view import Times, View
from safeconsumer.group.wire import ControlHold, ControlKey

GROUPS, MEMBERS, PARTITIONS = 200, 5, 25
ENDS = {"ops": 10}


@define
class StaticFollower:
    """A substitute for a follower, whose snapshot a test sets."""

    known: Snapshot
    settings: Control = field(factory=Control)
    age: float = 0.0

    def snapshot(self):
        return evolve(self.known, as_of=time.monotonic() - self.age)

    def wait_for(self, *_):
        pass

    def watch(self, group):
        pass

    def set_holds(self, group, *holds):
        """Publish a version of the snapshot in which the group has exactly these holds."""
        changed = evolve(self.known.views[group], holds=holds)
        self.publish(as_of=time.monotonic(), views={**self.known.views, group: changed})

    def publish(self, **changed):
        """Publish a new version of the snapshot with these changes."""
        version = self.known.version + 1
        self.known = evolve(self.known, version=version, **changed)


def past(*several):
    """Return these holds and lifts as records of the holds topic."""
    return tuple(
        RawRecord(
            wire.encode_key(one.key),
            None if one.hold is None else wire.encode_hold(one.hold),
            one.offset,
            int((one.at or 0) * 1000),
        )
        for one in several
    )


def hold_of(group, scope="@all"):
    return HoldRecord(
        key=ControlKey(group, "alice", scope),
        hold=ControlHold("id", "the database moves", 3_600_000),
        at=time.time(),
        offset=9,
    )


def viewed(number, *, is_held, is_obeyed=True):
    """Make a group of five members, each with five partitions."""
    group, topic = f"group-{number:03}", f"topic-{number:03}"
    each = PARTITIONS // MEMBERS
    members, reports = [], []
    for member in range(MEMBERS):
        first = member * each
        name = f"{group}-{member}"
        owned = range(first, first + each)
        members.append(
            MemberFacts(
                member_id=name,
                client_id=name,
                host="/10.0.0.1",
                assigned=frozenset(TopicPartition(topic, one) for one in owned),
            )
        )
        ranges = {topic: ((first, first + each - 1),)}
        reports.append(
            Report(
                group=group,
                member=name,
                member_id=name,
                generation=1,
                client_id=name,
                host="host",
                applied=ENDS,
                assigned=ranges,
                quiet=ranges if is_held and is_obeyed else {},
            )
        )
    partitions = [TopicPartition(topic, one) for one in range(PARTITIONS)]
    return View(
        group=group,
        facts=GroupFacts(
            state="Stable",
            members=tuple(members),
            committed=dict.fromkeys(partitions, 1000),
        ),
        holds=(hold_of(group),) if is_held else (),
        reports=tuple(reports),
        ends=ENDS,
        lags=dict.fromkeys(partitions, 3),
        times=Times(time.time()),
    )


def big():
    """Make 200 groups with 1,000 members and 5,000 partitions; hold every fifth group."""
    views = [
        viewed(number, is_held=number % 5 == 0, is_obeyed=number % 50 != 0)
        for number in range(GROUPS)
    ]
    return alone(*views)


def alone(*views):
    """Make a cluster with only these groups."""
    return StaticFollower(
        Snapshot(
            version=1,
            views={one.group: one for one in views},
            times=Times(time.time()),
            as_of=time.monotonic(),
            is_complete=True,
        )
    )


class Limited:
    """A connection that reports a retention of one hour, and keeps the requested topics."""

    def __init__(self):
        self.asked = []

    def retention(self, names):
        self.asked.append(tuple(names))
        return dict.fromkeys(names, 3600.0)

    def close(self): ...
