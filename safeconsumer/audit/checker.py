"""
The reference checker: all members' journals about one partition, judged together.

S1 nothing delivered while held; S2 nothing lost; S3 no gap within an ownership; S4 no
step back within one, and none begins after what was committed; S5 nothing committed
that was not delivered; S6 what comes twice was not committed; S7 ``paused()`` is what
the holds say; S8 parked data is bounded; L1 a resume resumes; G2 nothing delivered from
an ownership that began after a group hold was acknowledged.

Of workers, whose handlers write themselves down: W4 nothing committed beyond what is
complete; W5 every record is complete in the end, once per ownership; W7 one record of a
lane at a time, in order; W10 no handler begins on what is held.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import frozen

from safeconsumer.audit.facts import Address, Fact, docket, facts
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.journal import Source
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.reading import TopicPartition, covering
from safeconsumer.audit.replay import Replay
from safeconsumer.audit.spans import Spans, holes, merged

CHECKS = (
    *("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "L1", "G2"),
    *("W4", "W5", "W7", "W10"),
)

Told = Iterable[tuple[Address, Fact]]


@frozen(kw_only=True)
class Settings:
    """
    What the checker may assume.

    Attributes:
        patience: seconds for L1, and for an operator's hold to reach those who own the
            partition already (W10).
        clock_skew: seconds by which two members' clocks may differ.
        is_drained: whether everything that was acknowledged should have been delivered,
            and handled where there are workers.
    """

    patience: float = 5.0
    clock_skew: float = 0.0
    is_drained: bool = False


@frozen(kw_only=True)
class _Span:
    start: float
    end: float
    scope: str


@frozen(kw_only=True)
class Verdict:
    """
    What is found of one case.

    Attributes:
        case: the consumer group and the partition.
        findings: every broken promise.
    """

    case: Address
    findings: tuple[Finding, ...]


def judge(case: Address, told: Iterable[Fact], settings: Settings) -> Verdict:
    """
    Judge one partition of one consumer group by what all journals say of it.

    Pure, and the only judgement there is: whoever reads journals, from wherever, ends
    here.

    Args:
        case: the group and the partition.
        told: the facts of its own address and of those that :func:`docket` names for
            it; of each member in the order of its numbers, the members in any order.
        settings: what may be assumed.

    Raises:
        JournalError: an operator's hold has a scope that cannot be read.
    """
    trial = Trial(case, settings)
    for fact in told:
        trial.take(fact)
    return trial.verdict()


class Trial:
    """
    :func:`judge` for whoever has facts one by one, and many cases at a time.

    Memory grows with ownerships, commits, and gaps between what was delivered; not with
    records.
    """

    def __init__(self, case: Address, settings: Settings) -> None:
        self._case = case
        self._settings = settings
        self._members: dict[str, Replay] = {}
        self._acknowledged = Spans()
        self._control: list[Fact] = []

    def take(self, fact: Fact) -> None:
        """
        Hear one fact; of a member, each after those before it.

        Raises:
            JournalError: an operator's hold has a scope that cannot be read.
        """
        if fact.event == "acked":
            self._acknowledged.add(fact["first"], fact["last"] + 1)
        elif fact.event in {"group-hold", "group-lift"}:
            if covering(fact["scope"])((self._case.topic, self._case.partition)):
                self._control.append(fact)
        else:
            known = self._members.get(fact.member)
            if known is None:
                known = Replay(self._case, self._settings.patience)
                self._members[fact.member] = known
            known.take(fact)

    def verdict(self) -> Verdict:
        """
        Return what is found, once all facts were taken.
        """
        return Verdict(case=self._case, findings=tuple(self._findings()))

    def _findings(self) -> Iterator[Finding]:
        case, settings = self._case, self._settings
        members = dict(sorted(self._members.items()))
        parts = list(members.values())
        epochs = sorted(
            (epoch for one in parts for epoch in one.epochs if epoch.runs),
            key=lambda epoch: epoch.at,
        )
        commits = sorted(one for part in parts for one in part.commits)
        acknowledged = merged(self._acknowledged)
        for one in parts:
            yield from one.findings()
        given = frozenset[int]().union(*(one.generations for one in parts))
        for one in parts:
            yield from (found for number, found in one.late if number in given)
        yield from _starts(case, epochs, commits)
        yield from _missing(case, epochs, acknowledged, settings)
        yield from _group_holds(case, epochs, self._control, settings)
        yield from _begun_late(case, members, self._control, settings)
        if settings.is_drained and any(one.is_working for one in parts):
            yield from _not_done(case, parts, acknowledged)


class Court:
    """
    Judges all cases that journals are about, on one machine, in one pass.

    Args:
        settings: what may be assumed.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._trials: dict[Address, Trial] = {}
        # What concerns several cases, some of which may be heard of later.
        self._shared: dict[Address, list[Fact]] = {}

    def hear(self, journal: Source) -> None:
        """
        Take a whole journal.

        Raises:
            JournalError: it is broken somewhere; what comes before that counts, and
                proves nothing.
        """
        for address, fact in facts(journal):
            self.take(address, fact)

    def take(self, address: Address, fact: Fact) -> None:
        """
        Hear one fact; of a member and address, each after those before it.

        Raises:
            JournalError: an operator's hold has a scope that cannot be read.
        """
        if not address.is_case:
            self._shared.setdefault(address, []).append(fact)
            return
        known = self._trials.get(address)
        if known is None:
            known = self._trials[address] = Trial(address, self._settings)
        known.take(fact)

    def verdicts(self) -> dict[Address, Verdict]:
        """
        Return the verdict on each case, once all journals were heard.
        """
        found: dict[Address, Verdict] = {}
        for case, needed in docket([*self._trials, *self._shared]).items():
            trial = self._trials.get(case) or Trial(case, self._settings)
            for address in sorted(needed & self._shared.keys(), key=_order):
                for fact in self._shared[address]:
                    trial.take(fact)
            found[case] = trial.verdict()
        return found


def check(
    journals: Iterable[Source], settings: Settings | None = None
) -> dict[Address, Verdict]:
    """
    Return the verdict on every group and partition that the journals name.

    Args:
        journals: those of all members, producers and operators.
        settings: what may be assumed.

    Raises:
        JournalError: one is broken somewhere.
    """
    court = Court(settings or Settings())
    for journal in journals:
        court.hear(journal)
    return court.verdicts()


def findings_of(
    verdicts: Mapping[Address, Verdict],
) -> dict[TopicPartition, tuple[Finding, ...]]:
    """
    Return what is found of each partition, whatever the group.
    """
    found: dict[TopicPartition, tuple[Finding, ...]] = {}
    for case, verdict in verdicts.items():
        tp = case.topic, case.partition
        found[tp] = *found.get(tp, ()), *verdict.findings
    return found


def _order(address: Address) -> tuple[str, str, int]:
    return address.group or "", address.topic, address.partition


def _starts(
    case: Address,
    epochs: Sequence[Epoch],
    commits: Iterable[tuple[float, int, bool]],
) -> Iterator[Finding]:
    delivered = -math.inf
    waiting = deque(commits)
    before: Epoch | None = None
    last, most = None, -1  # committed for sure; and at the very most
    for epoch in _in_time(epochs):
        start = epoch.runs[0].start
        while waiting and waiting[0][0] <= epoch.at:
            _, offset, is_sure = waiting.popleft()
            last = offset if is_sure else last
            most = max(most, offset)
        is_kept = before is not None and _gave_back(before, epoch)
        before = epoch
        if last is not None and not epoch.was_sought and not is_kept:
            if start > most:
                said = f"an ownership began at {start}, {last} was committed"
                yield _finding("S4", case, epoch, last, said, Basis.CLOCKS)
            elif start < last and start < delivered:
                said = f"began again at {start}, {last} was committed"
                yield _finding("S6", case, epoch, start, said, Basis.CLOCKS)
        delivered = max(delivered, *(run.end for run in epoch.runs))


def _gave_back(before: Epoch, epoch: Epoch) -> bool:
    # What a rebalance gives back goes on where it was, committed or not. After a loss
    # the work on it may have been dropped.
    is_same = before.member == epoch.member and not before.was_lost
    return is_same and before.runs[-1].end == epoch.runs[0].start


def _in_time(epochs: Sequence[Epoch]) -> Iterator[Epoch]:
    # A member that was frozen while it joined may thaw into a generation that is over,
    # and deliver from it until it learns that: no client can know (contract, N). It
    # cannot commit there. Who can is in a group that began to count anew.
    newest = -1
    for epoch in epochs:
        generation = newest if epoch.generation is None else epoch.generation
        if generation >= newest or epoch.has_committed:
            newest = generation
            yield epoch


def _missing(
    case: Address,
    epochs: Sequence[Epoch],
    acknowledged: Sequence[tuple[int, int]],
    settings: Settings,
) -> Iterator[Finding]:
    if not acknowledged:
        # Where an ownership went on, nobody can tell a record from what never was one.
        passed = merged((run.start, run.end) for one in epochs for run in one.runs)
        for (_, end), (start, _) in pairwise(passed):
            said = f"nobody delivered offsets {end} to {start - 1}"
            yield _finding("S2", case, None, end, said, Basis.OFFSETS)
        return
    covered = merged(span for one in epochs for span in one.came)
    # What lies before the first delivery may have been read before there were journals,
    # what lies after the last one may still come.
    bottom, top = (covered[0][0], covered[-1][1]) if covered else (0, 0)
    for first, last in acknowledged:
        if settings.is_drained:
            bottom, top = first, last
        for start, end in holes(max(first, bottom), min(last, top), covered):
            said = f"nobody delivered acknowledged offsets {start} to {end - 1}"
            yield _finding("S2", case, None, start, said, Basis.OFFSETS)


def _group_holds(
    case: Address,
    epochs: Sequence[Epoch],
    control: Sequence[Fact],
    settings: Settings,
) -> Iterator[Finding]:
    spans = list(_spans(control))
    for epoch in epochs:
        for span in spans:
            began_after = epoch.owned_since > span.start + settings.clock_skew
            late = [
                run for run in epoch.runs if run.at < span.end - settings.clock_skew
            ]
            if began_after and epoch.at < span.end and late:
                said = f"delivered though {span.scope} was held for the group before"
                yield _finding("G2", case, epoch, late[0].start, said, Basis.CLOCKS)
                break


def _begun_late(
    case: Address,
    members: Mapping[str, Replay],
    control: Sequence[Fact],
    settings: Settings,
) -> Iterator[Finding]:
    # What a member's own journal says is judged without clocks. This is about one that
    # has never heard: compared are the time of the acknowledgement in the operator's
    # journal, and before the lift was asked for, with those of the member's starts.
    spans = list(_spans(control))
    for member, part in members.items():
        for span in spans:
            start = span.start + settings.patience + settings.clock_skew
            begun = part.handled.begun
            late = next(begun.between(start, span.end - settings.clock_skew), None)
            if late is not None:
                at, offset = late
                said = (
                    f"began {offset} {at - span.start:.1f} s after {span.scope} was "
                    f"held for the group"
                )
                yield Finding(
                    check="W10",
                    case=case,
                    member=member,
                    offset=offset,
                    evidence=said,
                    basis=Basis.CLOCKS,
                    at=at,
                )


def _not_done(
    case: Address, parts: Sequence[Replay], acknowledged: Sequence[tuple[int, int]]
) -> Iterator[Finding]:
    # Who is no worker does what a poll returned, as far as journals tell.
    spans = [span for one in parts for span in one.handled.done]
    plain = [epoch for one in parts if not one.is_working for epoch in one.epochs]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.came)])
    for first, last in acknowledged:
        for start, end in holes(first, last, covered):
            said = f"nobody completed acknowledged offsets {start} to {end - 1}"
            yield _finding("W5", case, None, start, said, Basis.OFFSETS)


def _spans(entries: Iterable[Fact]) -> Iterator[_Span]:
    began: dict[tuple[str, str], float] = {}
    for entry in sorted(entries, key=lambda one: one.at):
        key = entry["scope"], entry["owner"] or ""
        if entry.event == "group-hold":
            began.setdefault(key, entry.at)
        elif key in began:
            yield _Span(start=began.pop(key), end=entry.at, scope=key[0])
    for (scope, _), at in began.items():
        yield _Span(start=at, end=math.inf, scope=scope)


def _finding(  # noqa: PLR0913, PLR0917 - one parameter per field
    check: str,
    case: Address,
    epoch: Epoch | None,
    offset: int,
    evidence: str,
    basis: Basis,
) -> Finding:
    return Finding(
        check=check,
        case=case,
        member=epoch.member if epoch else "",
        offset=offset,
        evidence=evidence,
        basis=basis,
        at=epoch.delivered_at if epoch else None,
    )
