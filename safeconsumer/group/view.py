"""
Describes one group at one point in time: members, partitions and verdicts.

Commands, pages, JSON and metrics show a :class:`View`. A view does not send any
requests, and computes its verdicts on first access:

1. A report is matched to the member with the same Kafka member id in the group's
   current generation (:class:`Member`).
2. The members that own a partition, or still process its records, determine whether its
   records are delivered; the holds that cover the partition determine its verdict
   (:class:`Row`).
3. The members and rows together determine whether the group is quiet
   (:class:`Quietness`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cached_property
from typing import TypeVar

from attrs import evolve, field, frozen
from kafka import TopicPartition

from safeconsumer.group import verdicts
from safeconsumer.group.commits import Move
from safeconsumer.group.facts import UNKNOWN, GroupFacts, HoldRecord, MemberFacts
from safeconsumer.group.partitions import (
    Coverage,
    Covering,
    covered,
    name_of,
    partitions_of,
    partitions_text,
)
from safeconsumer.group.report_wire import STREAM, KeptHold, Report, kept_holds_text
from safeconsumer.group.verdicts import Level, Verdict
from safeconsumer.holds.explain import counted, first_of, utc

_MANY = 20

UNSEEN = "a consumer that assigns partitions itself and does not report is not seen"
"""The part of every group that cannot be known."""

UNCOMMITTED = "nothing committed"
"""The words instead of a lag if there is no committed offset."""

# Kafka's group states in which partition ownership is settled.
_SETTLED = frozenset({"Stable", "Empty", "Dead"})
_TOO_MANY = "has too many partitions to report them"
_IN_HAND = "is still working on records that it received before"
_IN_BATCH = "still reads it in a batch that was planned before"
_UNREPORTED = "does not report that it owns it"
_LEFT = "is not in the group any more, and may still deliver it"

T = TypeVar("T", "Member", "Row")


# ---------------------------------------------------------------- time


@frozen
class Times:
    """
    The clock readings, in epoch seconds, that determine whether a hold has ended.

    A hold that expires before :attr:`proven` has ended. A hold that expires after that
    but before :attr:`here` may have ended; it counts as in force, because members may
    still obey it.

    Attributes:
        now: the broker's time; None if it is unknown because no member reports.
        newest: the time of the newest record, which the broker's clock has already
            passed.
        wall: this machine's time, which may be wrong.
        is_by_broker: whether the broker sets the timestamps of hold records; if not,
            the host that writes the record does.
        taken_at: when these times were read, by our monotonic clock; None if they do
            not advance.
    """

    now: float | None = None
    newest: float = 0.0
    wall: float = 0.0
    is_by_broker: bool = True
    taken_at: float | None = field(default=None, eq=False)

    @property
    def proven(self) -> float:
        """The latest time that the broker's clock is proven to have reached."""
        return self.newest if self.now is None else self.now

    @property
    def here(self) -> float:
        """The broker's time if known; otherwise the later of ``newest`` and ``wall``."""
        return max(self.newest, self.wall) if self.now is None else self.now


NO_TIMES = Times()


def skew_of(own: float, reports: Iterable[Report]) -> float:
    """
    Return the maximum seconds by which any member lifts holds late.

    Args:
        own: the caller's own setting, used if no member reports its skew.
        reports: the members' reports.
    """
    return max((one.skew for one in reports if one.skew is not None), default=own)


# ---------------------------------------------------------------- members


@frozen(kw_only=True)
class Member:
    """
    A group member, or a consumer or stream that reports without being one.

    Attributes:
        facts: the member as Kafka lists it; None if it assigned its partitions itself,
            or is not in the group any more.
        report: the member's last report; None if it has not reported.
        verdict: the verdict on whether the member obeys all records of the control
            topics.
        has_gone: whether the member was in the group and Kafka no longer lists it;
            False if Kafka's list of members is unknown.
    """

    facts: MemberFacts | None
    report: Report | None
    verdict: Verdict
    has_gone: bool = False

    @property
    def id(self) -> str:
        """The unique id of the member."""
        if self.facts is not None:
            return self.facts.member_id
        return self.report.member if self.report else ""

    @property
    def name(self) -> str:
        """The member's client id."""
        if self.facts is not None:
            return self.facts.client_id
        return self.report.client_id if self.report else ""

    @property
    def host(self) -> str:
        """The host that the member reports, or the host that it connects from."""
        if self.report is not None and self.report.host:
            return self.report.host
        return self.facts.host.lstrip("/") if self.facts else ""

    @property
    def is_listed(self) -> bool:
        """Whether Kafka lists the member."""
        return self.facts is not None

    @cached_property
    def claimed(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns according to its report."""
        return frozenset(partitions_of(self.report.assigned if self.report else {}))

    @cached_property
    def owned(self) -> frozenset[TopicPartition]:
        """
        The partitions that the member owns according to Kafka or to its report.

        In a cooperative rebalance, a member may briefly keep delivering a partition
        that Kafka has not assigned to another member yet.
        """
        return self.claimed | (self.facts.assigned if self.facts else frozenset())

    @cached_property
    def quiet(self) -> frozenset[TopicPartition]:
        """The partitions that the member reports as quiet."""
        return frozenset(partitions_of(self.report.quiet if self.report else {}))

    @cached_property
    def busy(self) -> frozenset[TopicPartition]:
        """The partitions whose records the member is still processing."""
        return frozenset(partitions_of(self.report.busy if self.report else {}))

    @property
    def obeys(self) -> bool:
        """Whether the member certainly obeys all records of the control topics."""
        return self.verdict == verdicts.OBEYS

    @property
    def is_stream(self) -> bool:
        """Whether this is a Spark stream, which obeys holds but is not in Kafka's list."""
        return self.report is not None and self.report.kind == STREAM

    @property
    def is_behind(self) -> bool:
        """Whether the member reads the control topics, but has not read all records yet."""
        return self.verdict.words == verdicts.BEHIND.words

    @property
    def is_lost(self) -> bool:
        """Whether the member reported recently and no longer does."""
        return self.verdict.words == verdicts.LOST.words and self.report is not None

    def delivers(self, tp: TopicPartition) -> bool:
        """Return whether the member delivers a partition, according to its report."""
        return tp in self.claimed and tp not in self.quiet and not self.is_lost

    def is_missing(self, not_quiet: Collection[TopicPartition]) -> bool:
        """
        Return whether this member prevents the group from being quiet.

        A member that no longer reports counts only if one of its partitions is not
        quiet, because it may have died while it was quiet.

        Args:
            not_quiet: the partitions whose records are delivered or whose state is unknown.
        """
        if self.is_lost:
            return not (self.busy | self.owned).isdisjoint(not_quiet)
        delivered = self.busy | (self.owned - self.quiet)
        return not self.obeys or not delivered.isdisjoint(not_quiet)

    @property
    def quiet_count(self) -> int | None:
        """The number of the member's quiet partitions; None if unknown."""
        is_known = self.report is not None and not self.report.is_partial
        is_known = is_known and self.verdict.level is not Level.UNKNOWN
        return len(self.quiet) if is_known else None

    @property
    def more(self) -> str:
        """The reason for the member's verdict, followed by notes from its report."""
        return "; ".join(filter(None, (self.verdict.reason, *self._notes())))

    def _notes(self) -> Iterator[str]:
        report = self.report
        if report is None:
            return
        if not self.is_listed and not report.member_id:
            yield "Kafka does not list it as a member of the group"
        yield from report.outages
        if report.kept:
            kept = kept_holds_text(report.kept)
            yield f"obeys what its topic has lost, until resume lifts it: {kept}"
        if report.recreated:
            yield _recreated_text(report.recreated)
        if report.gated:
            verb = "waits" if report.gated == 1 else "wait"
            gated = counted(report.gated, "partition")
            yield f"{gated} {verb} for the control topics"
        if report.skipped:
            yield f"skipped {counted(report.skipped, 'unreadable control record')}"


def _recreated_text(topics: Sequence[str]) -> str:
    return (
        f"{first_of(topics)}: deleted and recreated, and nothing of the new topic was "
        "read yet"
    )


# ---------------------------------------------------------------- partitions


class Answer(Enum):
    """Whether a partition's records are being delivered."""

    QUIET = "quiet"
    FLOWING = "flowing"
    UNOWNED = "unowned"
    UNKNOWN = "unknown"


# The fields ``answer``, ``member`` and ``why`` of a Row.
_Delivery = tuple[Answer, Member | None, str]


@frozen(kw_only=True)
class Row:
    """
    The state of one partition: which member delivers its records, or why none does.

    Attributes:
        tp: the partition.
        answer: whether the partition's records are delivered. Only ``QUIET`` and
            ``UNOWNED`` are good.
        member: the member that determines the answer; None if no member does.
        why: the reason for the answer, worded to follow the member's name; may be
            empty.
        owner: the owner's client id; empty if the partition has no owner, None if
            unknown.
        lag: the number of records after the committed offset; None if unknown.
        committed: the committed offset; None if there is none, or if it is unknown.
        holds: the holds that cover the partition.
        verdict: the verdict on the partition.
    """

    tp: TopicPartition
    answer: Answer
    member: Member | None = None
    why: str = ""
    owner: str | None = None
    lag: int | None = None
    committed: int | None = None
    holds: tuple[HoldRecord, ...] = ()
    verdict: Verdict = verdicts.UNKNOWN

    @property
    def name(self) -> str:
        """The partition's name, in the notation for scopes."""
        return name_of(self.tp)

    @property
    def deliverer(self) -> str:
        """The client id of the row's member; empty if there is none."""
        return "" if self.member is None else self.member.name

    @property
    def reason(self) -> str:
        """The reason, preceded by the member's name."""
        return f"{self.deliverer} {self.why}".strip()

    @property
    def own_reason(self) -> str:
        """The verdict's sentence; empty if it only repeats the member's verdict."""
        is_members = (
            self.member is not None and self.why == self.member.verdict.sentence
        )
        is_repeated = (
            bool(self.why) and is_members and self.verdict.sentence == self.reason
        )
        return "" if is_repeated else self.verdict.sentence

    @property
    def is_good(self) -> bool:
        """Whether the partition's records are known not to be delivered."""
        return self.answer in {Answer.QUIET, Answer.UNOWNED}

    @property
    def is_ending(self) -> bool:
        """Whether delivery ends as soon as work from before the hold is finished."""
        is_behind = self.member is not None and self.member.is_behind
        return is_behind or self.why in {_IN_HAND, _IN_BATCH}


# ---------------------------------------------------------------- quiet groups


@frozen(kw_only=True)
class Quietness:
    """
    Which members do not obey all records yet, and which covered partitions are not quiet.

    Attributes:
        view: the group.
        covers: the number of partitions that the scopes cover.
        not_quiet: the partitions whose records are delivered or whose state is unknown.
        members: the number of members.
        missing: the members that do not obey all records, or still deliver records of
            covered partitions.
    """

    view: "View"
    covers: int
    not_quiet: Mapping[TopicPartition, Row]
    members: int
    missing: tuple[Member, ...]

    @property
    def is_reached(self) -> bool:
        """
        Whether every member obeys, and no record of a covered partition is delivered.

        Scopes that cover no partition do not count as quiet if the group has members.
        """
        is_known = not self.view.unsettled and (self.covers > 0 or not self.members)
        return is_known and not self.missing and not self.not_quiet

    @property
    def verdict(self) -> Verdict:
        """The verdict on the group; the scopes must be those of the group's holds."""
        flowing = [
            one for one in self.not_quiet.values() if one.answer is Answer.FLOWING
        ]
        if any(not one.is_ending for one in flowing):
            row = verdicts.HELD_BUT_FLOWING
        elif self.is_reached:
            row = verdicts.GROUP_QUIET if self.members else verdicts.NO_MEMBERS
        elif not self.covers and not self.view.unsettled:
            row = verdicts.COVERS_NOTHING
        elif self._is_on_its_way:
            row = verdicts.NOT_QUIET_YET
        else:
            row = verdicts.UNKNOWN
        return row.filled(why=self.sentence())

    @property
    def _is_on_its_way(self) -> bool:
        levels = {one.verdict.level for one in self.missing}
        is_ending = all(one.is_ending for one in self.not_quiet.values())
        return is_ending and Level.UNKNOWN not in levels and not self.view.unsettled

    def sentence(self) -> str:
        """Describe the progress in a sentence."""
        quiet = self.members - len(self.missing)
        if self.view.unsettled:
            text = f"{self.view.unsettled}: the owners of partitions are not known"
        elif not self.members:
            text = f"no members: {UNSEEN}"
        elif not self.covers:
            text = (
                "the scopes cover no partition that the group owns or has committed for"
            )
        else:
            text = f"{quiet} of {self.members} members quiet"
        lost = map(verdicts.lost_stream_text, self.view.lost_streams[:_MANY])
        text += "".join(f"; {one}" for one in [*self._reasons(), *lost])
        for answer, word in ((Answer.FLOWING, "flowing"), (Answer.UNKNOWN, "unknown")):
            found = [tp for tp, one in self.not_quiet.items() if one.answer is answer]
            text += f"; {word}: {partitions_text(found)}" if found else ""
        reports = self.view.reports
        recreated = sorted({one for report in reports for one in report.recreated})
        return text + (f"; {_recreated_text(recreated)}" if recreated else "")

    def _reasons(self) -> Iterator[str]:
        found = [(one.verdict.sentence, one.name) for one in self.missing]
        found += [
            (one.why, one.deliverer)
            for one in self.not_quiet.values()
            if one.member is not None and one.member.obeys
        ]
        return reasons_of(found)


def reasons_of(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence for each of the first few reasons, with the members' names."""
    named: dict[str, dict[str, None]] = {}
    for why, name in found:
        named.setdefault(why, {})[name] = None
    for why, names in [*named.items()][:_MANY]:
        each = "each of " if len(names) > 1 else ""  # the verb in ``why`` is singular
        if why:
            yield f"{each}{first_of(names)} {why}"


# ---------------------------------------------------------------- the group


@frozen(kw_only=True)
class View:
    """
    A snapshot of one group.

    Parts that could not be read are None or empty, and ``unread`` names them.

    Verdicts on members and partitions are computed once, on first access.

    Attributes:
        group: the consumer group.
        facts: the group as the cluster describes it.
        holds: the holds that members still obey: a hold is left out once the proven
            time is later than its expiry plus the allowed skew.
        reports: the last report of every member that reported recently.
        ends: the end offsets of the control topics; None if unknown.
        lags: the number of records after the committed offset, by partition, as far as
            known.
        times: the clock readings when the view was taken.
        unread: the parts that could not be read, each with the reason, as text.
        reports_are_read: whether reports could be read; if not, no member is known to
            obey.
        skew: the maximum seconds by which a member lifts holds late.
        lost_streams: the last reports of Spark streams that no longer report and did
            not report that they stopped, or that were stopped during a batch.
        former_reports: the last reports of members that no longer report, and of
            stopped members that Kafka still lists.
        recently_expired: holds that expired so recently that a report may still count
            them.
        moves: held partitions whose committed offset advanced although they were held,
            found by comparing two recent views or from a single view.
        age: the age of the view in seconds if it is too old to be trusted; otherwise
            None.
        judged: the same view before it became too old; None if it is not too old.
        incarnation: how many times the holds topic was recreated, as far as is known.
    """

    group: str
    facts: GroupFacts
    holds: tuple[HoldRecord, ...] = ()
    reports: tuple[Report, ...] = ()
    ends: Mapping[str, int] | None = None
    lags: Mapping[TopicPartition, int] = field(factory=dict)
    times: Times = NO_TIMES
    unread: tuple[str, ...] = ()
    reports_are_read: bool = True
    skew: float = 0.0
    lost_streams: tuple[Report, ...] = ()
    former_reports: tuple[Report, ...] = ()
    recently_expired: tuple[HoldRecord, ...] = ()
    moves: Mapping[TopicPartition, Move] = field(factory=dict)
    age: float | None = None
    judged: "View | None" = None  # reuses the cached verdicts
    incarnation: int = 0

    # ------------------------------------------------------------ what is known

    @property
    def is_known(self) -> bool:
        """Whether the group exists or has left a trace; if not, its name may be mistyped."""
        traces = (self.holds, self.reports, self.former_reports, self.lost_streams)
        return self.facts.is_known or any(traces)

    def is_from_earlier_topic(self, one: HoldRecord) -> bool:
        """
        Return whether a hold was written before the holds topic was recreated.

        Members that had read the hold still obey it, but members that start now do not
        know it.
        """
        return one.incarnation < self.incarnation

    @property
    def kept(self) -> tuple[KeptHold, ...]:
        """The holds that members still obey although the holds topic has lost them."""
        return tuple(sorted({kept for one in self.reports for kept in one.kept}))

    @cached_property
    def consumed(self) -> tuple[TopicPartition, ...]:
        """The group's owned or committed partitions, which are known even in a rebalance."""
        # During a rebalance, only the members' reports tell which partitions they own.
        reported = (tp for one in self.reports for tp in partitions_of(one.assigned))
        return tuple(sorted({*self.facts.partitions, *reported}))

    @property
    def reporting(self) -> int | None:
        """The number of members listed by Kafka that report; None if unknown."""
        if not self.reports_are_read or self.facts.member_count is None:
            return None
        reporting = {one.member_id for one in self.reports}
        return sum(one.member_id in reporting for one in self.facts.members)

    @property
    def held_by_silent(self) -> dict[TopicPartition, str]:
        """Held partitions whose owner does not report, each with the owner's member id."""
        # If reports could not be read, no member counts as silent.
        ids = {one.member_id for one in self.reports}
        return {
            tp: one.member_id
            for one in (self.facts.members if self.reports_are_read else ())
            if one.member_id not in ids
            for tp in one.assigned
            if self._coverage.covering(tp)
        }

    def held_since(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, float]:
        """Return, where known, when the oldest hold on each partition was placed."""
        found = {
            tp: [
                one.since
                for one in self._coverage.covering(tp)
                if one.since is not None
            ]
            for tp in partitions
        }
        return {tp: min(times) for tp, times in found.items() if times}

    @property
    def without_lag(self) -> frozenset[TopicPartition]:
        """The partitions with a committed offset whose end offset is unknown."""
        return frozenset(self.facts.committed.keys() - self.lags.keys())

    @property
    def uncommitted(self) -> tuple[TopicPartition, ...]:
        """The group's partitions without a committed offset; empty if offsets are unknown."""
        committed = self.facts.committed
        several = self.consumed if self.facts.has_committed else ()
        return tuple(tp for tp in several if tp not in committed)

    @property
    def whole_lag(self) -> int | None:
        """The group's lag in records over all its partitions; None if any lag is unknown."""
        is_whole = self.lags and not self.without_lag and not self.uncommitted
        return self.least_lag if is_whole else None

    @property
    def least_lag(self) -> int:
        """The group's lag in records over the partitions whose lag is known."""
        return sum(self.lags.values())

    def lag_words(self, row: Row | None = None) -> str:
        """Return the lag of the group, or of one of its partitions, as text for people."""
        lag = self.whole_lag if row is None else row.lag
        if lag is not None:
            return f"{lag:,}"
        if row is not None:
            is_none = row.committed is None and self.facts.has_committed
            return UNCOMMITTED if is_none else "unknown"
        if not self.facts.committed and self.facts.has_committed:
            return UNCOMMITTED
        if self.without_lag or not self.uncommitted:
            return "unknown"
        return f"{UNCOMMITTED} for {counted(len(self.uncommitted), 'partition')}"

    # ------------------------------------------------------------ when holds end

    @cached_property
    def lasting(self) -> tuple[HoldRecord, ...]:
        """The holds that are not proven to have ended."""
        proven = self.times.proven
        return tuple(one for one in self.holds if not one.is_over(proven))

    @property
    def maybe_ended(self) -> tuple[HoldRecord, ...]:
        """The holds in :attr:`lasting` that have ended according to :attr:`Times.here`."""
        here = self.times.here
        return tuple(one for one in self.lasting if one.is_over(here))

    @property
    def next_expiry(self) -> float | None:
        """The earliest expiry time in :attr:`lasting`; None if none of the holds expires."""
        ends = [one.expires_at for one in self.lasting]
        return min((one for one in ends if one is not None), default=None)

    def lifted_by(self, holds: Collection[HoldRecord]) -> float | None:
        """Return when members will have lifted all these holds; None if any has not ended."""
        proven = self.times.proven
        if not all(one.is_over(proven) for one in holds):
            return None
        ends = [one.expires_at for one in holds if one.expires_at is not None]
        return max(ends) + self.skew if ends else None

    def ended(self, holds: Collection[HoldRecord]) -> Verdict | None:
        """Return the verdict if all given holds have, or may have, ended; otherwise None."""
        by = self.lifted_by(holds)
        if by is not None:
            return verdicts.HOLD_ENDED.filled(by=utc(by))
        here = self.times.here
        ends = [one.expires_at for one in holds if one.is_over(here)]
        if not ends or len(ends) < len(holds):
            return None
        return verdicts.MAY_HAVE_ENDED.filled(by=utc(max(one or 0.0 for one in ends)))

    # ------------------------------------------------------------ members

    @cached_property
    def unsettled(self) -> str:
        """The reason why partition owners are not known; empty if they are known."""
        facts = self.facts
        if facts.state == UNKNOWN:
            return (
                "the cluster does not list the group's members (no right, or no answer)"
            )
        if facts.state not in _SETTLED:
            return f"the group rebalances ({facts.state})"
        if not facts.members and not facts.has_committed:
            return "the group's committed offsets cannot be read"
        return ""

    @cached_property
    def all_members(self) -> tuple[Member, ...]:
        """
        The members that Kafka lists, then all others, each judged by its own report.

        The others assigned their partitions themselves, or may not know yet that they
        were expelled. Members that no longer report, but did not report that they
        stopped, come last.
        """
        reports = {one.member_id: one for one in self.reports if one.member_id}
        former = {one.member_id: one for one in self.former_reports}
        ids = {one.member_id for one in self.facts.members}
        last = max(
            (reports[one].generation or -1 for one in ids & set(reports)), default=-1
        )
        return (
            *(
                self._listed(
                    one, reports.get(one.member_id), former.get(one.member_id), last
                )
                for one in self.facts.members
            ),
            *(
                self._unlisted(one, verdicts.of_report(one, self.ends))
                for one in self.reports
                if one.member_id not in ids
            ),
            *(
                self._unlisted(one, verdicts.of_lost(one, self.times.now))
                for one in self.former_reports
                if one.member_id not in ids and (one.state != "stopped" or one.busy)
            ),
        )

    def _listed(
        self,
        facts: MemberFacts,
        report: Report | None,
        former: Report | None,
        last: int,
    ) -> Member:
        if report is not None and _is_out_of_date(facts, report, last):
            verdict = verdicts.OUT_OF_DATE.filled(generation=report.generation)
        elif report is not None:
            verdict = verdicts.of_report(report, self.ends)
        elif former is not None:
            verdict = verdicts.of_lost(former, self.times.now)
            report = None if former.state == "stopped" and not former.busy else former
        else:
            verdict = (
                verdicts.SILENT if self.reports_are_read else verdicts.REPORTS_UNREAD
            )
        return Member(facts=facts, report=report, verdict=verdict)

    def _unlisted(self, report: Report, verdict: Verdict) -> Member:
        # A member is known to have left only if Kafka has listed the group's members.
        has_gone = bool(report.member_id) and self.facts.state != UNKNOWN
        return Member(facts=None, report=report, verdict=verdict, has_gone=has_gone)

    @property
    def present(self) -> tuple[Member, ...]:
        """
        The members of the group, and consumers that assigned partitions themselves.

        An expelled member may still deliver, but is not included, because it will stop.
        """
        return tuple(one for one in self.all_members if not one.has_gone)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All members, worst first, judged also by the held partitions that they deliver."""
        if self.judged is not None:
            return tuple(map(self._aged, self.judged.members))
        rows = self.rows.items()
        alarms = {tp for tp, one in rows if one.verdict.level is Level.ALARM}
        found = (_disobeying(one, alarms) for one in self.all_members)
        return tuple(sorted(found, key=lambda one: (one.verdict.rank, one.name)))

    # ------------------------------------------------------------ partitions

    @cached_property
    def _owners(self) -> Mapping[TopicPartition, Sequence[Member]]:
        return _by_partition((one, one.owned) for one in self.all_members)

    def owners(self, tp: TopicPartition) -> tuple[Member, ...]:
        """Return the :attr:`present` members that own a partition."""
        return tuple(one for one in self._owners.get(tp, ()) if not one.has_gone)

    @cached_property
    def _workers(self) -> Mapping[TopicPartition, Sequence[Member]]:
        return _by_partition((one, one.busy) for one in self.all_members)

    @cached_property
    def rows(self) -> Mapping[TopicPartition, Row]:
        """A row for each partition that the group consumes or a member still processes."""
        known = {*self.facts.partitions, *self._owners, *self._workers}
        return {tp: self.row(tp) for tp in sorted(known)}

    @cached_property
    def without_streams(self) -> "View":
        """
        The view without Spark streams, which obey holds but are not members.

        If the group has no members, the streams stay in the view.
        """
        kept = tuple(one for one in self.reports if one.kind != STREAM)
        has_members = not all(one.is_stream for one in self.present)
        if has_members and len(kept) < len(self.reports):
            return evolve(self, reports=kept)
        return self

    @cached_property
    def no_longer_read(self) -> tuple[str, ...]:
        """The topics without any owner, if the group has owners for other topics."""
        by_members = self.without_streams
        rows = [by_members.rows[tp] for tp in self.consumed if tp in by_members.rows]
        unowned = {one.tp.topic for one in rows if one.answer is Answer.UNOWNED}
        read = {one.tp.topic for one in rows if one.answer is not Answer.UNOWNED}
        return tuple(sorted(unowned - read)) if read else ()

    @cached_property
    def partitions(self) -> tuple[Row, ...]:
        """The group's partitions: held partitions first, then by verdict, worst first."""
        if self.judged is not None:
            return tuple(map(self._aged, self.judged.partitions))
        rows = self.rows.values()
        return tuple(sorted(rows, key=lambda one: (not one.holds, one.verdict.rank)))

    @property
    def has_unknown_rows(self) -> bool:
        """Whether no partition of the group is known although the group may have some."""
        return bool(self.unsettled) and not self.rows

    @property
    def held(self) -> tuple[Row, ...]:
        """The partitions that a hold covers."""
        if not self.holds:
            return ()
        return tuple(one for one in self.partitions if one.holds)

    @property
    def quiet(self) -> int | None:
        """The number of held partitions that are quiet; None if the view is too old."""
        if self.age is not None:
            return None
        return sum(one.verdict.level is Level.QUIET for one in self.held)

    @property
    def flowing(self) -> tuple[str, ...]:
        """The names of held partitions whose records are still delivered."""
        held = self.held
        return tuple(one.name for one in held if one.verdict.level is Level.ALARM)

    @property
    def lag(self) -> int | None:
        """The total lag of held partitions in records; None if unknown or none is held."""
        lags = [one.lag for one in self.held]
        return None if not lags or None in lags else sum(one or 0 for one in lags)

    @cached_property
    def _coverage(self) -> Coverage[HoldRecord]:
        return Coverage(self.holds)

    def row(self, tp: TopicPartition) -> Row:
        """Return a partition's row, which shows whether its records are delivered."""
        answer, member, why = self._delivery(tp)
        row = Row(
            tp=tp,
            answer=answer,
            member=member,
            why=why,
            owner=self._owner(tp, member),
            lag=self.lags.get(tp),
            committed=self.facts.committed.get(tp),
            holds=self._coverage.covering(tp),
        )
        return evolve(row, verdict=self._verdict(row))

    def _owner(self, tp: TopicPartition, member: Member | None) -> str | None:
        # Kafka's list of members takes precedence over reports.
        for one in reversed(self._owners.get(tp, ())):
            if one.facts is not None and tp in one.facts.assigned:
                return one.name
        if member is not None:
            return member.name
        return None if self.unsettled else ""

    def _delivery(self, tp: TopicPartition) -> _Delivery:
        # During a rebalance, only the members' reports tell which partitions they own.
        owners = self._owners.get(tp, ())
        if self.unsettled:
            for one in owners:
                if one.delivers(tp):
                    return Answer.FLOWING, one, ""
            why = f"{self.unsettled}: its owner is not known"
            return Answer.UNKNOWN, None, why
        found = [self._by_owner(tp, one) for one in owners]
        for delivery in found:
            if delivery[0] is not Answer.QUIET:
                return delivery
        for one in self._workers.get(tp, ()):
            return _busy_of(one)
        return found[0] if found else self._unowned()

    def _unowned(self) -> _Delivery:
        # A consumer that assigns partitions to itself and does not report is invisible.
        for one in self.all_members:
            if not one.is_listed and one.report is not None and one.report.is_partial:
                return Answer.UNKNOWN, one, _TOO_MANY
        return Answer.UNOWNED, None, ""

    def _by_owner(self, tp: TopicPartition, one: Member) -> _Delivery:
        """Return whether this owner delivers the partition's records, and why."""
        sentence = one.verdict.sentence
        if one.report is None or one.is_lost:
            return self._by_silent_owner(tp, one)
        if one.verdict.words == verdicts.UNKNOWN.words:
            return Answer.UNKNOWN, one, sentence
        if one.report.is_partial:
            return Answer.UNKNOWN, one, _TOO_MANY
        if tp in one.quiet:
            return (Answer.QUIET if one.obeys else Answer.UNKNOWN), one, sentence
        return _by_delivering_owner(tp, one)

    def _by_silent_owner(self, tp: TopicPartition, one: Member) -> _Delivery:
        # The owner's commits are the only evidence. They are ignored if the member's
        # reports just cannot be read: it may obey, and commit records that it received
        # earlier.
        sentence, move = one.verdict.sentence, self.moves.get(tp)
        if move is not None and not (one.is_lost or one.verdict == verdicts.SILENT):
            move = None
        if move is not None and move.is_proven:
            return Answer.FLOWING, one, f"delivers it: {_moved_text(move)}"
        if self._died_quiet(tp, one):
            return Answer.QUIET, one, sentence
        if move is not None:
            sentence = f"likely delivers it: {_moved_text(move)} since it was held"
        return Answer.UNKNOWN, one, sentence

    def _died_quiet(self, tp: TopicPartition, one: Member) -> bool:
        # The member's last report shows that it obeyed a hold that is still in force.
        # If the member was only frozen and resumes, it still does not deliver the
        # partition. That is not certain once the hold may have ended, because this
        # member may allow for less clock skew than others.
        report = one.report
        if report is None or report.is_partial or report.state != "ready":
            return False
        here = self.times.here
        applied = min(
            (report.applied.get(name, 0) for name in self.ends or ()), default=0
        )
        return tp in one.quiet and any(
            hold.offset < applied and not hold.is_over(here)
            for hold in self._coverage.covering(tp)
        )

    def _verdict(self, row: Row) -> Verdict:
        if row.answer is Answer.UNKNOWN:
            unknown = verdicts.BEHIND if row.is_ending else verdicts.UNKNOWN
            return evolve(unknown, sentence=row.reason)
        if not row.holds:
            return _on_unheld(row, is_read=self.ends is not None)
        if row.answer is Answer.UNOWNED:
            return verdicts.HELD_WITHOUT_OWNER
        return self.ended(row.holds) or _on_held(row)

    # ------------------------------------------------------------ the group

    def quietness(self, scopes: Iterable[Covering]) -> Quietness:
        """Return which members, and which partitions in the scopes, are not quiet yet."""
        wanted = covered(scopes, self.rows)
        not_quiet = {tp: self.rows[tp] for tp in wanted if not self.rows[tp].is_good}
        there = [
            *self.present,
            # Members that Kafka no longer lists may still deliver.
            *(
                one
                for one in self.all_members
                if one.is_lost and one.has_gone and one.is_missing(not_quiet)
            ),
        ]
        return Quietness(
            view=self,
            covers=len(wanted),
            not_quiet=not_quiet,
            members=len(there),
            missing=tuple(one for one in there if one.is_missing(not_quiet)),
        )

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the group."""
        if self.judged is not None:
            return self.judged.verdict.aged(self.age or 0.0)
        if not self.holds and self.ends is None:
            return verdicts.HOLDS_UNKNOWN
        if not self.holds and self.kept:
            return verdicts.KEPT_BY_MEMBERS.filled(kept=kept_holds_text(self.kept))
        if not self.holds:
            return verdicts.NOTHING_HELD
        if (ended := self.ended(self.holds)) is not None:
            return ended
        verdict = self.quietness(self.lasting).verdict
        is_unread = self.ends is None and verdict.level is not Level.ALARM
        return verdicts.HOLDS_UNKNOWN if is_unread else verdict

    def aged(self, age: float) -> "View":
        """Return the view to show when the last update is this many seconds old."""
        return evolve(self, age=age, judged=self)

    def _aged(self, one: T) -> T:
        return evolve(one, verdict=one.verdict.aged(self.age or 0.0))


def urgency(view: View) -> tuple[int, bool, int, str]:
    """Return a sort key: worst verdict first, then groups with holds, then largest lag."""
    return view.verdict.rank, not view.holds, -view.least_lag, view.group


def headline(views: Sequence[View]) -> tuple[Level, str]:
    """Return the worst level of all groups, and one sentence about them."""
    found = [one.verdict for one in views if one.verdict != verdicts.NOTHING_HELD]
    groups = counted(len(views), "group")
    if not found:
        return Level.FLOWS, f"Nothing is held in {groups}."
    found.sort(key=lambda one: one.rank)
    held = sum(bool(one.holds) for one in views)
    counts = Counter(one.words for one in found)
    words = ", ".join(f"{count} {words}" for words, count in counts.items())
    verb = "is" if held == 1 else "are"
    return found[0].level, f"{held:,} of {groups} {verb} held: {words}."


# ---------------------------------------------------------------- words


def _disobeying(one: Member, alarms: AbstractSet[TopicPartition]) -> Member:
    """Return the member; its verdict changes if it left or owns a partition in ``alarms``."""
    if one.has_gone and not one.is_lost:
        return evolve(one, verdict=verdicts.LEFT)
    if alarms.isdisjoint(one.owned):
        return one
    if one.report is None:
        return evolve(one, verdict=evolve(one.verdict, level=Level.ALARM))
    # If the member is behind, or cannot read the holds, its verdict explains the
    # delivery already.
    return evolve(one, verdict=verdicts.DISOBEYS) if one.obeys else one


def _is_out_of_date(facts: MemberFacts, report: Report, last: int) -> bool:
    """
    Return whether a report comes from an earlier generation than the current one.

    Without KIP-848, ``last``, the last reported generation, counts as the current one.
    With KIP-848, the epoch of all members rises whenever a member joins or leaves.
    Members that keep their partitions may not notice the new epoch, so their reports
    stay valid.
    """
    generation = report.generation or -1
    if facts.epoch is None:
        return generation < last
    claimed = frozenset(partitions_of(report.assigned))
    return generation < facts.epoch and claimed != facts.assigned


def _by_partition(
    members: Iterable[tuple[Member, Iterable[TopicPartition]]],
) -> Mapping[TopicPartition, Sequence[Member]]:
    found: dict[TopicPartition, list[Member]] = {}
    for member, partitions in members:
        for tp in partitions:
            found.setdefault(tp, []).append(member)
    return found


def _moved_text(move: Move) -> str:
    return f"its committed offset moved from {move.before:,} to {move.after:,}"


def _busy_of(one: Member) -> _Delivery:
    if one.is_lost:
        return Answer.UNKNOWN, one, one.verdict.sentence
    return Answer.FLOWING, one, _IN_BATCH if one.is_stream else _IN_HAND


def _by_delivering_owner(tp: TopicPartition, one: Member) -> _Delivery:
    if tp in one.busy:
        return _busy_of(one)
    # Kafka's answer and the report were made at different times, possibly with a
    # rebalance between them.
    if tp not in one.claimed:
        return Answer.UNKNOWN, one, _UNREPORTED
    return Answer.FLOWING, one, _LEFT if one.has_gone else one.verdict.sentence


def _flowing_text(row: Row) -> str:
    return row.reason if row.why else f"{row.deliverer} delivers it"


def _on_held(row: Row) -> Verdict:
    """Return the verdict on a held partition that is known to be quiet or delivered."""
    if row.answer is Answer.FLOWING:
        is_ending = row.is_ending
        found = verdicts.NOT_QUIET_YET if is_ending else verdicts.HELD_BUT_FLOWING
        return found.filled(why=_flowing_text(row))
    last = max(row.holds, key=lambda one: one.expires_at or float("inf"))
    end = last.expires_at
    return verdicts.QUIET.filled(
        owner=last.key.owner,
        until="until somebody lifts it" if end is None else f"until {utc(end)}",
        reason=f": {last.hold.reason}" if last.hold and last.hold.reason else "",
        more=f", and {len(row.holds) - 1} more" if len(row.holds) > 1 else "",
    )


def _on_unheld(row: Row, *, is_read: bool) -> Verdict:
    """Return the verdict on a partition that no known hold covers."""
    if row.answer is Answer.UNOWNED:
        return verdicts.NO_OWNER
    if not is_read:
        return verdicts.HOLDS_UNKNOWN
    if row.answer is Answer.QUIET:
        return _on_quiet(row)
    if row.lag == 0:
        return verdicts.ALL_READ
    return verdicts.FLOWS.filled(why=_flowing_text(row))


def _on_quiet(row: Row) -> Verdict:
    """Return the verdict on a quiet partition that no hold on the holds topic covers."""
    report = None if row.member is None else row.member.report
    if report is not None and report.gated:
        return verdicts.STARTING.filled(member=row.deliverer)
    if report is not None and report.kept:
        kept = kept_holds_text(report.kept)
        return verdicts.KEPT_BY_MEMBER.filled(member=row.deliverer, kept=kept)
    return verdicts.PAUSED.filled(member=row.deliverer)
