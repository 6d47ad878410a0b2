"""
Judges all members' journals about one partition together: the reference checker.

The checks are: A1, nothing is delivered while held; A2, nothing is lost; A3, an
ownership has no gap; A4, an ownership does not step back, and none begins after the
committed offset; A5, nothing is committed that was not delivered; A6, records that are
delivered twice were not committed; A7, ``paused()`` agrees with the holds; A8, parked
data is bounded; G2, nothing is delivered that is held for the group, once its members
know of the hold.

For workers, whose handlers are journaled: W4, nothing is committed beyond what is
complete; W5, every record is completed in the end, once per ownership; W7, records of a
lane are handled one at a time, in order; W10, no handler begins on held records.
"""

import math
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime

from attrs import evolve, field, frozen

from safeconsumer.audit import fleet
from safeconsumer.audit.anew import OF_OFFSETS, is_one_topic, made_anew
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.facts import Address, Fact, docket, facts, written_to
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.group_holds import Bounds, Readings, under_hold
from safeconsumer.audit.holding import keys
from safeconsumer.audit.journal import Source
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.reading import TopicPartition, covering_for_group
from safeconsumer.audit.replay import Replay
from safeconsumer.audit.spans import merged, uncovered
from safeconsumer.audit.starts import (
    Start,
    basis_of,
    starts_of,
    wrong_commits,
    wrong_starts,
)
from safeconsumer.errors import JournalError

CHECKS = (
    *("A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "G2"),
    *("W4", "W5", "W7", "W10"),
)

# Checks that need to know to which group each member belongs.
_OF_THE_GROUP = ("A2", "A4", "A6", "G2")

# Why A2 is not judged where everything that was written should have been delivered.
_UNTOLD = (
    "nothing says what was written: that takes producers' journals, or the topic "
    "(audit --against-topic)"
)

# Checks that compare records of one ownership with the records before them.
_OF_ONE = ("A3", "A4")

Watch = Callable[[Address, Replay, Fact], None]

# What a clean verdict rests on; for A4 and A6 this depends on what is known.
_BASES: Mapping[str, Basis] = {
    **dict.fromkeys(("A1", "A3", "A5", "A7", "A8"), Basis.ORDER),
    **dict.fromkeys(("W4", "W5", "W7", "W10"), Basis.ORDER),
    "G2": Basis.CLOCKS,
    "A2": Basis.OFFSETS,
}


@frozen(kw_only=True)
class Settings:
    """
    The assumptions of the checker.

    Attributes:
        patience: seconds within which a hold of the group reaches members that own
            the partition already (G2, W10).
        clock_skew: seconds by which two members' clocks may differ.
        is_drained: whether everything that was acknowledged should have been delivered,
            and handled where there are workers.
        control: what the control topics say; None if they were not read.
    """

    patience: float = 5.0
    clock_skew: float = 0.0
    is_drained: bool = False
    control: Control | None = None


@frozen(kw_only=True)
class Verdict:
    """
    The verdict on one case.

    Attributes:
        case: the consumer group and the partition.
        findings: every broken promise.
        group_holds: when the partition was held for the group.
        bases: the evidence on which each check rests here.
        unjudged: checks that could not be judged here, and why.
    """

    case: Address
    findings: tuple[Finding, ...]
    group_holds: tuple[Bounds, ...] = ()
    bases: Mapping[str, Basis] = field(factory=dict)
    unjudged: Mapping[str, str] = field(factory=dict)


def judge(
    case: Address,
    told: Iterable[Fact],
    settings: Settings,
    written: Container[str] = (),
) -> Verdict:
    """
    Judge one partition of one consumer group by the facts of all journals.

    It is a pure function, and the only place where cases are judged: all readers of
    journals call it, or :class:`Trial`.

    Args:
        case: the group and the partition.
        told: the facts of its own address and of those that :func:`docket` names for
            it; each member's in the order of their numbers, the members in any order.
        settings: the assumptions.
        written: topics for which a journal or the topic itself says what was written,
            perhaps to other partitions only.
    """
    trial = Trial(case, settings)
    for fact in told:
        trial.take(fact)
    return trial.verdict(written)


class Trial:
    """
    Judges a case from facts that arrive one by one; many trials can run at a time.

    Memory grows with ownerships, commits, polls that returned records, and gaps between
    deliveries; not with records.
    """

    def __init__(
        self, case: Address, settings: Settings, watch: Watch | None = None
    ) -> None:
        self._case = case
        self._settings = settings
        self._watch = watch
        self._members: dict[str, Replay] = {}
        self._acked = fleet.Acknowledged()
        self._readings = Readings()

    def take(self, fact: Fact) -> None:
        """Take one fact; those of a member come in order."""
        if fact.event in {"acked", "kept"}:
            self._acked.add(fact)
        else:
            if fact.event == "hold":
                self._read_holds(fact)
            known = self._members.get(fact.member)
            if known is None:
                known = Replay(self._case, self._settings.patience)
                self._members[fact.member] = known
            known.take(fact)
            if self._watch is not None:
                self._watch(self._case, known, fact)

    def _read_holds(self, fact: Fact) -> None:
        for scope, holder in keys(fact):
            if ":" in holder:  # of the group or of operators
                self._readings.add(scope, holder, fact.at)

    def share(self, written: fleet.Acknowledged) -> None:
        """Take what producers wrote for all groups, instead of single facts about it."""
        self._acked = written

    def verdict(self, written: Container[str] = ()) -> Verdict:
        """
        Return the verdict, once all facts were taken.

        Args:
            written: as in :func:`judge`.
        """
        members = dict(sorted(self._members.items()))
        findings: list[Finding] = []
        skew = self._settings.clock_skew
        anew = made_anew(self._epochs(), self._acked.told.values(), skew)
        holds = list(self._holds())
        unjudged = dict(self._unjudged(members))
        for one in self._findings(members, holds):
            if isinstance(one, Finding):
                findings.append(one)
            else:
                unjudged[one[0]] = one[1]
        moot = (*_OF_THE_GROUP, *dict(_unseen_commits(members)))
        findings = [one for one in findings if not _is_moot(one, unjudged, moot)]
        if self._settings.is_drained and (untold := self._untold(written)):
            unjudged.setdefault("A2", untold)
        if anew is not None:
            unjudged |= dict.fromkeys(OF_OFFSETS, anew.why)
            until = anew.since - skew
            sure = [] if anew.is_sure else list(self._of_one_topic(members, findings))
            findings = [
                one for one in findings if _is_of_the_old(one, until) or one in sure
            ]
        starts = basis_of(self._epochs())
        return Verdict(
            case=self._case,
            findings=tuple(findings),
            group_holds=tuple(one for one in holds if self._covers(one.span)),
            bases={**_BASES, "A4": starts, "A6": starts},
            unjudged=unjudged,
        )

    def _untold(self, written: Container[str]) -> str:
        # Whether everything came cannot be told from what came.
        if not self._acked.told and self._case.topic not in written:
            return _UNTOLD
        least = self._acked.untold
        passed = fleet.positions(self._epochs())
        if any(uncovered(merged([(0, least)] if least else []), passed)):
            return f"what the topic had before offset {least} is deleted"
        return ""

    def _holds(self) -> Iterator[Bounds]:
        control, group = self._settings.control, self._case.group
        if control is None or control.trouble:
            return
        for span in control.spans:
            if span.group == group and self._covers(span) is not False:
                patience, skew = self._settings.patience, self._settings.clock_skew
                yield self._readings.bounds(span, patience, skew)

    def _covers(self, span: Span) -> bool | None:
        # None: a pattern that only RE2 can read, while it is not installed.
        try:
            return covering_for_group(span.scope)(
                (self._case.topic, self._case.partition)
            )
        except JournalError:
            return None

    def _of_one_topic(
        self, members: Mapping[str, Replay], findings: Iterable[Finding]
    ) -> Iterator[Finding]:
        # A finding from within one ownership is true, whichever topic it was.
        own = {name: list(one.findings()) for name, one in members.items()}
        for one in findings:
            if (
                one.check in _OF_ONE
                and one.at is not None
                and one in own.get(one.member, ())
            ):
                its = [
                    epoch
                    for epoch in members[one.member].epochs
                    if epoch.at <= one.at <= epoch.over
                ]
                if its and is_one_topic(its[-1], self._settings.clock_skew):
                    yield one

    def _epochs(self) -> list[Epoch]:
        return [
            epoch for _, one in sorted(self._members.items()) for epoch in one.epochs
        ]

    def _unjudged(self, members: Mapping[str, Replay]) -> Iterator[tuple[str, str]]:
        hidden = [name for name, one in members.items() if one.was_hidden]
        if hidden:
            yield (
                "A7",
                f"the journal of {hidden[0]} lacks some results of paused()",
            )
        if not members and not self._case.group and self._acked.told:
            yield "A2", "no journal says who read the acknowledged records"
        yield from _unseen_commits(members)
        placed = {id(one.epoch) for one in self._starts(members)}
        for name, one in members.items():
            for epoch, offset in one.unplaced:
                if offset and (epoch.was_sought or id(epoch) not in placed):
                    said = (
                        f"{name} committed {offset}, but its position then is unknown"
                    )
                    yield "A5", said
        if any(one.may_be_anew for one in self._starts(members)):
            said = (
                "the group counts generations from 1 again, perhaps without its commits"
            )
            yield from (("A4", said), ("A5", said), ("A6", said))
        grouped = self._grouped(members)
        if grouped:
            for check in _OF_THE_GROUP:
                yield check, grouped
        if unknown := self._unknown_holds():
            yield "G2", unknown

    def _unknown_holds(self) -> str:
        """Return why it is not known when the group was held; "" if it is."""
        control = self._settings.control
        if control is None or not control.is_about(self._case.group):
            for scope, holder in self._readings:
                return (
                    f"members read that {holder} held {scope}: only the control "
                    "topics say when (--control, or --history FILE)"
                )
            return ""
        if control.trouble:
            return control.trouble
        began = min((epoch.at for epoch in self._epochs()), default=math.inf)
        if began < control.since - self._settings.clock_skew:
            since = datetime.fromtimestamp(control.since, UTC)
            return (
                f"the control topics are complete since {since:%Y-%m-%d %H:%M:%SZ}, "
                "and the partition had an owner before"
            )
        return ""

    def _starts(self, members: Mapping[str, Replay]) -> Sequence[Start]:
        epochs = [epoch for one in members.values() for epoch in one.epochs]
        strays = [one.strays for one in members.values()]
        return starts_of(epochs, strays, self._settings.clock_skew)

    def _grouped(self, members: Mapping[str, Replay]) -> str:
        # Members that name a generation were in a group, but perhaps in different ones.
        if not self._case.group:
            for name, one in members.items():
                if any(epoch.is_numbered for epoch in one.epochs):
                    return f"{name} was in a group, but its journal does not name it"
        return ""

    def _findings(
        self, members: Mapping[str, Replay], holds: Iterable[Bounds]
    ) -> Iterator[Finding | tuple[str, str]]:
        case, is_drained = self._case, self._settings.is_drained
        for one in members.values():
            yield from one.findings()
        yield from _late_commits(members.values())
        epochs = [epoch for one in members.values() for epoch in one.epochs]
        starts, basis = self._starts(members), basis_of(epochs)
        yield from wrong_starts(case, starts, basis)
        yield from wrong_commits(case, starts, basis)
        yield from fleet.missing(case, members, self._acked, is_drained=is_drained)
        if is_drained:
            yield from fleet.not_done(case, members, self._acked)
        for bounds in holds:
            said = f"it is unknown what {bounds.span.scope} covers"
            is_sure = self._covers(bounds.span)
            for found in under_hold(case, members, bounds):
                yield found if is_sure else (found.check, f"{said}: {found.evidence}")


def _unseen_commits(members: Mapping[str, Replay]) -> Iterator[tuple[str, str]]:
    # Of a client that commits by itself nobody knows what is committed, and so neither
    # where the next owner was to begin.
    for name, one in members.items():
        if one.is_blind:
            said = f"{name} commits by itself, and its journal does not tell what"
            for check in ("A4", "A5", "A6", *(("W4",) if one.is_working else ())):
                yield check, said
            return


def _is_moot(one: Finding, unjudged: Mapping[str, str], moot: Container[str]) -> bool:
    is_open = one.check in moot and one.check in unjudged
    return is_open and one.check != "G2" and one.basis is not Basis.ORDER


def _is_of_the_old(one: Finding, until: float) -> bool:
    # Comparisons with offsets of the new topic prove nothing.
    return one.check not in OF_OFFSETS or (one.at is not None and one.at < until)


def _late_commits(members: Iterable[Replay]) -> Iterator[Finding]:
    # Wrong only if the generation that revoked the partition gave it to a member.
    members = list(members)
    given = frozenset[int]().union(*(one.generations for one in members))
    for one in members:
        for number, found in one.late:
            if number in given:
                yield evolve(found, basis=Basis.GENERATIONS)


class Court:
    """
    Judges all cases that journals are about, on one machine, in one pass.

    Args:
        settings: the assumptions.
        watch: called with the replay of a member after each fact that the replay has
            taken; it changes nothing. Pictures are drawn from what it sees.
    """

    def __init__(self, settings: Settings, watch: Watch | None = None) -> None:
        self._settings = settings
        self._watch = watch
        self._trials: dict[Address, Trial] = {}
        self._written: dict[Address, fleet.Acknowledged] = {}

    def hear(self, journal: Source) -> None:
        """
        Take a whole journal.

        Raises:
            JournalError: it is broken somewhere; the entries before that count, but
                they prove nothing.
        """
        for address, fact in facts(journal):
            self.take(address, fact)

    def take(self, address: Address, fact: Fact) -> None:
        """Take one fact; those of a member and address come in order."""
        if address.group is None:
            self._written.setdefault(address, fleet.Acknowledged()).add(fact)
            return
        known = self._trials.get(address)
        if known is None:
            known = Trial(address, self._settings, self._watch)
            self._trials[address] = known
        known.take(fact)

    def verdicts(self) -> dict[Address, Verdict]:
        """Return the verdict on each case, once all journals were taken."""
        found: dict[Address, Verdict] = {}
        known = [*self._trials, *self._written]
        written = written_to(known)
        for case, needed in docket(known).items():
            trial = self._trials.get(case) or Trial(case, self._settings)
            for address in needed:
                if address in self._written:
                    trial.share(self._written[address])
            found[case] = trial.verdict(written)
        return found


def check(
    journals: Iterable[Source], settings: Settings | None = None
) -> dict[Address, Verdict]:
    """
    Return the verdict on every group and partition that the journals name.

    Args:
        journals: the journals of all members and producers.
        settings: the assumptions.

    Raises:
        JournalError: a journal is broken somewhere.
    """
    court = Court(settings or Settings())
    for journal in journals:
        court.hear(journal)
    return court.verdicts()


def findings_of(
    verdicts: Mapping[Address, Verdict],
) -> dict[TopicPartition, tuple[Finding, ...]]:
    """Return the findings about each partition, in any group."""
    found: dict[TopicPartition, tuple[Finding, ...]] = {}
    for case, verdict in verdicts.items():
        tp = case.topic, case.partition
        found[tp] = *found.get(tp, ()), *verdict.findings
    return found
