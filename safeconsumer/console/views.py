"""Builds the rows of groups, members and partitions for pages and REST, worst first."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.group.durations import words_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import Judge, Seat, assigned, partitions_text
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import count_of
from safeconsumer.group.why import (
    LEVELS,
    OVER,
    QUESTIONS,
    Answer,
    Level,
    Sight,
    sights,
    why,
)
from safeconsumer.holds.explain import counted, utc

_FEW = 12
_WORST = (*LEVELS, "good")


@frozen(kw_only=True)
class PartitionRow:
    """One partition of a group."""

    tp: TopicPartition
    answer: Answer
    owner: str | None
    lag: int | None
    committed: int | None
    holds: tuple[Standing, ...]

    @property
    def name(self) -> str:
        """The partition's name, as a scope."""
        return f"{self.tp.topic}:{self.tp.partition}"

    @property
    def level(self) -> Level:
        """The level of its answer."""
        return self.answer.level

    @property
    def words(self) -> str:
        """The short text of its answer."""
        return self.answer.words

    @property
    def sentence(self) -> str:
        """The sentence of its answer."""
        return self.answer.sentence

    @property
    def heading(self) -> tuple[str, str]:
        """The heading of its page, before and after its name."""
        return {
            Level.ALARM: ("", "is held, and flows"),
            Level.FLOWS: ("", "flows"),
            Level.QUIET: ("Why is", "quiet?"),
        }.get(self.level, ("What does", "do?"))

    @property
    def questions(self) -> list[tuple[str, str]]:
        """The questions in order, each with ``no``, ``yes`` or ``later``."""
        at = self.answer.number
        return [
            (text, "no" if number < at else "yes" if number == at else "later")
            for number, text in enumerate(QUESTIONS)
        ]

    def aged(self, age: float) -> "PartitionRow":
        """Return it as unknown, after so many seconds without news, unless it is an alarm."""
        level, words = _aged(self.level, self.words)
        sentence = f"{words_of(age)} ago: {self.sentence}"
        return evolve(self, answer=Answer(level, words, sentence, self.answer.number))


@frozen(kw_only=True)
class MemberRow:
    """One member of a group; ``quiet`` is None if it is unknown."""

    id: str
    name: str
    host: str
    level: str
    words: str
    owns: int
    quiet: int | None
    more: str

    def aged(self) -> "MemberRow":
        """Return it as unknown, after a while without news, unless it is an alarm."""
        level, words = _aged(self.level, self.words)
        return evolve(self, level=level, words=words, quiet=None)


@frozen(kw_only=True)
class GroupRow:
    """
    One group in a row: ``level`` is the worst level of its held partitions.

    ``members``, ``reporting``, ``quiet`` and ``lag`` are None if they are unknown.
    """

    group: str
    level: Level
    words: str
    sentence: str
    state: str
    members: int | None
    reporting: int | None
    holds: tuple[Standing, ...]
    held: int
    quiet: int | None
    flowing: tuple[str, ...]
    more_flowing: int
    next_expiry: float | None
    lag: int | None

    def aged(self, age: float) -> "GroupRow":
        """Return it as unknown, after so many seconds without news, unless it is an alarm."""
        level, words = _aged(self.level, self.words)
        said = f"{words_of(age)} ago: {self.sentence}"
        return evolve(self, level=level, words=words, sentence=said, quiet=None)


@frozen(kw_only=True)
class View:
    """Everything that is shown about one group."""

    row: GroupRow
    members: tuple[MemberRow, ...]
    partitions: tuple[PartitionRow, ...]

    def aged(self, age: float) -> "View":
        """Return it as unknown, after so many seconds without news, unless it is an alarm."""
        return View(
            row=self.row.aged(age),
            members=tuple(one.aged() for one in self.members),
            partitions=tuple(one.aged(age) for one in self.partitions),
        )


def _aged(level: str, words: str) -> tuple[Level, str]:
    # An alarm may still be true; anything else is now unknown.
    is_alarm = level == Level.ALARM
    return (Level.ALARM, words) if is_alarm else (Level.UNKNOWN, "cannot tell")


def view_of(
    picture: Picture, stands_for: Callable[[TopicPartition], float | None]
) -> View:
    """Return everything about one group."""
    judge = Judge(picture)
    partitions = tuple(_partition(one) for one in sights(judge, stands_for))
    held = tuple(one for one in partitions if one.holds)
    loud = {one.tp for one in partitions if one.level is Level.ALARM}
    members = [_member(one, loud) for one in (*judge.members, *judge.others)]
    return View(
        row=_group(picture, held, _verdict(judge, held)),
        members=tuple(sorted(members, key=lambda one: _WORST.index(one.level))),
        partitions=tuple(
            sorted(partitions, key=lambda one: (not one.holds, _rank(one.level)))
        ),
    )


def row_of(picture: Picture) -> GroupRow:
    """Return the row of a group without holds, without examining its partitions."""
    return _group(picture, (), _without_holds(picture))


def _rank(level: Level) -> int:
    return LEVELS.index(level)


def _partition(sight: Sight) -> PartitionRow:
    return PartitionRow(
        tp=sight.tp,
        answer=why(sight),
        owner=sight.owner or None,
        lag=sight.lag,
        committed=sight.committed,
        holds=sight.holds,
    )


# ---------------------------------------------------------------- the group


def _group(
    picture: Picture, held: Sequence[PartitionRow], verdict: tuple[Level, str, str]
) -> GroupRow:
    level, words, sentence = verdict
    flowing = [one.name for one in held if one.level is Level.ALARM]
    expiries = [one.expires_at for one in picture.standing if one.expires_at]
    lags = [one.lag for one in held]
    return GroupRow(
        group=picture.group,
        level=level,
        words=words,
        sentence=sentence,
        state=picture.facts.state,
        members=picture.facts.member_count,
        reporting=picture.reporting,
        holds=picture.standing,
        held=len(held),
        quiet=_count(held, Level.QUIET),
        flowing=tuple(flowing[:_FEW]),
        more_flowing=max(0, len(flowing) - _FEW),
        next_expiry=min(expiries, default=None),
        lag=None if not lags or None in lags else sum(one or 0 for one in lags),
    )


def _count(held: Sequence[PartitionRow], level: Level) -> int:
    return sum(one.level is level for one in held)


def _verdict(judge: Judge, held: Sequence[PartitionRow]) -> tuple[Level, str, str]:
    if not judge.picture.standing:
        return _without_holds(judge.picture)
    flowing = _count(held, Level.ALARM)
    if (by := judge.picture.lifted_by(judge.picture.standing)) is not None:
        said = f"The holds have ended; members lift them by {utc(by)} at the latest."
        return Level.WAITING, OVER, said
    held = [one for one in held if one.words != OVER]
    if flowing:
        verb = "is" if flowing == 1 else "are"
        said = f"{counted(flowing, 'partition')} {verb} held but still flowing:"
        return Level.ALARM, "held but flowing", said
    if not held:
        return _nothing_covered(judge)
    rest = [one for one in held if one.level is not Level.QUIET]
    if not rest:
        return _all_quiet(judge, len(held))
    worst = min(rest, key=lambda one: _rank(one.level))
    alike = partitions_text(one.tp for one in rest if one.words == worst.words)
    quiet = _count(held, Level.QUIET)
    verb = "is" if quiet == 1 else "are"
    said = f"{quiet} of {counted(len(held), 'held partition')} {verb} quiet. "
    words = "cannot tell" if worst.level is Level.UNKNOWN else "not quiet yet"
    return worst.level, words, f"{said}{alike}: {worst.sentence}."


def _nothing_covered(judge: Judge) -> tuple[Level, str, str]:
    if judge.unsettled:
        said = f"What the holds cover is unknown: {judge.unsettled}."
        return Level.UNKNOWN, "cannot tell", said
    if judge.quietness(judge.picture.lasting).is_reached:
        said = (
            "The group has no members. New members read the holds before they deliver."
        )
        return Level.QUIET, "nobody there", said
    said = "The holds cover nothing that the group owns or has committed for."
    return Level.WAITING, "covers nothing", said


def _without_holds(picture: Picture) -> tuple[Level, str, str]:
    if picture.ends is None:
        said = "The control topics cannot be read, so what is held is unknown."
        return Level.UNKNOWN, "cannot tell", said
    return Level.FLOWS, "nothing held", "Nothing of this group is held."


def _all_quiet(judge: Judge, held: int) -> tuple[Level, str, str]:
    # As wait judges it: every member must obey, not only owners of held partitions.
    reached = judge.quietness(judge.picture.lasting)
    if not reached.is_reached:
        said = f"The held partitions are quiet, but {reached.sentence()}."
        return Level.UNKNOWN, "cannot tell", said
    if held == 1:
        return Level.QUIET, "quiet", "The held partition is quiet."
    return Level.QUIET, "quiet", f"All {held:,} held partitions are quiet."


def headline(rows: Sequence[GroupRow]) -> tuple[Level, str]:
    """Return one sentence about all groups, and its level."""
    counts = {level: sum(one.level is level for one in rows) for level in LEVELS}
    held = sum(bool(one.holds) for one in rows)
    if counts[Level.ALARM]:
        verb = "delivers" if counts[Level.ALARM] == 1 else "deliver"
        return (
            Level.ALARM,
            f"{counted(counts[Level.ALARM], 'group')} {verb} held records.",
        )
    if not held:
        if counts[Level.UNKNOWN]:
            return Level.UNKNOWN, "What is held is unknown."
        return Level.FLOWS, f"Nothing is held in {counted(len(rows), 'group')}."
    verb = "is" if held == 1 else "are"
    said = f"{held:,} of {counted(len(rows), 'group')} {verb} held"
    if counts[Level.UNKNOWN]:
        verb = "is" if counts[Level.UNKNOWN] == 1 else "are"
        return (
            Level.UNKNOWN,
            f"{said}; it is unknown whether {counts[Level.UNKNOWN]} {verb} quiet.",
        )
    if counts[Level.WAITING]:
        verb = "is" if counts[Level.WAITING] == 1 else "are"
        return Level.WAITING, f"{said}; {counts[Level.WAITING]} {verb} not quiet yet."
    return Level.QUIET, f"{said}, and all held partitions are quiet."


# ---------------------------------------------------------------- members


def _member(seat: Seat, loud: AbstractSet[TopicPartition]) -> MemberRow:
    facts, report = seat.facts, seat.report
    host = report.host if report else facts.host.lstrip("/") if facts else ""
    owned = facts.assigned if facts else assigned([report] if report else [])
    level, words = {
        True: ("good", "has read all"),
        False: (Level.WAITING, "behind"),
        None: (Level.UNKNOWN, "cannot tell"),
    }[seat.obeys]
    if report is not None and report.state != "ready":
        level, words = Level.UNKNOWN, "keeps its last state"
    is_judged = bool(seat.obeys) or report is None
    if is_judged and not loud.isdisjoint(owned):
        level, words = Level.ALARM, "does not obey"
    quiet = None if report is None or report.is_partial else count_of(report.quiet)
    return MemberRow(
        id=facts.member_id if facts else report.member if report else "",
        name=seat.name,
        host=host,
        level=level,
        words=words,
        owns=len(owned),
        quiet=quiet,
        more=_more(seat),
    )


def _more(seat: Seat) -> str:
    said = [seat.why] if seat.why else []
    report = seat.report
    if seat.facts is None:
        said.append("Kafka does not list it as a member of the group")
    if report is not None:
        said += report.outages
        if report.gated:
            said.append(
                f"{counted(report.gated, 'partition')} "
                f"{'waits' if report.gated == 1 else 'wait'} for the control topics"
            )
        if report.skipped:
            said.append(f"skipped {report.skipped} unreadable control records")
    return "; ".join(said)
