"""
Judges what members report by what the control topics say: who obeys, what is quiet.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.report_wire import Report
from safeconsumer.group.reports import ranges

_MANY = 20
_SKEW = 10.0
GOOD, NOTE, BAD = "ok", "note", "PROBLEM"


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """
    Return partitions as ``orders:0-3,7 audit:0``, cut where it gets long.
    """
    parts = [
        topic + ":" + ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in several)
        for topic, several in ranges(partitions).items()
    ]
    if len(parts) > _MANY:
        parts = [*parts[:_MANY], f"and {len(parts) - _MANY} more topics"]
    return " ".join(parts)


def in_force(operator: Operator, standing: Sequence[Standing]) -> tuple[Standing, ...]:
    """
    Return the holds whose time is not over, with the skew that members allow.
    """
    now, skew = time.time(), operator.settings.clock_skew
    return tuple(one for one in standing if one.in_force(now, skew))


def has_applied(report: Report, ends: Mapping[str, int]) -> bool:
    """
    Tell whether a member obeys everything below these offsets.
    """
    return all(report.applied.get(topic, -1) >= end for topic, end in ends.items())


def obeys_text(report: Report, ends: Mapping[str, int]) -> str:
    """
    Say how far a member has read the control topics.
    """
    if report.state != "ready":
        return f"{report.state}: keeps its last state"
    behind = sum(
        max(0, end - report.applied.get(topic, 0)) for topic, end in ends.items()
    )
    return "obeys all" if not behind else f"{behind} records behind"


def quiet_at(reports: Iterable[Report]) -> dict[TopicPartition, str]:
    """
    Return by which member each quiet partition is kept so.
    """
    return {
        TopicPartition(topic, number): report.client_id
        for report in reports
        for topic, several in report.quiet.items()
        for first, last in several
        for number in range(first, last + 1)
    }


def assigned(reports: Iterable[Report]) -> frozenset[TopicPartition]:
    """
    Return what members say that they own.
    """
    return frozenset(
        TopicPartition(topic, number)
        for report in reports
        for topic, several in report.assigned.items()
        for first, last in several
        for number in range(first, last + 1)
    )


@frozen
class Quietness:
    """
    How far a group is from being quiet.
    """

    quiet: int
    reporting: int
    members: int
    flowing: tuple[TopicPartition, ...]

    @property
    def is_reached(self) -> bool:
        """
        Whether every member is quiet.
        """
        return self.quiet == self.reporting == self.members and not self.flowing

    def sentence(self) -> str:
        """
        Say it in words.
        """
        said = f"{self.quiet} of {self.members} members quiet"
        silent = self.members - self.reporting
        if silent > 0:
            said += f"; {silent} do not report: plain clients obey no hold"
        if self.flowing:
            said += f"; flowing: {partitions_text(self.flowing)}"
        return said


def quietness(
    facts: GroupFacts,
    reports: Sequence[Report],
    ends: dict[str, int],
    wanted: Sequence[TopicPartition],
) -> Quietness:
    """
    Tell how far a group is from being quiet on the wanted partitions.
    """
    applied = [one for one in reports if has_applied(one, ends)]
    quiet = quiet_at(applied)
    flowing = tuple(tp for tp in wanted if tp not in quiet)
    return Quietness(len(applied), len(reports), len(facts.members), flowing)


@frozen(kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        rank: ``ok``, ``note`` or ``PROBLEM``.
        what: what is the case.
        do: what to do about it; empty if nothing.
    """

    rank: str
    what: str
    do: str = ""


def member_findings(operator: Operator, group: str) -> Iterator[Finding]:
    """
    Look at what each member of a group obeys.
    """
    facts, reports = operator.group(group), operator.reports(group)
    ends, standing = operator.ends(), operator.standing(group)
    if not facts.is_known and not standing and not reports:
        yield Finding(
            rank=BAD,
            what=f"no group {group!r} here, and no hold for it",
            do="look for a typing error",
        )
    if len(facts.members) > len(reports):
        yield Finding(
            rank=BAD,
            what=f"{len(facts.members) - len(reports)} of {len(facts.members)} members "
            f"of {group} do not report",
            do="plain clients obey no hold: give them SafeConsumer(control=Control()); "
            "or they may not write the status topic",
        )
    for one in reports:
        label = f"member {one.client_id} on {one.host}"
        if one.state != "ready":
            yield Finding(
                rank=BAD,
                what=f"{label}: {obeys_text(one, ends)}",
                do="look at its log for control_unavailable",
            )
        elif not has_applied(one, ends):
            yield Finding(rank=NOTE, what=f"{label} is behind", do="look again")
        elif one.holds > len(standing):
            yield Finding(
                rank=BAD,
                what=f"{label} obeys {one.holds} holds, the topics have "
                f"{len(standing)}: they were lost or made again",
                do="place them again with pause, or lift them with resume",
            )
        else:
            yield Finding(rank=GOOD, what=f"{label} obeys everything")
        if one.skipped:
            yield Finding(
                rank=NOTE,
                what=f"{label} skipped {one.skipped} unreadable control records",
                do="look who writes to the control topics besides safeconsumer",
            )
        if abs(one.clock_offset) > _SKEW:
            yield Finding(
                rank=NOTE,
                what=f"{label}: its clock and the broker's differ by "
                f"{abs(one.clock_offset):.0f} s",
                do="set its clock; clock_skew= must be larger than the difference",
            )
