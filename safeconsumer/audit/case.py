"""
Gathers the facts about one group and one partition, for rules that compare members.

A case keeps each ownership and each commit in memory, and records and positions as
ranges of offsets.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge, nlargest
from itertools import chain
from operator import itemgetter
from typing import Any

from attrs import Factory, define, field, frozen

from safeconsumer.audit import entries, facts
from safeconsumer.audit.clocks import AT_ITS_WORD, Appended, BrokerTime, Measures
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.entries import Hold, Reset
from safeconsumer.audit.facts import (
    AutoReset,
    Committed,
    Fact,
    Owned,
    Positioned,
    UnderHold,
)
from safeconsumer.audit.findings import Address
from safeconsumer.audit.group_holds import Bounds, Lacking, Readings
from safeconsumer.audit.moments import Moments
from safeconsumer.audit.reading import TopicPartition, covering, place_of
from safeconsumer.audit.results import Settings
from safeconsumer.audit.spans import Spans
from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import tp_text

_SINCE_BEGIN = Factory(lambda epoch: epoch.owned.at, takes_self=True)

MARKS = (entries.Transactional, entries.Unseen, entries.Working, facts.OpenSeek)
"""
Facts that qualify everything that their member did.
"""

Numbered = tuple[int, Span]
"""
The span of a hold, and its place in the order of all spans.
"""


@define(kw_only=True, eq=False)
class Epoch:
    """
    One ownership, from assigned to revoked or lost.

    Attributes:
        member: the member that owned the partition.
        owned: the fact that reports the start of the ownership; its number is 0 if only
            delivered records show the ownership.
        over: when the ownership ended, or when the journal ended.
        owned_since: when the ownership began; if the partition was given back, when the
            previous ownership began.
        was_lost: whether the membership was lost.
        began: the first position.
        log: the start of the log, from the broker's first answer to a fetch after the
            position was set; None if the position moved before that.
        runs: the ranges of offsets that the position passed.
        peeked: the ranges of offsets that peeks read, each from the position at that
            time.
        first: the time and the offset of the first record, which a peek may have
            delivered.
        delivered_at: the time of the first record that was not peeked; without such a
            record, the start of the ownership.
        records: the offsets of the delivered records.
        sought: if a seek chose the first position, that position, and every later seek
            target that is lower than all before it.
        skipped: the offsets that the application, or an operator, skipped.
        deleted: the offsets that the client's reset policy skipped.
        given_up: the offsets of records that a worker dropped.
        sure: the highest offset that was committed before any seek; -1 if there was no
            such commit.
        has_committed: whether a commit in this ownership was acknowledged.
    """

    member: str
    owned: Owned
    over: float = _SINCE_BEGIN
    owned_since: float = _SINCE_BEGIN
    was_lost: bool = False
    began: Positioned | None = None
    log: int | None = None
    runs: Spans = field(factory=Spans)
    peeked: Spans = field(factory=Spans)
    first: tuple[float, int] | None = None
    delivered_at: float = _SINCE_BEGIN
    records: Spans = field(factory=Spans)
    sought: "array[int]" = field(factory=lambda: array("q"))
    skipped: Spans = field(factory=Spans)
    deleted: Spans = field(factory=Spans)
    given_up: Spans = field(factory=Spans)
    sure: int = -1
    has_committed: bool = False

    @property
    def end(self) -> int:
        """The highest position of the ownership; -1 if no record was delivered."""
        return max(self.runs.ends, default=-1)

    @property
    def was_sought(self) -> bool:
        """Whether a seek chose the first position."""
        return self.began is not None and self.began.how in {"seek", "reset"}

    def lacked_commit(self, group: str | None) -> bool:
        """Return whether the reset policy set the start, without a committed offset."""
        if self.began is None or self.began.how != "broker":
            return False
        answered = self.began.answered
        return answered == -1 or (answered is None and not group)

    @property
    def is_numbered(self) -> bool:
        """Whether the group's generation at the start of the ownership is known."""
        return self.owned.generation is not None and self.owned.generation >= 0

    def is_since(self, other: "Epoch") -> bool:
        """Return whether this is the given ownership, or certainly a later one."""
        if self.member == other.member:
            return self.owned.at >= other.owned.at
        both = [(one.generation or 0, one.at) for one in (self.owned, other.owned)]
        return self.is_numbered and other.is_numbered and both[0] > both[1]


class Commits:
    """
    The commits of a member that a broker may return later, by ownership.

    An acknowledged commit replaces earlier commits of its ownership whose answers had
    arrived before it was requested.
    """

    def __init__(self) -> None:
        self._by_own: dict[int, list[Committed]] = {}

    def add(self, fact: Committed) -> None:
        """Add a commit whose answer is known."""
        known = self._by_own.setdefault(fact.own or 0, [])
        if fact.is_done:
            asked = fact.call
            known[:] = [one for one in known if not one.call < one.n < asked]
        known.append(fact)

    def of(self, own: int) -> Sequence[Committed]:
        """
        Return the commits of one ownership.

        Args:
            own: the number of the entry that began the ownership; 0 for the commits
                before the first ownership.
        """
        return self._by_own.get(own, ())

    def last(self, own: int) -> Committed | None:
        """Return the last acknowledged commit of an ownership."""
        done = (one for one in self.of(own) if one.is_done)
        return max(done, key=lambda one: one.call, default=None)

    def __iter__(self) -> Iterator[Committed]:
        """Yield all commits."""
        return chain.from_iterable(self._by_own.values())


class Part:
    """
    The facts about one member on one partition.

    Args:
        member: names the member.
        keeps_moments: whether to keep :attr:`delivered`, :attr:`begun` and
            :attr:`appended`, which is needed only for groups with holds; each entry
            takes sixteen bytes.

    Attributes:
        member: names the member.
        epochs: the member's ownerships, in order.
        commits: the member's commits.
        unplaced: acknowledged commits that were made while the position was unknown.
        late: commits after the partition was revoked.
        under: deliveries and handler starts while the partition was held.
        auto_resets: positions that the client's reset policy set.
        resets: the entries that report ownerships which began at an operator's target.
        delivered: the times of deliveries, with the first offsets.
        begun: the times at which handlers began, with the offsets.
        appended: the delays between the append of records and their delivery.
        done: offsets that are complete.
        marks: the kinds of facts in :data:`MARKS` that the member's journal contains.
        last_at: the time of the last delivery or handler start; ``-inf`` if there was
            neither.
    """

    def __init__(self, member: str, *, keeps_moments: bool) -> None:
        self.member = member
        self._keeps_moments = keeps_moments
        self.epochs: list[Epoch] = []
        self.commits = Commits()
        self.unplaced: list[Committed] = []
        self.late: list[Committed] = []
        self.under: list[UnderHold] = []
        self.auto_resets: list[AutoReset] = []
        self.resets: list[Reset] = []
        self.delivered, self.begun = Moments(), Moments()
        self.appended = Appended()
        self.done = Spans()
        self.marks: set[type[Fact]] = set()
        self.topic_ids: set[str | None] = set()
        self.last_at = -math.inf
        self._takers: Mapping[type, Callable[[Any], object]] = {
            facts.Positioned: self._positioned,
            facts.Delivered: self._delivered,
            facts.Committed: self._committed,
            facts.Done: lambda fact: self.done.add(fact.start, fact.end),
            facts.JournalEnd: self._ended,
            facts.HandlerBegan: self._handler_began,
            facts.AutoReset: self._auto_reset,
            entries.LogStart: self._log_starts,
            entries.Named: lambda fact: self.topic_ids.update(fact.topics.values()),
            facts.Released: self._released,
            entries.Moved: lambda fact: self.epochs[-1].runs.add(fact.start, fact.next),
            Owned: self._owned,
            facts.GivenUp: self._given_up,
            Reset: self.resets.append,
            facts.Skipped: lambda fact: self.epochs[-1].skipped.add(
                fact.start, fact.end
            ),
            facts.Sought: lambda fact: self.epochs[-1].sought.append(fact.offset),
            facts.UnderHold: self.under.append,
            **dict.fromkeys(MARKS, lambda fact: self.marks.add(type(fact))),
        }

    def epoch_at(self, entry: int) -> Epoch | None:
        """Return the ownership at an entry, or the last one that ended before that entry."""
        before = (one for one in reversed(self.epochs) if one.owned.n <= entry)
        return next(before, None)

    @property
    def is_working(self) -> bool:
        """Whether the member passes its records to a worker's handlers."""
        return entries.Working in self.marks

    def take(self, fact: Fact) -> None:
        """Add the next fact; facts arrive in the journal's order."""
        take = self._takers.get(type(fact))
        if take is not None:
            take(fact)

    def _owned(self, fact: Owned) -> None:
        new = Epoch(member=self.member, owned=fact)
        if fact.is_back and self.epochs:
            new.owned_since = self.epochs[-1].owned_since
        self.epochs.append(new)
        self.topic_ids.add(fact.topic_id)

    def _released(self, fact: facts.Released) -> None:
        self.epochs[-1].over, self.epochs[-1].was_lost = fact.at, fact.is_lost

    def _positioned(self, fact: Positioned) -> None:
        self.epochs[-1].began = fact

    def _delivered(self, fact: facts.Delivered) -> None:
        if not fact.is_owned:
            self.epochs.append(Epoch(member=self.member, owned=Owned(n=0, at=fact.at)))
        epoch = self.epochs[-1]
        if epoch.first is None:
            epoch.first = fact.at, fact.first
        if fact.is_peek:  # the position stays, but peeked records may be committed
            start = fact.start if fact.stood is None else min(fact.stood, fact.start)
            epoch.peeked.add(start, fact.next)
        else:
            if not epoch.runs:
                epoch.delivered_at = fact.at
            epoch.runs.add(fact.start, fact.next)
        for start, end in fact.spans:
            epoch.records.add(start, end)
        if not self._keeps_moments:
            return
        self.delivered.add(fact.at, fact.first)
        if fact.written is not None:
            self.appended.add(fact.at, fact.written)

    def _handler_began(self, fact: facts.HandlerBegan) -> None:
        if self._keeps_moments:
            self.begun.add(fact.at, fact.offset)

    def _auto_reset(self, fact: AutoReset) -> None:
        self.auto_resets.append(fact)
        self.epochs[-1].deleted.add(fact.start, fact.end)

    def _log_starts(self, fact: entries.LogStart) -> None:
        epoch = self.epochs[-1] if self.epochs else None
        if epoch is not None and epoch.log is None and not epoch.runs:
            epoch.log = fact.first
        for jump in self.auto_resets:
            if jump.log is None:
                jump.log = fact.first

    def _committed(self, fact: Committed) -> None:
        self.commits.add(fact)
        if not fact.is_done:
            return
        if fact.stood is None:
            self.unplaced.append(fact)
        if not fact.is_owned:
            self.late.append(fact)
        if fact.asked is None or not fact.is_owned:
            return
        self.epochs[-1].has_committed = True
        if fact.is_first and not fact.is_before:
            self.epochs[-1].sure = max(self.epochs[-1].sure, fact.offset)

    def _given_up(self, fact: facts.GivenUp) -> None:
        self.epochs[fact.own].given_up.add(fact.start, fact.end)

    def _ended(self, fact: facts.JournalEnd) -> None:
        self.last_at = -math.inf if fact.last_at is None else fact.last_at
        if self.epochs and self.epochs[-1].over == self.epochs[-1].owned.at:
            self.epochs[-1].over = fact.at


@define
class Acknowledged:
    """
    Records that brokers acknowledged to producers, or that a topic contains.

    Attributes:
        written: the offsets of these records.
        kept: the first offset of the log that was read; older records are unknown. None
            if no log was read.
    """

    written: Spans = field(factory=Spans)
    kept: int | None = None

    def take(self, fact: Fact) -> None:
        """Add a range of acknowledged records, or the first offset of the log."""
        if isinstance(fact, entries.Kept):
            self.kept = max(self.kept or 0, fact.first)
        elif isinstance(fact, entries.Acked):
            self.written.add(fact.first, fact.last + 1)

    @property
    def known_from(self) -> int:
        """The offset below which the written records are unknown; 0 if all are known."""
        least = self.kept or 0
        written_from = min(self.written.starts, default=least)
        return least if written_from >= least else 0


class Reader:
    """
    The holds that one member of a group read, and its clock measurements.

    Attributes:
        read: the holds that the member read, by scope and owner.
        measures: the member's measurements of the broker's clock.
        end: the number of the member's last entry.
    """

    def __init__(self) -> None:
        self.read: dict[tuple[str, str], list[Hold]] = {}
        self.measures = Measures()
        self.end = 0

    def take(self, fact: Fact) -> None:
        """Add a fact about the group."""
        if isinstance(fact, Hold):
            self.read.setdefault((fact.scope, fact.owner or ""), []).append(fact)
        elif isinstance(fact, entries.Clock):
            self.measures.add(fact)
        elif isinstance(fact, facts.JournalEnd):
            self.end = fact.n


@frozen(slots=False)
class Group:
    """
    The members of one group; all cases of the group share this object.

    Attributes:
        name: the name of the group; None if no journal names it.
        settings: the judge's settings.
        readers: for each member, by its name, the holds of the group that the member
            read.
    """

    name: str | None
    settings: Settings
    readers: Mapping[str, Reader]

    def measures(self, member: str) -> Measures:
        """Return a member's measurements of the broker's clock."""
        measures = self.readers[member].measures
        is_at_its_word = not measures.at and self.settings.clock_skew > 0
        return AT_ITS_WORD if is_at_its_word else measures

    @cached_property
    def readings(self) -> Readings:
        """The times at which members read holds."""
        several = self.readers.items()
        clocks = {name: BrokerTime(self.measures(name)) for name in self.readers}
        return Readings({name: one.read for name, one in several}, clocks)

    @cached_property
    def lacking(self) -> Sequence[Lacking]:
        """The holds that members read but that are missing from the holds topics."""
        control = self.settings.control
        return [] if control is None else [*self.readings.not_in(control, self.name)]

    @cached_property
    def _spans(self) -> Mapping[TopicPartition | str | None, Sequence[Numbered]]:
        # The time spans of holds, by the only partition or topic that the hold's scope
        # can cover.
        found: dict[TopicPartition | str | None, list[Numbered]] = {}
        control = self.settings.control
        for number, span in enumerate(() if control is None else control.spans):
            if span.group == self.name:
                found.setdefault(place_of(span.scope), []).append((number, span))
        return found

    def spans_at(self, tp: TopicPartition) -> Iterator[Span]:
        """Yield, in order, the spans of holds that may cover a partition."""
        several = (self._spans.get(place, ()) for place in (tp, tp[0], None))
        return (span for _, span in merge(*several, key=itemgetter(0)))

    @cached_property
    def _targets(self) -> Mapping[str, frozenset[int]]:
        found: dict[str, set[int]] = {}
        control = self.settings.control
        for group, _, tp, offset in () if control is None else control.targets:
            if group == self.name:
                found.setdefault(tp, set()).add(offset)
        return {tp: frozenset(offsets) for tp, offsets in found.items()}

    def targets_of(self, tp: TopicPartition) -> frozenset[int]:
        """Return the offsets to which operators' holds move a partition for the group."""
        return self._targets.get(tp_text(tp), frozenset())


@frozen(slots=False, eq=False)
class Case:
    """
    All facts about one group and one partition.

    Attributes:
        address: the group and the partition.
        group: the members of the group.
        parts: the facts about each member, by its name.
        acknowledged: the records that producers wrote.
        is_written: whether a journal, or the topic itself, shows records that were
            written to the topic, perhaps only to other partitions.
    """

    address: Address
    group: Group
    parts: Mapping[str, Part]
    acknowledged: Acknowledged
    is_written: bool = field(kw_only=True)
    _covers: dict[str, bool | None] = field(factory=dict, init=False)

    @property
    def settings(self) -> Settings:
        """The judge's settings."""
        return self.group.settings

    @cached_property
    def epochs(self) -> list[Epoch]:
        """All ownerships; those of each member are in order."""
        return [epoch for one in self.parts.values() for epoch in one.epochs]

    @property
    def is_working(self) -> bool:
        """Whether any member has a worker."""
        return any(one.is_working for one in self.parts.values())

    def covers(self, scope: str) -> bool | None:
        """Return whether a scope covers the partition; None for an unreadable pattern."""
        if scope not in self._covers:
            try:
                self._covers[scope] = covering(scope)(self.address.tp)
            except JournalError:
                self._covers[scope] = None
        return self._covers[scope]

    @cached_property
    def clocks(self) -> Mapping[str, BrokerTime]:
        """For each member, the object that converts the member's times to broker times."""
        return {
            name: BrokerTime(self.group.measures(name), one.appended)
            for name, one in self.parts.items()
        }

    @cached_property
    def with_wrong_clocks(self) -> frozenset[str]:
        """The members whose measurements of the broker's clock are contradicted."""
        skew = self.settings.clock_skew
        several = self.clocks.items()
        return frozenset(name for name, one in several if one.is_contradicted(skew))

    @property
    def control(self) -> Control | None:
        """The content of the holds topics; None if it was not read for this group."""
        control = self.settings.control
        is_about = control is not None and control.is_about(self.address.group)
        return control if is_about else None

    @cached_property
    def offsets(self) -> frozenset[int]:
        """The offsets of all commits in the journals."""
        several = self.parts.values()
        return frozenset(made.offset for one in several for made in one.commits)

    @cached_property
    def _highest(self) -> list[tuple[int, str]]:
        found = (
            (max((made.offset for made in one.commits), default=-1), name)
            for name, one in self.parts.items()
        )
        return nlargest(2, found)

    def most_of_others(self, member: str) -> int:
        """Return the highest offset that other members may have committed, or -1."""
        return next((most for most, name in self._highest if name != member), -1)

    @cached_property
    def most_of_producers(self) -> int:
        """The highest position of members whose offsets a producer commits, or -1."""
        several = (one for one in self.parts.values() if entries.Unseen in one.marks)
        return max((own.end for one in several for own in one.epochs), default=-1)

    @property
    def targets(self) -> frozenset[int]:
        """The offsets to which operators' holds move the partition for this group."""
        return self.group.targets_of(self.address.tp)

    @cached_property
    def bounds(self) -> Sequence[Bounds]:
        """The :class:`Bounds` of each hold of the group that may cover the partition."""
        control = self.settings.control
        if control is None or control.trouble:
            return ()
        return [
            self._bounds(span, min(span.end, control.until))
            for span in self.group.spans_at(self.address.tp)
            if self.covers(span.scope) is not False
        ]

    def _bounds(self, span: Span, end: float) -> Bounds:
        skew = self.settings.clock_skew
        late = span.start + self.settings.patience + skew
        read = math.inf
        if self.covers(span.scope):
            read = self.group.readings.first(span, skew)
        known = min(max(span.start, read) + skew, late)
        return Bounds(span=span, known=known, late=late, end=end - skew)

    @cached_property
    def incomparable(self) -> str:
        """The reason why offsets of two topics cannot be compared; "" if they can."""
        known = [(one.owned, one.member) for one in self.epochs]
        first = {one.cluster: member for one, member in known if one.cluster}
        if len(first) > 1:
            (one, member), (other, another), *_ = first.items()
            return (
                f"{member} was on the cluster {one} and {another} on {other}: judge each "
                "cluster by itself"
            )
        ids = (one.topic_ids for one in self.parts.values())
        if len(set[str | None]().union(*ids) - {None}) > 1:
            return "the topic was deleted and created again: its id changed"
        return ""

    @cached_property
    def hidden_group(self) -> str:
        """The reason why members may have been in different groups; "" if they were not."""
        # Members whose journal has a generation were in a group, but perhaps in
        # different groups.
        if not self.address.group:
            for epoch in self.epochs:
                if epoch.is_numbered:
                    return f"{epoch.member} was in a group, but its journal does not name it"
        return ""
