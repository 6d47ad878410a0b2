"""
Finds when holds of a group were in force, from the entries of operators' calls.

Each call has two entries: the request, and its outcome. The control record is appended
in between. So one call is certainly before another if it was answered before the other
was asked for: by the order of entries in one journal, otherwise by clocks, which may
differ by the allowance. If two calls overlap, their places in the control topic or the
broker's times give the order; without these it is unknown.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from itertools import pairwise

from attrs import define, evolve, frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.holding import Key
from safeconsumer.audit.replay import Replay

# Brokers report times in whole milliseconds.
_ROUNDED = 0.001

# Seconds after the request within which an unanswered record is appended, if at all.
# The writer waits for 10.5 s (_WRITE_TIMEOUT of group/operator.py), and then is gone.
_PENDING = 30.0

# Of group/noting.py and audit/journaling.py: uuid4().hex[:12].
_UNIQUE = re.compile("[0-9a-f]{12}")

# The events that are written before the broker is asked.
_ASKED = frozenset({"group-asked", "group-lift"})


@frozen(kw_only=True)
class Span:
    """
    A hold of the group, by the clock of the operator who placed it.

    Attributes:
        scope: its scope.
        owner: its owner.
        source: who may place such holds, operators or the group; None if unknown.
        asked: when it was asked for; members may read it from then on.
        start: when it was acknowledged.
        end: until when it was certainly in force: before any lift of it, whether that
            was done or not, and before it expires; ``inf`` if neither is known.
        latest: until when it may have been in force.
        is_limited: whether it is known when it expires.
        is_lifted: whether there is a lift, done or not, perhaps of another hold.
        is_sure: whether it was acknowledged; if not, it was asked for at ``start``, and
            the outcome is unknown.
        episode: a number that is the same for holds of which each was placed while the
            previous one was in force.
    """

    scope: str
    owner: str
    source: str | None = None
    asked: float
    start: float
    end: float
    latest: float
    is_limited: bool
    is_lifted: bool = False
    is_sure: bool = True
    episode: int = 0

    def is_of(self, heard: Key) -> bool:
        """
        Return whether a member means this hold by that name.

        Members name an operator's holds operator:alice, and the group's own group:app.
        """
        scope, owner = heard
        source, _, name = owner.partition(":")
        is_same = (scope, name) == (self.scope, self.owner)
        return is_same and self.source in {None, source}

    def if_held(self) -> "Span":
        """Return it for a partition of which it is unknown whether the scope covers it."""
        return evolve(self, end=self.start, is_sure=False)


def spans_of(
    control: Iterable[Fact],
    members: Iterable[Replay],
    patience: float,
    skew: float,
) -> list[Span]:
    """
    Return when holds of the group were in force.

    A lift ends each hold of its scope and owner that was placed before it; if the order
    of the two is unknown, it is unknown whether that hold is in force. A hold that is
    placed again has the limit that it was given last.

    If only members' journals show a lift, because a command without a journal did it,
    nothing is certain about that hold.

    Args:
        control: operators' entries about the group's holds.
        members: the members' replays.
        patience: seconds within which members read a hold or a lift.
        skew: seconds by which two clocks may differ.
    """
    members = list(members)
    found: list[Span] = []
    for calls in _calls(control).values():
        lines: dict[str | None, _Line] = {}
        for hold in calls:
            if hold.is_hold:
                line = lines.get(hold.source)
                if line is None:
                    own = [one for one in calls if one.is_of(hold.source)]
                    line = _Line(own, members, patience, skew)
                    lines[hold.source] = line
                found.append(line.span(hold))
    return sorted(found, key=lambda one: one.start)


def misdated(control: Sequence[Fact], skew: float) -> str:
    """
    Return why operators' entries cannot be compared by clocks; "" if they can.

    The broker's time of a record must lie between the request and the answer; otherwise
    its clock and the operator's differ by more than is allowed. The same is true of two
    processes in one journal if the later one seems to begin first. The allowance covers
    clocks that are wrong by less than a slow answer takes.
    """
    over = outcomes(control)
    for asked in control:
        answer = over.get(call_of(asked)) if asked.event in _ASKED else None
        if answer is None or "written" not in answer.fields:
            continue
        written = answer["written"]
        if written is None:
            return (
                f"nobody compared the clock of {asked.member} with the broker's: "
                "records of the control topic have their producers' times"
            )
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


def outcomes(control: Iterable[Fact]) -> dict[object, Fact]:
    """Return the outcome of each call that has an id, if it is known."""
    return {
        call_of(one): one
        for one in control
        if one["id"] is not None and one.event not in _ASKED
    }


def call_of(one: Fact) -> object:
    """
    Return the operator's call that an entry is about.

    A journal may be moved away between the request and the answer, which is then in the
    new journal: the ids that commands make are unique.
    """
    id_ = one["id"]
    is_unique = isinstance(id_, str) and _UNIQUE.fullmatch(id_) is not None
    return "" if is_unique else one.member, id_, one["scope"], one["owner"]


# ---------------------------------------------------------------- calls


class _Order(Enum):
    BEFORE = auto()
    AFTER = auto()
    UNKNOWN = auto()


@define(eq=False)
class _Call:
    """
    An operator's call, which places or lifts a hold.

    Attributes:
        asked: the entry before the broker was asked, or the only one.
        last: the entry after it has answered, or the only one.
        is_hold: whether it places a hold.
        is_known: whether its outcome is known; if not, it may be done later than other
            calls that were asked for after it.
        episode: as for spans.
    """

    asked: Fact
    last: Fact
    is_hold: bool
    is_known: bool
    episode: int = 0

    @property
    def over(self) -> float:
        return self.last.at if self.is_known else self.asked.at + _PENDING

    @property
    def source(self) -> str | None:
        source: str | None = self.last["source"]
        return source

    @property
    def until(self) -> float:
        until: float | None = self.last["until"] if self.is_hold else None
        return math.inf if until is None else until

    @property
    def latest(self) -> float:
        # Its duration counts from its record.
        return self.until if self.is_known else self.until + _PENDING

    def is_of(self, source: str | None) -> bool:
        return len({source, self.source} - {None}) <= 1

    def order(self, other: "_Call", skew: float) -> _Order:
        """Return where another call stands: before this one, or after it."""
        if self._precedes(other, skew):
            return _Order.AFTER
        if other._precedes(self, skew):  # noqa: SLF001 - its own kind
            return _Order.BEFORE
        by = 0.0
        if self.source == other.source:
            by = _difference(self, other, "offset", 0)
            by = by or _difference(self, other, "written", skew + _ROUNDED)
        if not by:
            return _Order.UNKNOWN
        return _Order.AFTER if by > 0 else _Order.BEFORE

    def _precedes(self, other: "_Call", skew: float) -> bool:
        if self.is_known and self.last.member == other.asked.member:
            return self.last.number < other.asked.number
        return self.over + skew <= other.asked.at


def _difference(one: _Call, other: _Call, name: str, within: float) -> float:
    # The order by what the broker reported; 0 if that gives none.
    mine, its = one.last[name], other.last[name]
    by: float = 0 if mine is None or its is None else its - mine
    return by if abs(by) > within else 0


def _calls(control: Iterable[Fact]) -> Mapping[object, list[_Call]]:
    # The calls of each scope and owner, in the order in which they were asked for.
    control = list(control)
    over = outcomes(control)
    asked = {call_of(one): one for one in control if one.event in _ASKED}
    undone = _undone(control)
    found: dict[object, list[_Call]] = {}
    for fact in control:
        one = _call(fact, over, asked, undone)
        if one is not None:
            found.setdefault((fact["scope"], fact["owner"]), []).append(one)
    for calls in found.values():
        calls.sort(key=lambda one: (one.asked.at, one.asked.member, one.asked.number))
        _count(calls)
    return found


def _call(
    fact: Fact,
    over: Mapping[object, Fact],
    asked: Mapping[object, Fact],
    undone: set[tuple[str, int]],
) -> _Call | None:
    has_id = fact["id"] is not None
    key = call_of(fact) if has_id else None
    match fact.event:
        case "group-hold":
            first = asked.get(key, fact) if has_id else fact
            return _Call(first, fact, is_hold=True, is_known=True)
        case "group-asked" if has_id and key not in over:
            return _Call(fact, fact, is_hold=True, is_known=False)
        case "group-lift" if fact["ok"] is not False:
            last = over.get(key, fact) if has_id else fact
            if last.event == "group-refused":
                return None
            is_told = (last is not fact) if has_id else True
            is_known = is_told and (fact.member, fact.number) not in undone
            return _Call(fact, last, is_hold=False, is_known=is_known)
    return None


def _undone(control: Iterable[Fact]) -> set[tuple[str, int]]:
    # Lifts that failed, as far as their operator knows: a second entry reports this.
    found: set[tuple[str, int]] = set()
    latest: dict[object, int] = {}
    for one in sorted(control, key=lambda one: (one.member, one.number)):
        if one.event != "group-lift":
            continue
        key = one.member, one["scope"], one["owner"], one["source"]
        if one["ok"] is not False:
            latest[key] = one.number
        elif key in latest:
            found.add((one.member, latest[key]))
    return found


def _count(calls: Iterable[_Call]) -> None:
    # A hold that is placed again while in force is one hold; one perhaps lifted is not.
    episode, over = 0, -math.inf
    for one in calls:
        if not one.is_hold:
            over = -math.inf
            continue
        episode += one.asked.at >= over
        one.episode, over = episode, one.until


# ---------------------------------------------------------------- in force


class _Line:
    """
    The calls of one scope, owner and source.

    Calls that are certainly after a moment are summed up once, from the end; only calls
    near a hold are compared with it one by one.

    Args:
        calls: the calls in the order in which they were asked for.
        members: the members' replays.
        patience: seconds within which members read a hold or a lift.
        skew: seconds by which two clocks may differ.
    """

    def __init__(
        self,
        calls: Sequence[_Call],
        members: Iterable[Replay],
        patience: float,
        skew: float,
    ) -> None:
        self._calls = calls
        self._skew = skew
        self._asked = [one.asked.at for one in calls]
        self._longest = max(one.over - one.asked.at for one in calls)
        self._after = [_Ends()]
        for one in reversed(calls):
            self._after.append(self._after[-1].with_call(one))
        self._after.reverse()
        self._unseen = sorted(_unseen(calls, members, patience, skew))

    def span(self, hold: _Call) -> Span:
        ends = self._ends(hold)
        span = Span(
            scope=hold.last["scope"],
            owner=hold.last["owner"] or "",
            source=hold.source,
            asked=hold.asked.at,
            start=hold.last.at,
            end=min(ends.lift, ends.limit, hold.until),
            latest=min(ends.done, ends.sure_limit, hold.latest),
            is_limited=hold.until < math.inf,
            is_lifted=ends.lift < math.inf,
            is_sure=hold.is_known,
            episode=hold.episode,
        )
        is_lifted = ends.done < math.inf and ends.done <= ends.again
        is_unseen = not is_lifted and self._is_heard_lifted(span, ends.again)
        if not span.is_sure or is_unseen:
            return _unsure(span)
        return span

    def _ends(self, hold: _Call) -> "_Ends":
        within = self._skew + _ROUNDED
        first = bisect_left(self._asked, hold.asked.at - within - self._longest)
        past = bisect_right(self._asked, hold.over + within)
        ends = self._after[past]
        for one in reversed(self._calls[first:past]):
            order = _Order.BEFORE if one is hold else hold.order(one, self._skew)
            if order is _Order.AFTER:
                ends = ends.with_call(one)
            elif order is _Order.UNKNOWN:
                ends = ends.perhaps(one)
        return ends

    def _is_heard_lifted(self, span: Span, until: float) -> bool:
        found = bisect_left(self._unseen, span.asked - self._skew)
        return found < len(self._unseen) and self._unseen[found] < until


def _unsure(span: Span) -> Span:
    return evolve(span, end=span.start)


@frozen
class _Ends:
    """
    The first calls of each kind that may end a hold, out of several after it.

    Attributes:
        lift: a lift was asked for.
        done: a lift was asked for that was done.
        limit: it expires, before any lift that was done.
        sure_limit: likewise, if a hold that was surely placed says so.
        again: it was surely placed again.
    """

    lift: float = math.inf
    done: float = math.inf
    limit: float = math.inf
    sure_limit: float = math.inf
    again: float = math.inf

    def with_call(self, one: _Call) -> "_Ends":
        """Return it with one more call, asked for before the others."""
        if not one.is_hold:
            if not one.is_known:
                return self.perhaps(one)
            return _Ends(lift=one.asked.at, done=one.asked.at, again=self.again)
        known = self.perhaps(one)
        if not one.is_known:
            return known
        sure = min(known.sure_limit, one.until)
        again = min(known.again, one.last.at)
        return _Ends(known.lift, known.done, known.limit, sure, again)

    def perhaps(self, one: _Call) -> "_Ends":
        """Return it with one more call, of which it is unknown whether it counts."""
        lift, limit = self.lift, self.limit
        if one.is_hold:
            limit = min(limit, one.until)
        else:
            lift = min(lift, one.asked.at)
        return _Ends(lift, self.done, limit, self.sure_limit, self.again)


def _unseen(
    calls: Sequence[_Call], members: Iterable[Replay], patience: float, skew: float
) -> Iterator[float]:
    """
    Yield when members read lifts that no operator's journal explains.

    A lift in a journal explains one that a member reads soon after, if the member soon
    reads a hold again; otherwise the member may have read the end of that hold.
    """
    if not calls:
        return
    like = Span(
        scope=calls[0].last["scope"],
        owner=calls[0].last["owner"] or "",
        source=next((one.source for one in calls if one.source is not None), None),
        asked=0.0,
        start=0.0,
        end=0.0,
        latest=0.0,
        is_limited=False,
    )
    lifts = [one for one in calls if not one.is_hold and one.is_known]
    near = patience + skew
    for part in members:
        ends = sorted(at for key, at in part.lifted if like.is_of(key))
        heard = sorted(one.at for one in part.heard if like.is_of(one.key))
        yield from _unexplained(ends, heard, lifts, near, skew)


def _unexplained(
    ends: Sequence[float],
    heard: Sequence[float],
    lifts: Sequence[_Call],
    near: float,
    skew: float,
) -> Iterator[float]:
    next_ = 0
    for at, following in pairwise([*ends, math.inf]):
        while next_ < len(lifts) and lifts[next_].last.at + near < at:
            next_ += 1
        is_told = next_ < len(lifts) and lifts[next_].asked.at - skew <= at
        again = bisect_left(heard, at)
        is_again = again < len(heard) and heard[again] <= min(following, at + near)
        if is_told and is_again:
            next_ += 1
        else:
            yield at
