"""Builds what is shown of a group, its members and its partitions, worst first."""

from collections import Counter
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.group import verdicts
from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import Answer, Delivery, Judge, Member
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import kept_text
from safeconsumer.group.verdicts import LEVELS, Level, Verdict
from safeconsumer.holds.explain import counted, utc


@frozen(kw_only=True)
class PartitionRow:
    """
    One partition of a group.

    ``owner`` is empty if nobody owns it; it is None, as ``lag`` and ``committed`` are,
    if it is unknown.
    """

    tp: TopicPartition
    verdict: Verdict
    owner: str | None
    lag: int | None
    committed: int | None
    holds: tuple[Standing, ...]

    @property
    def name(self) -> str:
        """The partition's name, as a scope."""
        return f"{self.tp.topic}:{self.tp.partition}"


@frozen(kw_only=True)
class View:
    """
    Everything that is shown about one group.

    Attributes:
        picture: what is known of it.
        verdict: the verdict on the group.
        members: its members, the worst first.
        partitions: its partitions, held ones first, then the worst.
        is_old: whether there were no news for a while.
    """

    picture: Picture
    verdict: Verdict
    members: tuple[Member, ...] = ()
    partitions: tuple[PartitionRow, ...] = ()
    is_old: bool = False

    @property
    def group(self) -> str:
        """The name of the group."""
        return self.picture.group

    @property
    def held(self) -> tuple[PartitionRow, ...]:
        """The partitions that a hold covers."""
        return tuple(one for one in self.partitions if one.holds)

    @property
    def quiet(self) -> int | None:
        """How many held partitions are quiet; None if that is unknown."""
        if self.is_old:
            return None
        return sum(one.verdict.level is Level.QUIET for one in self.held)

    @property
    def flowing(self) -> tuple[str, ...]:
        """The names of held partitions that are delivered all the same."""
        held = self.held
        return tuple(one.name for one in held if one.verdict.level is Level.ALARM)

    @property
    def next_expiry(self) -> float | None:
        """When the next hold expires; None if none does."""
        ends = [one.expires_at for one in self.picture.standing]
        return min((one for one in ends if one is not None), default=None)

    @property
    def lag(self) -> int | None:
        """How many records wait in held partitions; None if unknown, or none is held."""
        lags = [one.lag for one in self.held]
        return None if not lags or None in lags else sum(one or 0 for one in lags)

    @property
    def whole_lag(self) -> int | None:
        """How many records wait for the group; None if one partition's are unknown."""
        lags = self.picture.lags
        return sum(lags.values()) if lags and not self.picture.without_lag else None

    def aged(self, age: float) -> "View":
        """Return what it is worth after so many seconds without news."""
        return evolve(
            self,
            verdict=self.verdict.aged(age),
            members=tuple(
                evolve(one, verdict=one.verdict.aged(age)) for one in self.members
            ),
            partitions=tuple(
                evolve(one, verdict=one.verdict.aged(age)) for one in self.partitions
            ),
            is_old=True,
        )


def view_of(picture: Picture) -> View:
    """Return everything about one group."""
    judge = Judge(picture)
    partitions = [_partition(judge, tp) for tp in judge.partitions]
    loud = {one.tp for one in partitions if one.verdict.level is Level.ALARM}
    members = [_member(one, loud) for one in judge.everybody]
    members.sort(key=lambda one: one.name)
    return View(
        picture=picture,
        verdict=_of_group(judge),
        members=tuple(sorted(members, key=lambda one: _rank(one.verdict))),
        partitions=tuple(
            sorted(partitions, key=lambda one: (not one.holds, _rank(one.verdict)))
        ),
    )


def row_of(picture: Picture) -> View:
    """Return what a list of groups shows; without holds no partition is examined."""
    if picture.standing:
        return view_of(picture)
    return View(picture=picture, verdict=_without_holds(picture))


def _rank(verdict: Verdict) -> int:
    return LEVELS.index(verdict.level)


# ---------------------------------------------------------------- partitions


def ended(picture: Picture, holds: Collection[Standing]) -> Verdict | None:
    """Return the verdict on holds that have all ended, or may have; None if one has not."""
    by = picture.lifted_by(holds)
    if by is not None:
        return verdicts.HOLD_ENDED.of(by=utc(by))
    here = picture.times.here
    ends = [one.expires_at for one in holds if one.is_over(here)]
    if not ends or len(ends) < len(holds):
        return None
    return verdicts.MAY_HAVE_ENDED.of(by=utc(max(one or 0.0 for one in ends)))


def _partition(judge: Judge, tp: TopicPartition) -> PartitionRow:
    picture, delivery = judge.picture, judge.delivery(tp)
    holds = tuple(one for one in picture.standing if one.covers(tp))
    member, lag = delivery.member, picture.lags.get(tp)
    if delivery.answer is Answer.UNOWNED:
        verdict = verdicts.HELD_WITHOUT_OWNER if holds else verdicts.NO_OWNER
    elif delivery.answer is Answer.UNKNOWN:
        row = verdicts.BEHIND if delivery.is_ending else verdicts.UNKNOWN
        verdict = evolve(row, sentence=delivery.said)
    elif holds:
        verdict = ended(picture, holds) or _of_held(delivery, holds)
    elif picture.ends is None:
        verdict = verdicts.HOLDS_UNKNOWN
    elif delivery.answer is Answer.QUIET:
        verdict = _of_unheld(member)
    else:
        verdict = _of_flowing(delivery, lag)
    return PartitionRow(
        tp=tp,
        verdict=verdict,
        owner=_owner(judge, tp, delivery),
        lag=lag,
        committed=picture.facts.committed.get(tp),
        holds=holds,
    )


def _owner(judge: Judge, tp: TopicPartition, delivery: Delivery) -> str | None:
    member = judge.owner(tp) or delivery.member
    if member is None:
        return None if judge.unsettled else ""
    return member.name


def _of_unheld(member: Member | None) -> Verdict:
    # It is quiet, and no hold on the topics covers it.
    report = None if member is None else member.report
    if member is None or report is None:
        return verdicts.PAUSED.of(member="")
    if report.gated:
        return verdicts.STARTING.of(member=member.name)
    if report.kept:
        kept = kept_text(report.kept)
        return verdicts.KEPT_BY_MEMBER.of(member=member.name, kept=kept)
    return verdicts.PAUSED.of(member=member.name)


def _of_held(delivery: Delivery, holds: Sequence[Standing]) -> Verdict:
    if delivery.answer is Answer.FLOWING:
        is_ending = delivery.is_ending
        row = verdicts.NOT_QUIET_YET if is_ending else verdicts.HELD_BUT_FLOWING
        said = delivery.said if delivery.why else f"{delivery.owner} delivers it"
        return row.of(why=said)
    last = max(holds, key=lambda one: one.expires_at or float("inf"))
    end = last.expires_at
    return verdicts.QUIET.of(
        owner=last.key.owner,
        until="until somebody lifts it" if end is None else f"until {utc(end)}",
        reason=f": {last.hold.reason}" if last.hold and last.hold.reason else "",
        more=f", and {len(holds) - 1} more" if len(holds) > 1 else "",
    )


def _of_flowing(delivery: Delivery, lag: int | None) -> Verdict:
    if lag == 0:
        return verdicts.ALL_READ
    said = delivery.said if delivery.why else f"{delivery.owner} delivers it"
    return verdicts.FLOWS.of(why=said)


# ---------------------------------------------------------------- the group


def _of_group(judge: Judge) -> Verdict:
    picture = judge.picture
    if not picture.standing:
        return _without_holds(picture)
    if (over := ended(picture, picture.standing)) is not None:
        return over
    verdict = judge.quietness(picture.lasting).verdict
    is_unread = picture.ends is None and verdict.level is not Level.ALARM
    return verdicts.HOLDS_UNKNOWN if is_unread else verdict


def _without_holds(picture: Picture) -> Verdict:
    if picture.ends is None:
        return verdicts.HOLDS_UNKNOWN
    if picture.kept:
        return verdicts.KEPT_BY_MEMBERS.of(kept=kept_text(picture.kept))
    return verdicts.NOTHING_HELD


def headline(rows: Sequence[View]) -> tuple[Level, str]:
    """Return one sentence about all groups, and its level."""
    told = [one.verdict for one in rows if one.verdict != verdicts.NOTHING_HELD]
    groups = counted(len(rows), "group")
    if not told:
        return Level.FLOWS, f"Nothing is held in {groups}."
    told.sort(key=_rank)
    held = sum(bool(one.picture.standing) for one in rows)
    counts = Counter(one.words for one in told)
    words = ", ".join(f"{count} {words}" for words, count in counts.items())
    verb = "is" if held == 1 else "are"
    return told[0].level, f"{held:,} of {groups} {verb} held: {words}."


# ---------------------------------------------------------------- members


def _member(one: Member, loud: AbstractSet[TopicPartition]) -> Member:
    if one.has_gone and not one.is_lost:
        return evolve(one, verdict=verdicts.LEFT)
    # One that is behind, or cannot read the holds, says so itself.
    is_judged = one.obeys or one.report is None
    if not is_judged or loud.isdisjoint(one.owned):
        return one
    why = one.verdict.sentence or verdicts.DISOBEYS.sentence
    return evolve(one, verdict=evolve(verdicts.DISOBEYS, sentence=why))
