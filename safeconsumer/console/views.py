"""
What pages and REST say of a group: one row, its members, its partitions, worst first.
"""

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import obeys_text, partitions_text
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report, count_of
from safeconsumer.group.why import (
    LEVELS,
    QUESTIONS,
    Answer,
    Level,
    Sight,
    reports_of,
    sights,
    why,
)

_FEW = 12


@frozen(kw_only=True)
class PartitionRow:
    """
    One partition of a group.
    """

    tp: TopicPartition
    answer: Answer
    owner: str | None
    lag: int | None
    committed: int | None
    holds: tuple[Standing, ...]

    @property
    def name(self) -> str:
        """
        It as a scope.
        """
        return f"{self.tp.topic}:{self.tp.partition}"

    @property
    def level(self) -> Level:
        """
        What its answer means.
        """
        return self.answer.level

    @property
    def words(self) -> str:
        """
        Its answer in short.
        """
        return self.answer.words

    @property
    def sentence(self) -> str:
        """
        Its answer.
        """
        return self.answer.sentence

    @property
    def heading(self) -> tuple[str, str]:
        """
        What somebody asks who looks at it, before and after its name.
        """
        return {
            Level.ALARM: ("", "is held, and flows"),
            Level.FLOWS: ("", "flows"),
            Level.QUIET: ("Why is", "quiet?"),
        }.get(self.level, ("What does", "do?"))

    @property
    def questions(self) -> list[tuple[str, str]]:
        """
        What was asked, in order, each with ``no``, ``yes`` or ``later``.
        """
        at = self.answer.number
        return [
            (text, "no" if number < at else "yes" if number == at else "later")
            for number, text in enumerate(QUESTIONS)
        ]


@frozen(kw_only=True)
class MemberRow:
    """
    One member of a group; ``quiet`` is None if that is unknown.
    """

    id: str
    name: str
    host: str
    level: str
    words: str
    owns: int
    quiet: int | None
    more: str


@frozen(kw_only=True)
class GroupRow:
    """
    One group in a line: ``level`` is the worst of what is held.
    """

    group: str
    level: Level
    words: str
    sentence: str
    state: str
    members: int
    reporting: int
    holds: tuple[Standing, ...]
    held: int
    quiet: int
    flowing: tuple[str, ...]
    more_flowing: int
    next_expiry: float | None
    lag: int | None


@frozen(kw_only=True)
class View:
    """
    Everything that is said of one group.
    """

    row: GroupRow
    members: tuple[MemberRow, ...]
    partitions: tuple[PartitionRow, ...]


def view_of(
    picture: Picture, stands_for: Callable[[TopicPartition], float | None]
) -> View:
    """
    Say everything of one group.
    """
    partitions = tuple(_partition(one) for one in sights(picture, stands_for))
    return View(
        row=_group(picture, partitions),
        members=tuple(sorted(_members(picture), key=lambda one: one.level == "good")),
        partitions=tuple(
            sorted(partitions, key=lambda one: (not one.holds, _rank(one.level)))
        ),
    )


def _rank(level: Level) -> int:
    return LEVELS.index(level)


def _partition(sight: Sight) -> PartitionRow:
    return PartitionRow(
        tp=sight.tp,
        answer=why(sight),
        owner=None if sight.owner is None else sight.who,
        lag=sight.lag,
        committed=sight.picture.facts.committed.get(sight.tp),
        holds=sight.holds,
    )


# ---------------------------------------------------------------- the group


def _group(picture: Picture, partitions: Sequence[PartitionRow]) -> GroupRow:
    held = [one for one in partitions if one.holds]
    flowing = [one.name for one in held if one.level is Level.ALARM]
    quiet = sum(one.level is Level.QUIET for one in held)
    level, words, sentence = _verdict(picture, held, quiet, len(flowing))
    expiries = [one.expires_at for one in picture.standing if one.expires_at]
    lags = [one.lag for one in held]
    return GroupRow(
        group=picture.group,
        level=level,
        words=words,
        sentence=sentence,
        state=picture.facts.state,
        members=len(picture.facts.members),
        reporting=len(reports_of(picture)),
        holds=picture.standing,
        held=len(held),
        quiet=quiet,
        flowing=tuple(flowing[:_FEW]),
        more_flowing=max(0, len(flowing) - _FEW),
        next_expiry=min(expiries, default=None),
        lag=None if not lags or None in lags else sum(one or 0 for one in lags),
    )


def _verdict(
    picture: Picture, held: Sequence[PartitionRow], quiet: int, flowing: int
) -> tuple[Level, str, str]:
    if not picture.standing:
        if picture.ends is None:
            said = "The control topics cannot be read, so what is held is unknown."
            return Level.UNKNOWN, "cannot tell", said
        return Level.FLOWS, "nothing held", "Nothing of this group is held."
    if flowing:
        verb = "is" if flowing == 1 else "are"
        said = f"{_many(flowing, 'partition')} {verb} held and flowing all the same:"
        return Level.ALARM, "held but flowing", said
    if not held:
        said = "The holds cover nothing that the group owns or has committed for."
        return Level.WAITING, "covers nothing", said
    of_all = f"{quiet} of {_many(len(held), 'held partition')} quiet"
    rest = [one for one in held if one.level is not Level.QUIET]
    if not rest:
        verb = "is" if len(held) == 1 else "are"
        said = f"All of the {_many(len(held), 'held partition')} {verb} quiet."
        return Level.QUIET, "quiet", said.replace("All of the 1 ", "The ")
    worst = min(rest, key=lambda one: _rank(one.level))
    alike = partitions_text(one.tp for one in rest if one.words == worst.words)
    said = f"{of_all}. {alike}: {worst.sentence}."
    words = "cannot tell" if worst.level is Level.UNKNOWN else "not quiet yet"
    return worst.level, words, said


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def headline(rows: Sequence[GroupRow]) -> tuple[Level, str]:
    """
    Say in one sentence how all groups do, and how bad it is.
    """
    counts = {level: sum(one.level is level for one in rows) for level in LEVELS}
    held = sum(bool(one.holds) for one in rows)
    if counts[Level.ALARM]:
        verb = "delivers" if counts[Level.ALARM] == 1 else "deliver"
        return (
            Level.ALARM,
            f"{_many(counts[Level.ALARM], 'group')} {verb} records of what is held.",
        )
    if not held:
        if counts[Level.UNKNOWN]:
            return Level.UNKNOWN, "What is held is unknown."
        return Level.FLOWS, f"Nothing is held in {_many(len(rows), 'group')}."
    said = f"{held:,} of {_many(len(rows), 'group')} held"
    if counts[Level.UNKNOWN]:
        are = "it is" if counts[Level.UNKNOWN] == 1 else "they are"
        return (
            Level.UNKNOWN,
            f"{said}; of {counts[Level.UNKNOWN]} nobody can tell whether {are} quiet.",
        )
    if counts[Level.WAITING]:
        return Level.WAITING, f"{said}; {counts[Level.WAITING]} not quiet yet."
    return Level.QUIET, f"{said}, and all of that is quiet."


# ---------------------------------------------------------------- members


def _members(picture: Picture) -> list[MemberRow]:
    rows = []
    reports = reports_of(picture)
    for one in picture.facts.members:
        report = reports.get(one.member_id)
        level, words = _obeys(report, picture.ends)
        rows.append(
            MemberRow(
                id=one.member_id,
                name=one.client_id,
                host=report.host if report else one.host.lstrip("/"),
                level=level,
                words=words,
                owns=len(one.assigned),
                quiet=None
                if report is None or report.is_partial
                else count_of(report.quiet),
                more=_more(report),
            )
        )
    return rows


def _obeys(report: Report | None, ends: Mapping[str, int] | None) -> tuple[str, str]:
    if report is None:
        return Level.UNKNOWN, "does not report"
    if report.state != "ready":
        return Level.UNKNOWN, obeys_text(report, ends or {})
    if ends is None:
        return Level.UNKNOWN, "cannot tell"
    said = obeys_text(report, ends)
    return ("good" if said == "obeys all" else Level.WAITING), said


def _more(report: Report | None) -> str:
    if report is None:
        return "a plain client obeys no hold"
    said = list(report.outages)
    if report.gated:
        said.append(f"{report.gated} wait for the control topics")
    if report.skipped:
        said.append(f"skipped {report.skipped} unreadable control records")
    return "; ".join(said)
