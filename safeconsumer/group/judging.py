"""Judges by the control topics what members report: which obey, and what is quiet."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Protocol

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group import verdicts
from safeconsumer.group.commits import Move
from safeconsumer.group.facts import UNKNOWN, GroupFacts, MemberFacts
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import STREAM, Report, kept_text
from safeconsumer.group.reports import ranges
from safeconsumer.group.verdicts import Level, Verdict
from safeconsumer.holds.explain import counted

_MANY, _FEW = 20, 5


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


# ---------------------------------------------------------------- members


@frozen(kw_only=True)
class Member:
    """
    A member that Kafka lists or that reports.

    Attributes:
        id: a text that no other member has.
        name: its client id.
        host: where it runs, or where it connects from.
        is_listed: whether Kafka lists it; others assigned their partitions themselves,
            or are not in the group any more.
        has_gone: whether it was a member that Kafka no longer lists; False if Kafka's
            list is not known.
        report: its last report; None if there is none that belongs to it.
        verdict: whether it obeys everything on the control topics.
        owned: the partitions that it owns according to Kafka or to itself. In a
            cooperative rebalance a member may go on for a moment with a partition that
            Kafka has not given to anybody yet.
        claimed: those that it owns according to itself.
        quiet: those that deliver nothing, as it reports.
        busy: partitions on whose records it still works.
    """

    id: str
    name: str
    host: str
    is_listed: bool
    has_gone: bool
    report: Report | None
    verdict: Verdict
    owned: frozenset[TopicPartition]
    claimed: frozenset[TopicPartition]
    quiet: frozenset[TopicPartition]
    busy: frozenset[TopicPartition]

    @property
    def obeys(self) -> bool:
        """Whether it is known to obey everything."""
        return self.verdict == verdicts.OBEYS

    @property
    def is_behind(self) -> bool:
        """Whether it reads the control topics, and has not read everything yet."""
        return self.verdict.words == verdicts.BEHIND.words

    @property
    def is_lost(self) -> bool:
        """Whether it reported lately, and does not any more."""
        return self.verdict.words == verdicts.LOST.words and self.report is not None

    @property
    def loud(self) -> frozenset[TopicPartition]:
        """The partitions of which it delivers records, as far as it does not deny it."""
        return self.busy | (self.owned - self.quiet)

    def is_missing(self, loud: Collection[TopicPartition]) -> bool:
        """
        Tell whether a group is not quiet because of it.

        One that reports no more counts by its partitions alone: it may have died quiet.

        Args:
            loud: the partitions that are not quiet, or about which nothing is known.
        """
        if self.is_lost:
            return not (self.busy | self.owned).isdisjoint(loud)
        return not self.obeys or not self.loud.isdisjoint(loud)

    @property
    def quiet_count(self) -> int | None:
        """How many of its partitions are quiet; None if that is unknown."""
        is_known = self.report is not None and not self.report.is_partial
        is_known = is_known and self.verdict.level is not Level.UNKNOWN
        return len(self.quiet) if is_known else None

    @property
    def more(self) -> str:
        """The reason for its verdict, and what else it reports."""
        return "; ".join(filter(None, (self.verdict.sentence, *self._notes())))

    def _notes(self) -> Iterator[str]:
        report = self.report
        is_own = self.report is not None and not self.report.member_id
        if not self.is_listed and is_own:
            yield "Kafka does not list it as a member of the group"
        if report is None:
            return
        yield from report.outages
        if report.kept:
            kept = kept_text(report.kept)
            yield f"obeys what its topic has lost, until resume lifts it: {kept}"
        if report.recreated:
            yield _recreated_text(report.recreated)
        if report.gated:
            verb = "waits" if report.gated == 1 else "wait"
            said = counted(report.gated, "partition")
            yield f"{said} {verb} for the control topics"
        if report.skipped:
            yield f"skipped {counted(report.skipped, 'unreadable control record')}"


def _recreated_text(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - _FEW} more" if len(topics) > _FEW else ""
    return (
        f"{', '.join(topics[:_FEW])}{more}: deleted and recreated, and nothing of the "
        "new topic was read yet"
    )


_NO_REPORT = Report(group="", member="", applied={}, assigned={}, quiet={})


def _member(
    facts: MemberFacts | None,
    report: Report | None,
    verdict: Verdict,
    *,
    has_gone: bool = False,
) -> Member:
    told = report or _NO_REPORT
    claimed = assigned([told])
    return Member(
        id=facts.member_id if facts else told.member,
        name=facts.client_id if facts else told.client_id,
        host=told.host or (facts.host.lstrip("/") if facts else ""),
        is_listed=facts is not None,
        has_gone=has_gone,
        report=report,
        verdict=verdict,
        owned=claimed | (facts.assigned if facts else frozenset()),
        claimed=claimed,
        quiet=frozenset(partitions_of(told.quiet)),
        busy=frozenset(partitions_of(told.busy)),
    )


# ---------------------------------------------------------------- partitions


class Answer(Enum):
    """The possible answers to whether a partition's owner delivers records of it."""

    QUIET = "quiet"
    FLOWING = "flowing"
    UNOWNED = "unowned"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class Delivery:
    """
    What is known of the delivery of one partition.

    Attributes:
        answer: the answer. Only ``QUIET`` and ``UNOWNED`` are good.
        member: the member that decides it; None if there is no owner.
        why: the reason, where the partition is neither quiet nor simply flowing; it
            follows the member's name, if there is one.
    """

    answer: Answer
    member: Member | None = None
    why: str = ""

    @property
    def owner(self) -> str:
        """The client id of the member; empty if there is no owner."""
        return "" if self.member is None else self.member.name

    @property
    def said(self) -> str:
        """The reason, with the member's name before it."""
        return f"{self.owner} {self.why}".strip()

    @property
    def is_ending(self) -> bool:
        """Whether it flows only until what was begun before has ended."""
        is_behind = self.member is not None and self.member.is_behind
        return is_behind or self.why in {_IN_HAND, _IN_BATCH}


_SETTLED = frozenset({"Stable", "Empty", "Dead"})
_TOO_MANY = "has too many partitions to report them"
_IN_HAND = "still works on records that it got of it"
_IN_BATCH = "still reads it in a batch that was planned before"
_UNTOLD = "does not report that it owns it"
_LEFT = "is not in the group any more, and may still deliver it"


UNSEEN = "who assigns partitions itself and does not report is not seen"
"""
What is never known of a group.
"""


class Judge:
    """
    Judges one picture of a group; it makes no requests.

    A report counts for the member that Kafka knows by the same member id, in the
    group's present generation. A report that matches no member so leaves it unknown.

    Attributes:
        members: the members that Kafka lists.
        others: members that assigned partitions themselves, and those that may not know
            yet that they are out; they are judged by the partitions that they report.
            Those that report no more and did not say that they stop are the last.
        unsettled: why it is not known who owns what; empty if it is known.
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        facts = picture.facts
        self.unsettled = _unsettled(facts)
        self._reports = {one.member_id: one for one in picture.reports if one.member_id}
        known = {one.member_id for one in facts.members}
        self._generation = max(
            (self._reports[one].generation or -1 for one in known & set(self._reports)),
            default=-1,
        )
        self._lost = {one.member_id: one for one in picture.late}
        self.members = tuple(map(self._listed, facts.members))
        self.others = tuple(
            self._unlisted(one, verdicts.of_report(one, picture.ends))
            for one in picture.reports
            if one.member_id not in known
        ) + tuple(
            self._unlisted(one, verdicts.of_lost(one, picture.now))
            for one in picture.late
            if one.member_id not in known and (one.state != "stopped" or one.busy)
        )
        self._by_kafka = {
            tp: one
            for one, told in zip(self.members, facts.members, strict=True)
            for tp in told.assigned
        }
        self._owners: dict[TopicPartition, list[Member]] = {}
        self._busy: dict[TopicPartition, list[Member]] = {}
        for member in self.everybody:
            for tp in member.owned:
                self._owners.setdefault(tp, []).append(member)
            for tp in member.busy:
                self._busy.setdefault(tp, []).append(member)

    def _listed(self, facts: MemberFacts) -> Member:
        report = self._reports.get(facts.member_id)
        if report is None:
            verdict = verdicts.SILENT if self.picture.is_heard else verdicts.UNHEARD
            if (last := self._lost.get(facts.member_id)) is not None:
                verdict = verdicts.of_lost(last, self.picture.now)
                report = None if last.state == "stopped" and not last.busy else last
        elif (report.generation or -1) < self._generation:
            verdict = verdicts.OUT_OF_DATE.of(generation=report.generation)
        else:
            verdict = verdicts.of_report(report, self.picture.ends)
        return _member(facts, report, verdict)

    def _unlisted(self, report: Report, verdict: Verdict) -> Member:
        # Whether it has left is known only if Kafka has listed its members.
        has_gone = bool(report.member_id) and self.picture.facts.state != UNKNOWN
        return _member(None, report, verdict, has_gone=has_gone)

    @property
    def everybody(self) -> tuple[Member, ...]:
        """The members and the others."""
        return (*self.members, *self.others)

    @property
    def present(self) -> tuple[Member, ...]:
        """
        The members of the group, and consumers that assigned partitions themselves.

        A member that was thrown out may still deliver, but is not listed: it will stop.
        """
        return tuple(one for one in self.everybody if not one.has_gone)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """What the group owns or has committed for, or a member owns or works on."""
        known = self.picture.facts.partitions
        return tuple(sorted({*known, *self._owners, *self._busy}))

    def delivery(self, tp: TopicPartition) -> Delivery:
        """Judge whether a member delivers records of a partition now."""
        if self.unsettled:
            return self._meanwhile(tp)
        found = [self._by(tp, one) for one in self._owners.get(tp, ())]
        bad = [one for one in found if one.answer is not Answer.QUIET]
        if bad:
            return bad[0]
        for one in self._busy.get(tp, ()):
            return _busy_of(one)
        return found[0] if found else self._unowned()

    def _unowned(self) -> Delivery:
        # A consumer that assigns partitions to itself and does not report is not seen.
        for one in self.others:
            if one.report is not None and one.report.is_partial:
                return Delivery(answer=Answer.UNKNOWN, member=one, why=_TOO_MANY)
        return Delivery(answer=Answer.UNOWNED)

    def _meanwhile(self, tp: TopicPartition) -> Delivery:
        # In the middle of a rebalance only the members report what they own.
        for one in self._owners.get(tp, ()):
            if tp in one.claimed and tp not in one.quiet and not one.is_lost:
                return Delivery(answer=Answer.FLOWING, member=one)
        why = f"{self.unsettled}: who owns it is not known"
        return Delivery(answer=Answer.UNKNOWN, why=why)

    def _by(self, tp: TopicPartition, one: Member) -> Delivery:
        answer, why = self._answer(tp, one)
        return Delivery(answer=answer, member=one, why=why)

    def _answer(self, tp: TopicPartition, one: Member) -> tuple[Answer, str]:
        said = one.verdict.sentence
        if one.report is None:
            return self._of_silent(tp, one)
        if one.is_lost:
            return self._of_lost(tp, one)
        if one.verdict.words == verdicts.UNKNOWN.words:
            return Answer.UNKNOWN, said
        if one.report.is_partial:
            return Answer.UNKNOWN, _TOO_MANY
        if tp in one.quiet:
            return (Answer.QUIET if one.obeys else Answer.UNKNOWN), said
        return self._of_loud(tp, one)

    def _of_loud(self, tp: TopicPartition, one: Member) -> tuple[Answer, str]:
        if tp in one.busy:
            return Answer.FLOWING, _busy_of(one).why
        # Kafka's answer and the report are of two moments; a rebalance may come in
        # between.
        flows = Answer.FLOWING, _LEFT if one.has_gone else one.verdict.sentence
        return flows if tp in one.claimed else (Answer.UNKNOWN, _UNTOLD)

    def _of_lost(self, tp: TopicPartition, one: Member) -> tuple[Answer, str]:
        said, move = one.verdict.sentence, self.picture.moved_by_silent.get(tp)
        if move is not None:
            return Answer.FLOWING, f"{said}; {_went_on(move)}"
        return (Answer.QUIET if self._died_quiet(tp, one) else Answer.UNKNOWN), said

    def _died_quiet(self, tp: TopicPartition, one: Member) -> bool:
        # Its last report shows that it obeyed a hold which still stands. If it is
        # frozen, and goes on, it does not deliver the partition either, unless the hold
        # may have ended by then: it may obey a smaller clock skew than others do.
        report = one.report
        if report is None or report.is_partial or report.state != "ready":
            return False
        here = self.picture.times.here
        return tp in one.quiet and any(
            hold.offset < report.applied.get(hold.topic, 0)
            and hold.covers(tp)
            and not hold.is_over(here)
            for hold in self.picture.standing
        )

    def _of_silent(self, tp: TopicPartition, one: Member) -> tuple[Answer, str]:
        # Only its commits can be seen. A member whose reports are unreadable may obey
        # all the same: it commits records that it had before.
        said, move = one.verdict.sentence, self.picture.moved_by_silent.get(tp)
        if one.verdict != verdicts.SILENT or move is None:
            return Answer.UNKNOWN, said
        return Answer.FLOWING, f"{said}; {_went_on(move)}"

    def quietness(self, scopes: Iterable[Covering]) -> "Quietness":
        """Tell how far the group is from obeying everything and being quiet on scopes."""
        scopes = tuple(scopes)
        wanted = [tp for tp in self.partitions if any(one.covers(tp) for one in scopes)]
        found = {tp: self.delivery(tp) for tp in wanted}
        good = {Answer.QUIET, Answer.UNOWNED}
        loud = {tp: one for tp, one in found.items() if one.answer not in good}
        there = (*self.present, *self._frozen(loud))
        missing = (one for one in there if one.is_missing(loud))
        return Quietness(
            members=len(there),
            missing=tuple(missing),
            unsettled=self.unsettled,
            covers=len(wanted),
            loud=loud,
            gone=tuple(map(verdicts.gone_text, self.picture.gone)),
            recreated=tuple(
                sorted({one for said in self.picture.reports for one in said.recreated})
            ),
        )

    def _frozen(self, loud: Collection[TopicPartition]) -> Iterator[Member]:
        # Those that Kafka does not list any more, and that may be in the way.
        for one in self.others:
            if one.is_lost and one.has_gone and one.is_missing(loud):
                yield one

    def owner(self, tp: TopicPartition) -> Member | None:
        """Return the member that owns a partition according to Kafka; None if nobody does."""
        return self._by_kafka.get(tp)

    def delivers(self, tp: TopicPartition) -> bool:
        """Tell whether the owner of a partition reports that it delivers it."""
        return any(
            tp in one.claimed and tp not in one.quiet and not one.is_lost
            for one in self.present
        )


def _busy_of(one: Member) -> Delivery:
    if one.is_lost:
        return Delivery(answer=Answer.UNKNOWN, member=one, why=one.verdict.sentence)
    is_stream = one.report is not None and one.report.kind == STREAM
    why = _IN_BATCH if is_stream else _IN_HAND
    return Delivery(answer=Answer.FLOWING, member=one, why=why)


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


# ---------------------------------------------------------------- the group


@frozen(kw_only=True)
class Quietness:
    """
    How far a group is from being quiet.

    Attributes:
        members: how many members there are.
        missing: the members that do not obey everything, or deliver some of the scopes.
        unsettled: why it is not known who owns what; empty if it is known.
        covers: how many partitions the scopes cover.
        loud: the partitions that are not quiet, or about which nothing is known.
        gone: streams that report no more, in words.
        recreated: topics that members report to have been recreated.
    """

    members: int
    missing: tuple[Member, ...]
    unsettled: str
    covers: int
    loud: Mapping[TopicPartition, Delivery]
    gone: tuple[str, ...] = ()
    recreated: tuple[str, ...] = ()

    @property
    def quiet(self) -> int:
        """How many members obey everything and deliver nothing of the scopes."""
        return self.members - len(self.missing)

    @property
    def is_reached(self) -> bool:
        """
        Whether every member obeys, and no record of the scopes is delivered.

        If nothing is covered it is not reached, unless the group has no members at all.
        """
        is_known = not self.unsettled and (self.covers > 0 or not self.members)
        return is_known and not self.missing and not self.loud

    @property
    def verdict(self) -> Verdict:
        """The verdict on the group, if the scopes are those of its holds."""
        flowing = [one for one in self.loud.values() if one.answer is Answer.FLOWING]
        if any(not one.is_ending for one in flowing):
            row = verdicts.HELD_BUT_FLOWING
        elif self.is_reached:
            row = verdicts.GROUP_QUIET if self.members else verdicts.NO_MEMBERS
        elif not self.covers and not self.unsettled:
            row = verdicts.COVERS_NOTHING
        elif self._is_on_its_way:
            row = verdicts.NOT_QUIET_YET
        else:
            row = verdicts.UNKNOWN
        return row.of(why=self.sentence())

    @property
    def _is_on_its_way(self) -> bool:
        levels = {one.verdict.level for one in self.missing}
        is_ending = all(one.is_ending for one in self.loud.values())
        return is_ending and Level.UNKNOWN not in levels and not self.unsettled

    def sentence(self) -> str:
        """Describe it in a sentence."""
        if self.unsettled:
            said = f"{self.unsettled}: who owns what is not known"
        elif not self.members:
            said = f"the group has no members; {UNSEEN}"
        elif not self.covers:
            said = "nothing that the group owns or has committed for is covered"
        else:
            said = f"{self.quiet} of {self.members} members quiet"
        said += "".join(f"; {one}" for one in [*self._reasons(), *self.gone[:_MANY]])
        for answer, word in ((Answer.FLOWING, "flowing"), (Answer.UNKNOWN, "unknown")):
            found = [tp for tp, one in self.loud.items() if one.answer is answer]
            said += f"; {word}: {partitions_text(found)}" if found else ""
        said += f"; {_recreated_text(self.recreated)}" if self.recreated else ""
        return said

    def _reasons(self) -> Iterator[str]:
        told = [(one.verdict.sentence, one.name) for one in self.missing]
        told += [
            (one.why, one.owner)
            for one in self.loud.values()
            if one.member is not None and one.member.obeys
        ]
        named: dict[str, dict[str, None]] = {}
        for why, name in told:
            named.setdefault(why, {})[name] = None
        for why, names in [*named.items()][:_MANY]:
            more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
            if why:
                yield f"{', '.join([*names][:_FEW])}{more} {why}"
