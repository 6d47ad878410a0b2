"""Judges by the control topics what members report: which obey, and what is quiet."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Protocol

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group.commits import Move
from safeconsumer.group.facts import UNKNOWN, GroupFacts, MemberFacts
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.group.reports import ranges
from safeconsumer.holds.explain import counted

_MANY = 20
_SKEW = 10.0
GOOD, NOTE, BAD = "ok", "note", "PROBLEM"


class Covering(Protocol):
    """A scope, or a hold that is on a topic."""

    def covers(self, tp: TopicPartition, /) -> bool:
        """Tell whether it covers a partition."""


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as ``orders:0-3,7 audit:0``, cut if it is too long."""
    parts = [
        topic + ":" + ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in several)
        for topic, several in ranges(partitions).items()
    ]
    if len(parts) > _MANY:
        parts = [*parts[:_MANY], f"and {len(parts) - _MANY} more topics"]
    return " ".join(parts)


def has_applied(report: Report, ends: Mapping[str, int] | None) -> bool:
    """Tell whether a member obeys everything below these offsets; False if unknown."""
    return (
        ends is not None
        and report.state == "ready"
        and all(report.applied.get(topic, -1) >= end for topic, end in ends.items())
    )


def obeys_text(report: Report, ends: Mapping[str, int] | None) -> str:
    """Describe how far a member has read the control topics."""
    if report.state != "ready":
        is_stream = report.kind == STREAM
        return (
            _STREAM_STATES.get(report.state, report.state)
            if is_stream
            else (f"{report.state}: keeps its last state")
        )
    if ends is None:
        return "how far it should have read is unknown"
    behind = sum(
        max(0, end - report.applied.get(topic, 0)) for topic, end in ends.items()
    )
    return "obeys all" if not behind else f"{counted(behind, 'record')} behind"


class Answer(Enum):
    """The possible answers to whether a partition's owner delivers records of it."""

    QUIET = "quiet"
    FLOWING = "flowing"
    UNOWNED = "unowned"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class Place:
    """
    The verdict on one partition.

    Attributes:
        answer: the answer. Only ``QUIET`` and ``UNOWNED`` are good.
        member: the client id of the member that decides it; empty if there is no owner.
        why: the reason, where the partition is neither quiet nor simply flowing.
    """

    answer: Answer
    member: str = ""
    why: str = ""


@frozen(kw_only=True)
class Seat:
    """
    A member that Kafka lists or that reports.

    Attributes:
        facts: Kafka's description of it; None if it is not a member for Kafka: it
            assigned its partitions itself, or is not in the group any more.
        report: its last report; None if there is none that belongs to it.
        obeys: whether it obeys everything on the control topics; None if unknown.
        why: the reason, unless it obeys.
    """

    facts: MemberFacts | None
    report: Report | None
    obeys: bool | None
    why: str = ""

    @property
    def name(self) -> str:
        """Its client id."""
        if self.facts is not None:
            return self.facts.client_id
        return self.report.client_id if self.report is not None else ""

    @property
    def has_gone(self) -> bool:
        """Whether it was a member that Kafka no longer lists."""
        return self.facts is None and bool(self.report and self.report.member_id)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """
        The partitions that it owns according to Kafka and according to itself.

        In a cooperative rebalance a member may go on for a moment with a partition that
        Kafka has not given to anybody yet.
        """
        owned = assigned([] if self.report is None else [self.report])
        return owned if self.facts is None else owned | self.facts.assigned


_SETTLED = frozenset({"Stable", "Empty", "Dead"})
_TOO_MANY = "has too many partitions to report them"
_UNSEEN = "who assigns partitions itself and does not report is not seen"
_SILENT = "does not report: a plain client obeys no hold"
_UNHEARD = "its reports cannot be read: whether it obeys is unknown"
IN_HAND = "a handler still works on it"
IN_BATCH = "a batch that was planned before still reads it"
_STREAM_STATES = {
    "deciding": "its next batch is not decided on yet",
    "starting": "has not planned a batch yet; one from before may run again",
    "unavailable": "cannot read what is held: plans nothing",
}
_UNTOLD = "does not report that it owns it"
_OLD = "reports of its client id do not tell Kafka's member id (an older safeconsumer)"


class Judge:
    """
    Judges one picture of a group; it makes no requests.

    A report counts for the member that Kafka knows by the same member id, in the
    group's present generation. A report that matches no member so leaves it unknown.
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        facts, reports = picture.facts, picture.reports
        self.unsettled = _unsettled(facts)
        self._by_id = {one.member_id: one for one in reports if one.member_id}
        known = {one.member_id for one in facts.members}
        self._generation = max(
            (self._by_id[one].generation or -1 for one in known & set(self._by_id)),
            default=-1,
        )
        self._late = {one.member_id: one for one in picture.late}
        self._old = {one.client_id for one in reports if one.member_id is None}
        self.members = tuple(map(self._seat, facts.members))
        # Members that assigned partitions themselves, and members that may not know yet
        # that they are out, are judged by the partitions that they report, too.
        names = {one.client_id for one in facts.members}
        self.others = tuple(
            self._judged(None, one)
            for one in reports
            if one.member_id not in known
            and not (one.member_id is None and one.client_id in names)
        )
        self._seats: dict[TopicPartition, list[Seat]] = {}
        for seat in (*self.members, *self.others):
            for tp in seat.owned:
                self._seats.setdefault(tp, []).append(seat)
        self._quiet = {id(one): frozenset(partitions_of(one.quiet)) for one in reports}
        self._claims: dict[TopicPartition, list[Report]] = {}
        self._busy: dict[TopicPartition, list[Report]] = {}
        for one in reports:
            for tp in partitions_of(one.assigned):
                self._claims.setdefault(tp, []).append(one)
            for tp in partitions_of(one.busy):
                self._busy.setdefault(tp, []).append(one)

    def _seat(self, facts: MemberFacts) -> Seat:
        report = self._by_id.get(facts.member_id)
        if report is None:
            why = _SILENT if self.picture.is_heard else _UNHEARD
            why = _OLD if facts.client_id in self._old else why
            if (late := self._late.get(facts.member_id)) is not None:
                why = _late_text(late, self.picture.now)
            return Seat(facts=facts, report=None, obeys=None, why=why)
        if (report.generation or -1) < self._generation:
            why = f"its report is of generation {report.generation}, not of this one"
            return Seat(facts=facts, report=report, obeys=None, why=why)
        return self._judged(facts, report)

    def _judged(self, facts: MemberFacts | None, report: Report) -> Seat:
        ends = self.picture.ends
        obeys = None if ends is None else has_applied(report, ends)
        why = "" if obeys else obeys_text(report, ends)
        return Seat(facts=facts, report=report, obeys=obeys, why=why)

    def is_late(self, seat: Seat) -> bool:
        """Tell whether a member has reported, and does not any more."""
        return (
            seat.report is None
            and seat.facts is not None
            and (seat.facts.member_id in self._late)
        )

    def place(self, tp: TopicPartition) -> Place:
        """Judge whether a member delivers records of a partition now."""
        if self.unsettled:
            return self._meanwhile(tp)
        places = [self._at(tp, one) for one in self._seats.get(tp, ())]
        bad = [one for one in places if one.answer is not Answer.QUIET]
        if bad:
            return bad[0]
        for one in self._busy.get(tp, ()):
            why = _in_hand(one)
            return Place(answer=Answer.FLOWING, member=one.client_id, why=why)
        return places[0] if places else self._unowned()

    def _unowned(self) -> Place:
        # A consumer that assigns partitions to itself and does not report is not seen.
        for one in self.others:
            if one.report is not None and one.report.is_partial:
                return Place(answer=Answer.UNKNOWN, member=one.name, why=_TOO_MANY)
        return Place(answer=Answer.UNOWNED)

    def _meanwhile(self, tp: TopicPartition) -> Place:
        for one in self._claims.get(tp, ()):
            if tp not in self._quiet[id(one)]:
                return Place(answer=Answer.FLOWING, member=one.client_id)
        why = f"{self.unsettled}: who owns it is not known"
        return Place(answer=Answer.UNKNOWN, why=why)

    def _at(self, tp: TopicPartition, seat: Seat) -> Place:
        answer, why = self._said(tp, seat)
        return Place(answer=answer, member=seat.name, why=why)

    def _said(self, tp: TopicPartition, seat: Seat) -> tuple[Answer, str]:
        report = seat.report
        if report is None:
            return self._of_silent(tp, seat)
        if seat.obeys is None:
            return Answer.UNKNOWN, seat.why
        if report.is_partial:
            return Answer.UNKNOWN, _TOO_MANY
        if tp in self._quiet[id(report)]:
            return (Answer.QUIET, "") if seat.obeys else (Answer.UNKNOWN, seat.why)
        if _has(self._busy, tp, report):
            return Answer.FLOWING, _in_hand(report)
        # Kafka's answer and the report are of two moments; a rebalance may come in
        # between.
        is_claimed = _has(self._claims, tp, report)
        return (Answer.FLOWING, seat.why) if is_claimed else (Answer.UNKNOWN, _UNTOLD)

    def _of_silent(self, tp: TopicPartition, seat: Seat) -> tuple[Answer, str]:
        # Only its commits can be seen. A member whose reports are unreadable or of an
        # older version may obey all the same: it commits records that it had before.
        move = self.picture.moved_by_silent.get(tp)
        if seat.why != _SILENT or move is None:
            return Answer.UNKNOWN, seat.why
        return Answer.FLOWING, f"{_went_on(move)}; it {seat.why}"

    def owned(self) -> frozenset[TopicPartition]:
        """
        Return the partitions with an owner, according to Kafka or to a member's report.

        In the middle of a rebalance only the members report what they own.
        """
        return self.picture.facts.assigned | assigned(self.picture.reports)

    def quietness(self, scopes: Iterable[Covering]) -> "Quietness":
        """Tell how far the group is from obeying everything and being quiet on scopes."""
        scopes = tuple(scopes)
        wanted = sorted(
            tp
            for tp in self.owned() | set(self.picture.facts.committed)
            if any(one.covers(tp) for one in scopes)
        )
        places = {tp: self.place(tp) for tp in wanted}
        bad = {
            tp: one
            for tp, one in places.items()
            if one.answer not in {Answer.QUIET, Answer.UNOWNED}
        }
        seats, loud = self.seats, self._loud(bad)
        quiet = {id(one) for one in seats if one.obeys and not loud & _ids(one)}
        return Quietness(
            quiet=len(quiet),
            missing=tuple(one for one in seats if id(one) not in quiet),
            members=len(seats),
            unsettled=self.unsettled,
            covers=len(wanted),
            loud=bad,
            gone=tuple(map(gone_text, self.picture.gone)),
        )

    @property
    def seats(self) -> tuple[Seat, ...]:
        """
        The members of the group, and consumers that assigned partitions themselves.

        A member that was thrown out may still deliver, but is not listed: it will stop.
        """
        return (*self.members, *(one for one in self.others if not one.has_gone))

    def delivers(self, tp: TopicPartition) -> bool:
        """Tell whether the owner of a partition delivers it and will go on."""
        return any(
            self._at(tp, one).answer is Answer.FLOWING
            for one in self._seats.get(tp, ())
            if not one.has_gone
        )

    def _loud(self, bad: Iterable[TopicPartition]) -> set[int]:
        # Members are compared by identity: there may be a thousand, with as many
        # partitions.
        found: set[int] = set()
        for tp in bad:
            found.update(
                id(one)
                for one in self._seats.get(tp, ())
                if self._at(tp, one).answer is not Answer.QUIET
            )
            found.update(map(id, self._busy.get(tp, ())))
        return found


def _has(
    told: Mapping[TopicPartition, Iterable[Report]], tp: TopicPartition, report: Report
) -> bool:
    return any(one is report for one in told.get(tp, ()))


def _late_text(report: Report, now: float | None) -> str:
    for_ = ""
    if now is not None:
        for_ = f" for {max(0.0, now - report.at_ms / 1000 - report.clock_offset):.0f} s"
    return f"has not reported{for_}: it died, hangs, or cannot write its reports"


def _in_hand(report: Report) -> str:
    return IN_BATCH if report.kind == STREAM else IN_HAND


def gone_text(report: Report) -> str:
    """Describe a stream that reports no more, or that was stopped in a batch."""
    if report.state == "stopped":
        read = ", ".join(sorted(report.busy))
        return (
            f"{report.client_id} on {report.host} was stopped in the middle of a "
            f"batch of {read}, which is run again in full, held "
            "or not, when its query is started again"
        )
    return (
        f"{report.client_id} on {report.host} is not heard of any more, and not "
        "counted: it was killed, or its driver cannot report"
    )


def _unsettled(facts: GroupFacts) -> str:
    # Why it is not known who owns what; empty if it is known.
    if facts.state == UNKNOWN:
        return "the cluster does not tell who is in the group (KIP-848, or no right)"
    if facts.state not in _SETTLED:
        return f"the group rebalances ({facts.state})"
    if not facts.members and not facts.has_committed:
        return "what is committed for the group cannot be read"
    return ""


def _went_on(move: Move) -> str:
    return f"its committed offset went on from {move.before:,} to {move.after:,}"


def _ids(seat: Seat) -> set[int]:
    return {id(seat), id(seat.report)}


@frozen(kw_only=True)
class Quietness:
    """
    How far a group is from being quiet.

    Attributes:
        quiet: how many members obey everything and deliver nothing of the scopes.
        members: how many members there are.
        missing: the members that are not quiet.
        unsettled: why it is not known who owns what; empty if it is known.
        covers: how many partitions the scopes cover.
        loud: the partitions that are not quiet, or about which nothing is known.
        gone: streams that report no more, in words.
    """

    quiet: int
    members: int
    missing: tuple[Seat, ...]
    unsettled: str
    covers: int
    loud: Mapping[TopicPartition, Place]
    gone: tuple[str, ...] = ()

    @property
    def is_reached(self) -> bool:
        """
        Whether every member obeys, and no record of the scopes is delivered.

        If nothing is covered it is not reached, unless the group has no members at all.
        """
        is_known = not self.unsettled and (self.covers > 0 or not self.members)
        return is_known and not self.missing and not self.loud

    def sentence(self) -> str:
        """Describe it in a sentence."""
        if self.unsettled:
            said = f"{self.unsettled}: who owns what is not known"
        elif not self.members:
            said = f"the group has no members; {_UNSEEN}"
        elif not self.covers:
            said = "nothing that the group owns or has committed for is covered"
        else:
            said = f"{self.quiet} of {self.members} members quiet"
        said += self._missing_text()
        for answer, word in ((Answer.FLOWING, "flowing"), (Answer.UNKNOWN, "unknown")):
            found = [tp for tp, one in self.loud.items() if one.answer is answer]
            said += f"; {word}: {partitions_text(found)}" if found else ""
        loud = self.loud.values()
        whys = [one.why for one in loud if not one.member or one.why == IN_BATCH]
        if whys and not self.unsettled:
            more = ", and others" if len(set(whys)) > 1 else ""
            said += f" ({whys[0]}{more})"
        return said

    def _missing_text(self) -> str:
        said = ""
        silent = sum(one.why == _SILENT for one in self.missing)
        if silent:
            said += f"; {silent} {'does' if silent == 1 else 'do'} not report: "
            said += "plain clients obey no hold"
        if any(one.why == _UNHEARD for one in self.missing):
            said += "; reports cannot be read: whether members obey is unknown"
        known = {"", _SILENT, _UNHEARD}
        others = [one for one in self.missing if one.why not in known]
        said += "".join(f"; {one.name}: {one.why}" for one in others[:_MANY])
        return said + "".join(f"; {one}" for one in self.gone[:_MANY])


def partitions_of(
    ranges: Mapping[str, tuple[tuple[int, int], ...]],
) -> Iterator[TopicPartition]:
    """Return the partitions that such ranges name."""
    for topic, several in ranges.items():
        for first, last in several:
            for number in range(first, last + 1):
                yield TopicPartition(topic, number)


def assigned(reports: Iterable[Report]) -> frozenset[TopicPartition]:
    """Return the partitions that members report as owned."""
    return frozenset(tp for report in reports for tp in partitions_of(report.assigned))


@frozen(kw_only=True)
class Finding:
    """
    One thing that was checked.

    Attributes:
        rank: ``ok``, ``note`` or ``PROBLEM``.
        what: the state of it.
        do: what to do about it; empty if nothing.
    """

    rank: str
    what: str
    do: str = ""


def member_findings(picture: Picture) -> Iterator[Finding]:
    """Check what each member of a group obeys."""
    group, facts = picture.group, picture.facts
    if not picture.is_known:
        yield Finding(
            rank=BAD,
            what=f"no group {group!r} here, and no hold for it",
            do="look for a typing error",
        )
    judge = Judge(picture)
    yield from _unknown_findings(judge)
    late = [one for one in judge.members if judge.is_late(one)]
    for one in late:
        yield Finding(
            rank=BAD,
            what=f"member {one.name} {one.why}",
            do="look whether its process runs, and what its log says",
        )
    silent = [one for one in judge.members if one.report is None and one not in late]
    if silent and picture.is_heard:
        named = ", ".join(f"{one.name} ({one.why})" for one in silent[:_MANY])
        yield Finding(
            rank=BAD,
            what=f"of {counted(len(facts.members), 'member')} of {group} {len(silent)} "
            f"{'does' if len(silent) == 1 else 'do'} not report: {named}",
            do="plain clients obey no hold: give them SafeConsumer(control=Control()); "
            "or they may not write the status topic",
        )
    for one in (*judge.members, *judge.others):
        yield from _seat_findings(picture, one)
    for gone in picture.gone:
        yield Finding(
            rank=NOTE,
            what=gone_text(gone),
            do="check what is held before its query is started again"
            if gone.state == "stopped"
            else "check that its driver runs; a batch that it planned may still read",
        )


def _unknown_findings(judge: Judge) -> Iterator[Finding]:
    picture = judge.picture
    for why in picture.unread:
        yield Finding(rank=BAD, what=f"unknown: {why}", do="check the rights and ACLs")
    if judge.unsettled:
        is_passing = picture.facts.state not in {UNKNOWN, *_SETTLED}
        yield Finding(
            rank=NOTE if is_passing else BAD,
            what=f"{picture.group}: {judge.unsettled}; who obeys is not known",
            do="look again"
            if is_passing
            else "plain clients obey no hold, whatever their protocol: look who uses "
            "this group, and give them SafeConsumer(control=Control())",
        )
    elif picture.is_known and not judge.members and not judge.others:
        yield Finding(
            rank=NOTE,
            what=f"nobody is in {picture.group}; {_UNSEEN}, and obeys no hold",
        )


def _seat_findings(picture: Picture, seat: Seat) -> Iterator[Finding]:
    report = seat.report
    if report is None:
        return
    label = f"member {seat.name} on {report.host}"
    if seat.has_gone:
        what = f"{label} reported lately, and is not in the group any more"
        yield Finding(rank=NOTE, what=what)
    elif seat.facts is not None and seat.obeys is None and picture.ends is not None:
        yield Finding(rank=NOTE, what=f"{label}: {seat.why}", do="look again")
    else:
        yield from _report_findings(picture, report)


def _report_findings(picture: Picture, one: Report) -> Iterator[Finding]:
    label = f"member {one.client_id} on {one.host}"
    standing = picture.standing
    if one.state != "ready":
        yield Finding(
            rank=BAD,
            what=f"{label}: {obeys_text(one, picture.ends)}",
            do="search its log for control_unavailable",
        )
    elif not has_applied(one, picture.ends):
        yield Finding(rank=NOTE, what=f"{label} is behind", do="look again")
    elif one.kept or one.holds > len(standing):
        named = f" ({'; '.join(one.kept)})" if one.kept else ""
        yield Finding(
            rank=BAD,
            what=f"{label} obeys {counted(one.holds, 'hold')}, the topics have "
            f"{len(standing)}: they were lost or made again{named}",
            do="place them again with pause, or lift them with resume, by their "
            "scope and owner",
        )
    elif one.holds < len(picture.lasting):
        yield Finding(
            rank=BAD,
            what=f"{label} has read all, and obeys {counted(one.holds, 'hold')} where "
            f"the topics have {len(picture.lasting)}",
            do="see its log and restart it; its holds() shows which are missing",
        )
    else:
        yield Finding(rank=GOOD, what=f"{label} obeys everything")
    if one.skipped:
        yield Finding(
            rank=NOTE,
            what=f"{label} skipped {one.skipped} unreadable control records",
            do="find out who writes to the control topics besides safeconsumer",
        )
    if abs(one.clock_offset) > _SKEW:
        yield Finding(
            rank=NOTE,
            what=f"{label}: its clock and the broker's differ by "
            f"{abs(one.clock_offset):.0f} s",
            do="set its clock; clock_skew= must be larger than the difference",
        )
