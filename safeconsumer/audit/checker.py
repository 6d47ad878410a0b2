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
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import evolve, field, frozen

from safeconsumer.audit.following import Follower
from safeconsumer.audit.handled import Begun
from safeconsumer.audit.journal import Entry, Source, tp_of
from safeconsumer.audit.ownerships import Commits, Epoch
from safeconsumer.audit.replay import Finding
from safeconsumer.audit.spans import Spans, holes, merged
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import TopicPartition

CHECKS = (
    *("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "L1", "G2"),
    *("W4", "W5", "W7", "W10"),
)


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
class Digest:
    """
    What one journal says about one partition, small enough to travel.

    Attributes:
        member: who wrote it.
        group: its consumer group.
        findings: what it broke by itself.
        epochs: its ownerships, with the runs that were delivered.
        commits: what it committed.
        acknowledged: runs that a producer wrote, both ends included.
        control: group holds placed and lifted; they may cover any partition.
        is_working: whether a worker's handlers got its records.
        begun: when handlers began, and on what.
        done: what was complete.
        late: commits after it departed, by the generation that took it away.
        generations: those in which it was gained.
    """

    member: str
    group: str
    findings: tuple[Finding, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    commits: Commits = field(factory=Commits)
    acknowledged: tuple[tuple[int, int], ...] = ()
    control: tuple[Entry, ...] = ()
    is_working: bool = False
    begun: Begun = field(factory=Begun)
    done: Spans = field(factory=Spans)
    late: tuple[tuple[int, Finding], ...] = ()
    generations: frozenset[int] = frozenset()


def digests(
    journal: Source, settings: Settings
) -> Iterator[tuple[TopicPartition | None, Digest]]:
    """
    Yield what a journal says about each partition it names; None: about all.

    Raises:
        JournalError: it is broken somewhere.
    """
    follower = Follower(settings.patience, journal.lifts()).follow(journal.entries)
    told = follower.replays.keys() | follower.acknowledged.keys()
    for name in sorted(told):
        replay = follower.replays.get(name)
        acknowledged = tuple(follower.acknowledged.get(name, ()))
        digest = Digest(
            member=journal.member, group=journal.group, acknowledged=acknowledged
        )
        if replay is not None:
            digest = evolve(
                digest,
                findings=tuple(replay.findings),
                epochs=tuple(epoch for epoch in replay.epochs if epoch.runs),
                commits=replay.commits,
                is_working=follower.is_working,
                begun=replay.handled.begun,
                done=replay.handled.done,
                late=tuple(replay.late),
                generations=frozenset(replay.generations),
            )
        yield tp_of(name), digest
    if follower.control:
        control = tuple(follower.control)
        yield None, Digest(member=journal.member, group=journal.group, control=control)


def judge(
    tp: TopicPartition, parts: Iterable[Digest], settings: Settings
) -> tuple[Finding, ...]:
    """
    Return every broken promise about one partition.

    Args:
        tp: the partition.
        parts: what all journals say about it, and what they say about all partitions.
        settings: what may be assumed.
    """
    parts = sorted(parts, key=lambda one: one.member)
    epochs = sorted(
        (epoch for one in parts for epoch in one.epochs), key=lambda epoch: epoch.at
    )
    commits = sorted(one for part in parts for one in part.commits)
    acknowledged = sorted(run for one in parts for run in one.acknowledged)
    findings = [found for one in parts for found in one.findings]
    given = frozenset[int]().union(*(one.generations for one in parts))
    findings += [
        found for one in parts for number, found in one.late if number in given
    ]
    findings += _starts(tp, epochs, commits)
    findings += _missing(tp, epochs, acknowledged, settings)
    findings += _group_holds(tp, epochs, parts, settings)
    findings += _begun_late(tp, parts, settings)
    if settings.is_drained and any(one.is_working for one in parts):
        findings += _not_done(tp, parts, acknowledged)
    return tuple(findings)


def check(
    journals: Iterable[Source], settings: Settings | None = None
) -> dict[TopicPartition, tuple[Finding, ...]]:
    """
    Return the broken promises about every partition that the journals name.

    Args:
        journals: those of all members, producers and operators.
        settings: what may be assumed.
    """
    settings = settings or Settings()
    told = (one for journal in journals for one in digests(journal, settings))
    return check_digests(told, settings)


def check_digests(
    told: Iterable[tuple[TopicPartition | None, Digest]], settings: Settings
) -> dict[TopicPartition, tuple[Finding, ...]]:
    """
    Return the broken promises about every partition that digests are about.
    """
    found: dict[TopicPartition, list[Digest]] = {}
    everywhere: list[Digest] = []
    for tp, digest in told:
        own = everywhere if tp is None else found.setdefault(tp, [])
        own.append(digest)
    return {
        tp: judge(tp, (*parts, *everywhere), settings)
        for tp, parts in sorted(found.items())
    }


def _starts(
    tp: TopicPartition,
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
                yield _finding("S4", tp, epoch, last, said)
            elif start < last and start < delivered:
                said = f"began again at {start}, {last} was committed"
                yield _finding("S6", tp, epoch, start, said)
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
    tp: TopicPartition,
    epochs: Sequence[Epoch],
    acknowledged: Sequence[tuple[int, int]],
    settings: Settings,
) -> Iterator[Finding]:
    if not acknowledged:
        # Where an ownership went on, nobody can tell a record from what never was one.
        passed = merged((run.start, run.end) for one in epochs for run in one.runs)
        for (_, end), (start, _) in pairwise(passed):
            said = f"nobody delivered offsets {end} to {start - 1}"
            yield _finding("S2", tp, None, end, said)
        return
    covered = merged(span for one in epochs for span in one.came)
    # What lies before the first delivery may have been read before there were journals,
    # what lies after the last one may still come.
    bottom, top = (covered[0][0], covered[-1][1]) if covered else (0, 0)
    for first, last in acknowledged:
        if settings.is_drained:
            bottom, top = first, last + 1
        for start, end in holes(max(first, bottom), min(last + 1, top), covered):
            said = f"nobody delivered acknowledged offsets {start} to {end - 1}"
            yield _finding("S2", tp, None, start, said)


def _group_holds(
    tp: TopicPartition,
    epochs: Sequence[Epoch],
    parts: Iterable[Digest],
    settings: Settings,
) -> Iterator[Finding]:
    entries = [
        entry
        for one in parts
        for entry in one.control
        if scopes.parse(entry["scope"]).covers(tp)
    ]
    groups = {one.member: one.group for one in parts}
    for epoch in epochs:
        own = [one for one in entries if one["group"] == groups[epoch.member]]
        for span in _spans(own):
            began_after = epoch.owned_since > span.start + settings.clock_skew
            late = [
                run for run in epoch.runs if run.at < span.end - settings.clock_skew
            ]
            if began_after and epoch.at < span.end and late:
                said = f"delivered though {span.scope} was held for the group before"
                yield _finding("G2", tp, epoch, late[0].start, said)
                break


def _begun_late(
    tp: TopicPartition, parts: Sequence[Digest], settings: Settings
) -> Iterator[Finding]:
    # What a member's own journal says is judged without clocks. This is about one that
    # has never heard: compared are the time of the acknowledgement in the operator's
    # journal, and before the lift was asked for, with those of the member's starts.
    control = [entry for one in parts for entry in one.control]
    for part in parts:
        own = [
            entry
            for entry in control
            if entry["group"] == part.group and scopes.parse(entry["scope"]).covers(tp)
        ]
        for span in _spans(own):
            start = span.start + settings.patience + settings.clock_skew
            late = next(part.begun.between(start, span.end - settings.clock_skew), None)
            if late is not None:
                at, offset = late
                said = (
                    f"began {offset} {at - span.start:.1f} s after {span.scope} was "
                    f"held for the group"
                )
                yield Finding(
                    check="W10",
                    partition=tp,
                    member=part.member,
                    offset=offset,
                    evidence=said,
                    at=at,
                )


def _not_done(
    tp: TopicPartition, parts: Sequence[Digest], acknowledged: Sequence[tuple[int, int]]
) -> Iterator[Finding]:
    # Who is no worker does what a poll returned, as far as journals tell.
    spans = [span for one in parts for span in one.done]
    plain = [epoch for one in parts if not one.is_working for epoch in one.epochs]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.came)])
    for first, last in acknowledged:
        for start, end in holes(first, last + 1, covered):
            said = f"nobody completed acknowledged offsets {start} to {end - 1}"
            yield _finding("W5", tp, None, start, said)


def _spans(entries: Iterable[Entry]) -> Iterator[_Span]:
    began: dict[tuple[str, str], float] = {}
    for entry in sorted(entries, key=lambda one: one.at):
        key = entry["scope"], entry["owner"] or ""
        if entry.event == "group-hold":
            began.setdefault(key, entry.at)
        elif key in began:
            yield _Span(start=began.pop(key), end=entry.at, scope=key[0])
    for (scope, _), at in began.items():
        yield _Span(start=at, end=math.inf, scope=scope)


def _finding(
    check: str, tp: TopicPartition, epoch: Epoch | None, offset: int, evidence: str
) -> Finding:
    return Finding(
        check=check,
        partition=tp,
        member=epoch.member if epoch else "",
        offset=offset,
        evidence=evidence,
        at=epoch.delivered_at if epoch else None,
    )
