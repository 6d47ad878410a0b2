"""
What members did together with one partition: S2, G2, L1, W5 and W10 of the fleet.

What one member's own journal proves is judged where it is followed (``replay.py``).
Here journals of several hosts are laid side by side: by offsets where these tell, else
by clocks, which may differ by the allowance. A moment of one host is before another's
only if it is so by more than that.
"""

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, pairwise

from attrs import define, evolve, field, frozen

from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.holding import Key
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.replay import Heard, Let, Replay, Waited
from safeconsumer.audit.spans import Span as Stretch
from safeconsumer.audit.spans import Spans, between, merged, uncovered

Members = Mapping[str, Replay]

# Brokers tell the time in whole milliseconds.
_ROUNDED = 0.001


# ---------------------------------------------------------------- what was written


@define
class Acknowledged:
    """
    Records that producers were told of, or that were found in a topic.

    Attributes:
        told: which, by who tells of them, without their times.
    """

    told: dict[str, Spans] = field(factory=dict)
    _last: "array[int]" = field(factory=lambda: array("q"))
    _at: "array[float]" = field(factory=lambda: array("d"))
    # Made when they are asked for first.
    _times: "_Least | None" = None
    _offsets: "_Least | None" = None

    def add(self, fact: Fact) -> None:
        """
        Take note of a run.
        """
        known = self.told.setdefault(fact.member, Spans())
        known.add(fact["first"], fact["last"] + 1)
        self._times = self._offsets = None
        if self._at and self._at[-1] == fact.at:  # one look at a topic
            self._last[-1] = max(self._last[-1], fact["last"])
        else:
            self._last.append(fact["last"])
            self._at.append(fact.at)

    @property
    def runs(self) -> Iterator[Stretch]:
        """
        Which, without their times.
        """
        return chain.from_iterable(self.told.values())

    def time_of(self, offset: int) -> float | None:
        """
        Return a moment at which a record was there; None if nobody tells.

        A log is written in the order of its offsets, so every later one tells, too.
        """
        if self._times is None:
            self._times = _Least("qd", self._last, self._at)
        return self._times.at_or_after(offset)

    def next_after(self, at: float) -> int | None:
        """
        Return an offset that was written after a moment; None if only others were.

        Where nothing was written at all, the first.
        """
        if not self._last:
            return 0
        if self._offsets is None:
            self._offsets = _Least("dq", self._at, self._last)
        found = self._offsets.at_or_after(math.nextafter(at, math.inf))
        return None if found is None else int(found)


class _Least:
    """
    Finds the least value of all keys from one on, without looking at each.
    """

    def __init__(
        self, kinds: str, keys: Sequence[float], values: Sequence[float]
    ) -> None:
        pairs = sorted(zip(keys, values, strict=True))
        self._keys = array(kinds[0], (key for key, _ in pairs))
        least = accumulate((value for _, value in reversed(pairs)), min)
        self._least = array(kinds[1], least)[::-1]

    def at_or_after(self, key: float) -> float | None:
        found = bisect_left(self._keys, key)
        return self._least[found] if found < len(self._least) else None


def missing(
    case: Address, members: Members, acknowledged: Acknowledged, *, is_drained: bool
) -> Iterator[Finding]:
    """
    Yield what nobody delivered (S2).

    Members of no group share nothing: each is to deliver what lies between its first
    record and its last; together they are to have everything, once drained.
    What a seek passed over is missing, too: only the program knows whether it may be.
    """
    if not case.group and not is_drained:
        for member in members.values():
            yield from _missing(case, [member], acknowledged, is_drained=False)
    else:
        yield from _missing(case, members.values(), acknowledged, is_drained=is_drained)


def _missing(
    case: Address,
    members: Iterable[Replay],
    acknowledged: Acknowledged,
    *,
    is_drained: bool,
) -> Iterator[Finding]:
    epochs = [epoch for one in members for epoch in one.epochs]
    written = merged(acknowledged.runs)
    if not written:
        # Where an ownership went on, nobody can tell a record from what never was one.
        passed = merged((run.start, run.end) for one in epochs for run in one.runs)
        for (_, end), (start, _) in pairwise(passed):
            said = f"nobody delivered offsets {end} to {start - 1}"
            yield _of_offsets("S2", case, end, said)
        return
    covered = merged(span for one in epochs for span in one.came)
    if not is_drained:
        # What lies before the first delivery may have been read before there were
        # journals, what lies after the last one may still come, unless the position
        # went over it and that is committed.
        if not covered:
            return
        over = (min(one.sure[1], one.end) for one in epochs if one.sure is not None)
        written = between(written, covered.starts[0], max(covered.ends[-1], *over, 0))
    for start, end in uncovered(written, covered):
        said = f"nobody delivered acknowledged offsets {start} to {end - 1}"
        yield _of_offsets("S2", case, start, said)


def not_done(
    case: Address, members: Members, acknowledged: Acknowledged
) -> Iterator[Finding]:
    """
    Yield what no handler completed (W5), where there are workers.

    Who is no worker did what a poll returned, as far as journals tell.
    """
    parts = list(members.values())
    if not any(one.is_working for one in parts):
        return
    spans = [span for one in parts for span in one.handled.done]
    plain = [epoch for one in parts if not one.is_working for epoch in one.epochs]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.came)])
    workers = [epoch for one in parts if one.is_working for epoch in one.epochs]
    came = (span for epoch in workers for span in epoch.came)
    for start, end in uncovered(merged([*acknowledged.runs, *came]), covered):
        said = f"nobody completed offsets {start} to {end - 1}"
        yield _of_offsets("W5", case, start, said)


# ---------------------------------------------------------------- resumes


def slow_resumes(
    case: Address,
    members: Members,
    acknowledged: Acknowledged,
    patience: float,
    skew: float,
) -> Iterator[Finding | tuple[str, str]]:
    """
    Yield resumes after which what was there did not come (L1), or why that is unknown.

    When a record was appended is told by the broker, by its time, or by who was told
    that a record at that offset or a later one is there. A producer's own time for it
    can only excuse: events are dated as their producer likes.
    """
    if not any(one.waits for one in members.values()):
        return
    reached = _Reached(members.values())
    for member, one in members.items():
        for wait in one.waits:
            offset = _expected(wait, reached, acknowledged, skew)
            if offset is None:
                yield "L1", "nobody tells from where on what was resumed was to be read"
                continue
            there = _appended(wait, offset, acknowledged)
            known = -math.inf if there is None else there + skew
            if wait.until - max(wait.resumed, known) <= patience:
                continue
            created = -math.inf if wait.created is None else wait.created + skew
            if wait.until - max(wait.resumed, created) <= patience:
                continue
            if there is None:
                if wait.is_delivered:
                    said = "nobody tells when records that came late were appended"
                    yield "L1", said
                continue
            waited = wait.until - max(wait.resumed, known)
            what = "" if wait.is_delivered else ", and nothing came"
            said = f"{waited:.1f} s and {wait.polls} polls after the resume{what}"
            yield Finding(
                check="L1",
                case=case,
                member=member,
                offset=offset,
                evidence=f"entry {wait.entry}: {said}",
                basis=Basis.CLOCKS if there > wait.resumed - skew else Basis.TIME,
                at=wait.until,
                entry=wait.entry,
            )


class _Reached:
    """
    How far members had come, or had committed, in ownerships that began before.
    """

    def __init__(self, members: Iterable[Replay]) -> None:
        epochs = [epoch for one in members for epoch in one.epochs]
        epochs.sort(key=lambda one: one.at)
        self._at = [one.at for one in epochs]
        most = (max(one.commits.most, one.end) for one in epochs)
        self._most = list(accumulate(most, max))

    def before(self, at: float) -> int:
        found = bisect_left(self._at, at)
        return self._most[found - 1] if found else -1


def _expected(
    wait: Waited, reached: _Reached, acknowledged: Acknowledged, skew: float
) -> int | None:
    # Where nothing came in an ownership, it was to begin no later than what others had
    # before, and no later than what was written once it was resumed.
    if wait.offset is not None:
        return wait.offset
    most = -1 if wait.was_sought else reached.before(wait.resumed - skew)
    return most if most >= 0 else acknowledged.next_after(wait.resumed + skew)


def _appended(wait: Waited, offset: int, acknowledged: Acknowledged) -> float | None:
    if wait.written is not None:
        return wait.written
    return acknowledged.time_of(offset)


# ---------------------------------------------------------------- holds of operators


@frozen(kw_only=True)
class Span:
    """
    A hold of the group, by the clock of who placed it.

    Attributes:
        scope: what it covers.
        owner: whose it is.
        source: who may place such holds, operators or the group; None: not told.
        start: when it was acknowledged.
        end: until when it was surely in force: before any lift of it, whether that was
            done or not, and before it expires; ``inf`` if neither is told.
        latest: until when it may have been.
        is_limited: whether it is told when it expires.
        is_sure: whether it was acknowledged; if not, it was asked for at ``start``, and
            nobody knows what came of it.
    """

    scope: str
    owner: str
    source: str | None = None
    start: float
    end: float
    latest: float
    is_limited: bool
    is_sure: bool = True


def spans_of(control: Sequence[Fact], members: Members, skew: float) -> list[Span]:
    """
    Return when holds of the group were in force.

    A lift ends each hold of its scope and owner that may have been placed before it: in
    the same journal by the order of entries, else by clocks. A hold that is placed
    again has the limit that it was given last.

    Where nobody knows of a lift but the members that heard of it, because it was done
    by a command that keeps no journal, nothing is known for sure of that hold.
    """
    words = _Words(control)
    heard = [one for part in members.values() for one in part.lifted]
    return [
        _span(hold, words, heard, skew)
        for hold in sorted(words.holds, key=lambda one: one.at)
    ]


class _Words:
    """
    What those say who place and lift holds of the group.

    Attributes:
        holds: that were acknowledged, and those of which nobody knows whether.
        lifts: that were asked for, and were not refused.
        unknown: of all these, those of which nobody tells what came of it.
    """

    def __init__(self, control: Sequence[Fact]) -> None:
        over = outcomes(control)
        asked = [one for one in control if one.event in _ASKED]
        open_ = [
            one for one in asked if call_of(one) not in over and one["id"] is not None
        ]
        refused = {key for key, one in over.items() if one.event == "group-refused"}
        self.holds = [one for one in control if one.event == "group-hold"]
        self.holds += (one for one in open_ if one.event == "group-asked")
        self.lifts = [
            one
            for one in asked
            if one.event == "group-lift" and call_of(one) not in refused
        ]
        self.unknown = open_

    def is_known(self, one: Fact) -> bool:
        return one not in self.unknown


# What is written before the broker is asked.
_ASKED = frozenset({"group-asked", "group-lift"})


def outcomes(control: Iterable[Fact]) -> dict[object, Fact]:
    """
    Return what came of each call that has an id, where that is told.
    """
    return {
        call_of(one): one
        for one in control
        if one["id"] is not None and one.event not in _ASKED
    }


def call_of(one: Fact) -> object:
    """
    Return which call of an operator an entry is about.
    """
    return one.member, one["id"], one["scope"], one["owner"]


def _span(
    hold: Fact, words: _Words, heard: Iterable[tuple[Key, float]], skew: float
) -> Span:
    again = [one for one in words.holds if _is_next(hold, one, skew)]
    lifts = [one for one in words.lifts if _is_next(hold, one, skew)]
    failed = [one for one in lifts if one["ok"] is False]
    asked = [one for one in lifts if one["ok"] is not False]
    undone = [*_undone(asked, failed), *words.unknown]
    done = [one.at for one in asked if one not in undone]
    limited = [one for one in (hold, *again) if one["until"] is not None]
    limits = [one["until"] for one in limited]
    sure = [one["until"] for one in limited if one is hold or words.is_known(one)]
    span = Span(
        scope=hold["scope"],
        owner=hold["owner"] or "",
        source=hold["source"],
        start=hold.at,
        end=min([*(one.at for one in asked), *limits], default=math.inf),
        latest=min([*done, *sure], default=math.inf),
        is_limited=hold["until"] is not None,
        is_sure=words.is_known(hold),
    )
    next_ = min((one.at for one in again if words.is_known(one)), default=math.inf)
    is_lifted = min(done, default=math.inf) <= next_ and done
    others = (at for key, at in heard if _is_of(span, key))
    is_unseen = any(span.start - skew <= at < next_ for at in others)
    if not span.is_sure or (not is_lifted and is_unseen):
        return evolve(span, end=span.start)
    return span


def misdated(control: Sequence[Fact], skew: float) -> str:
    """
    Return why what operators say cannot be compared with clocks; "" if it can.

    The broker's time of a record lies between the asking and the answer: else its clock
    and the operator's differ by more than they may. So do those of two processes that
    one journal shows one after the other, where the second begins before.
    """
    over = outcomes(control)
    for asked in control:
        answer = over.get(call_of(asked)) if asked.event in _ASKED else None
        written = None if answer is None else answer["written"]
        if answer is None or written is None:
            continue
        by = max(asked.at - written, written - answer.at)
        if by > skew + _ROUNDED:
            return f"the clocks of {asked.member} and the broker differ{_by(by, skew)}"
    for one, next_ in pairwise(
        sorted(control, key=lambda one: (one.member, one.number))
    ):
        if one.member == next_.member and one.at - next_.at > skew + _ROUNDED:
            return f"the clock of {one.member} went back{_by(one.at - next_.at, skew)}"
    return ""


def _by(seconds: float, skew: float) -> str:
    return f" by {seconds:.3f} s or more, and {skew:g} s are allowed"


def _undone(asked: Sequence[Fact], failed: Iterable[Fact]) -> list[Fact]:
    # Lifts that failed, as far as who asked for them can tell.
    found: list[Fact] = []
    for end in failed:
        own = [one for one in asked if one.member == end.member]
        found += [one for one in own if one.number < end.number][-1:]
    return found


def _is_next(hold: Fact, other: Fact, skew: float) -> bool:
    names = {one["source"] for one in (hold, other)} - {None}
    same = (hold["scope"], hold["owner"]) == (other["scope"], other["owner"])
    return same and len(names) <= 1 and _may_follow(hold, other, skew)


def _may_follow(hold: Fact, other: Fact, skew: float) -> bool:
    if hold.member == other.member:
        return other.number > hold.number
    return other.at >= hold.at - skew


def though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding | tuple[str, str]]:
    """
    Yield what was done under holds of the group, or why a check cannot tell (G2).

    It cannot where a hold may have been lifted and may not, or placed and may not.
    """
    sure = list(_though_held(case, members, spans, patience, skew))
    yield from sure
    known = {one.check for one in sure}
    for is_sure, what in ((True, "when it was lifted"), (False, "whether it was held")):
        several = [
            evolve(one, end=one.latest) for one in spans if one.is_sure is is_sure
        ]
        for one in _though_held(case, members, several, patience, skew):
            if one.check not in known:
                yield one.check, f"nobody tells {what}: {one.evidence}"


def _though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    yield from delivered_though_held(case, members, spans, skew)
    yield from delivered_long_after(case, members, spans, patience, skew)
    yield from taken_for_lifted(case, members, spans, skew)
    yield from begun_though_held(case, members, spans, patience, skew)


def binds(span: Span, epoch: Epoch, skew: float) -> bool:
    """
    Tell whether an ownership surely began under a hold of the group.
    """
    return epoch.owned_since > span.start + skew


def delivered_though_held(
    case: Address, members: Members, spans: Sequence[Span], skew: float
) -> Iterator[Finding]:
    """
    Yield deliveries from ownerships that began after a hold was acknowledged (G2).
    """
    epochs = [epoch for one in members.values() for epoch in one.epochs]
    for epoch in sorted(epochs, key=lambda one: one.at):
        for span in spans:
            late = [run for run in epoch.runs if run.at < span.end - skew]
            if binds(span, epoch, skew) and late:
                said = f"delivered though {span.scope} was held for the group before"
                yield Finding(
                    check="G2",
                    case=case,
                    member=epoch.member,
                    offset=late[0].start,
                    evidence=said,
                    basis=Basis.CLOCKS,
                    at=epoch.delivered_at,
                )
                break


def delivered_long_after(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    """
    Yield deliveries of members that owned the partition before it was held (G2).

    They may go on until they hear of it, for as long as patience allows. From then on
    their own journals tell (S1).
    """
    for member, part in members.items():
        for span in spans:
            first = _delivered_unheard(part, span, patience, skew)
            if first is not None:
                at, offset = first
                said = (
                    f"delivered {offset} {at - span.start:.1f} s after {span.scope} "
                    "was held for the group"
                )
                yield _by_clocks("G2", case, member, first, said)


def _delivered_unheard(
    part: Replay, span: Span, patience: float, skew: float
) -> tuple[float, int] | None:
    known = (one.at for one in part.heard if _is_of(span, one.key))
    heard = min((at for at in known if at >= span.start - skew), default=math.inf)
    start, end = span.start + patience + skew, min(span.end - skew, heard)
    bound = [one for one in part.epochs if binds(span, one, skew)]
    for at, offset in part.delivered.between(start, end):
        if not any(one.at <= at <= one.over for one in bound):
            return at, offset
    return None


def taken_for_lifted(
    case: Address, members: Members, spans: Sequence[Span], skew: float
) -> Iterator[Finding]:
    """
    Yield what members did that took a hold of the group for lifted too early.

    S1 for deliveries, W10 for handlers. That it was lifted is what the member says;
    what counts is when its operator did.
    """
    for member, one in members.items():
        for let in one.let_go:
            span = next((span for span in spans if _is_early(let, span, skew)), None)
            if span is not None:
                done = "began" if let.check == "W10" else "delivered"
                what = let.offset if let.check == "W10" else let.count
                said = (
                    f"{done} {what} while {let.scope} was held by {let.owner}: "
                    "it was taken for lifted"
                )
                yield Finding(
                    check=let.check,
                    case=case,
                    member=member,
                    offset=let.offset,
                    evidence=f"entry {let.entry}: {said}",
                    basis=Basis.CLOCKS,
                    at=let.delivered,
                    entry=let.entry,
                )


def _is_early(let: Let, span: Span, skew: float) -> bool:
    return was_in_force(span, let, skew) and let.delivered < span.end - skew


def was_in_force(span: Span, let: Let, skew: float) -> bool:
    """
    Tell whether a hold of the group is the one that a member let go too early.

    It was too early if the span lasts beyond that.
    """
    is_same = _is_of(span, (let.scope, let.owner))
    if not is_same or (let.is_expired and not span.is_limited):
        return False
    return span.start + skew < let.ended


def unknown_holds(
    heard: Iterable[Heard], spans: Sequence[Span], near: float
) -> Iterator[Heard]:
    """
    Yield the holds from elsewhere that a member heard of and no operator tells of.

    What it heard of after an end of the one before is another hold, and wants another
    word of an operator: one of them may have been placed by who keeps no journal.

    Args:
        heard: by the member, in order.
        spans: holds that operators' journals tell of.
        near: seconds between what they say and what a member hears.
    """
    turns: dict[Key, list[Heard]] = {}
    for one in heard:
        turns.setdefault(one.key, []).append(one)
    for key, own in turns.items():
        free = sorted(
            (one for one in spans if _is_of(one, key)), key=lambda one: one.latest
        )
        for _, several in groupby(own, key=lambda one: one.ends):
            used: list[Span] = []
            for one in several:
                about = next(
                    (
                        span
                        for span in (*used, *free)
                        if span.start - near <= one.at <= span.latest + near
                    ),
                    None,
                )
                if about is None:
                    yield one
                elif about not in used:
                    used.append(about)
            free = [span for span in free if span not in used]


def _is_of(span: Span, heard: Key) -> bool:
    # Members name an operator's holds operator:alice, the group's own group:app.
    scope, owner = heard
    source, _, name = owner.partition(":")
    is_same = (scope, name) == (span.scope, span.owner)
    return is_same and span.source in {None, source}


def begun_though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    """
    Yield handlers that began long after a hold that their member never heard of (W10).

    What a member's own journal says is judged without clocks.
    """
    for member, part in members.items():
        for span in spans:
            begun = part.handled.begun
            late = begun.between(span.start + patience + skew, span.end - skew)
            first = next(late, None)
            if first is not None:
                at, offset = first
                said = (
                    f"began {offset} {at - span.start:.1f} s after {span.scope} was "
                    "held for the group"
                )
                yield _by_clocks("W10", case, member, first, said)


def _by_clocks(
    check: str, case: Address, member: str, first: tuple[float, int], evidence: str
) -> Finding:
    at, offset = first
    return Finding(
        check=check,
        case=case,
        member=member,
        offset=offset,
        evidence=evidence,
        basis=Basis.CLOCKS,
        at=at,
    )


def _of_offsets(check: str, case: Address, offset: int, evidence: str) -> Finding:
    return Finding(
        check=check,
        case=case,
        member="",
        offset=offset,
        evidence=evidence,
        basis=Basis.OFFSETS,
    )
