"""
Finds deliveries and starts of handlers while a partition was held, for A1 and W10.

A1: no record is delivered by a poll that was called while its partition was held. If
``pause`` returns on another thread during a poll, it takes effect in the next poll.

W10: no handler begins on a record of a held partition. If a handler had begun when the
hold came into force, the entry that reports its start may be written after the hold.
The hold's entry lists the offsets that handlers were working on: for each of these
records, and for no other record, one start may follow.

Both rules compare the numbers of one process's entries, without clocks. The entry about
the end of a hold may be written late; it then withdraws the violations that it
explains. If the process was killed before it wrote the end of a group's hold, only the
holds topic shows that end.
"""

from collections.abc import Iterable, Iterator

from attrs import define, evolve, field

from safeconsumer.audit.entries import Deliver, Handle, Lift
from safeconsumer.audit.facts import UnderHold
from safeconsumer.audit.hold_ends import Kind
from safeconsumer.audit.holding import Holds, Key, Placed
from safeconsumer.audit.moments import Moments
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.worker_records import offsets_of
from safeconsumer.journal.format import tp_text

# The owners of holds with which a worker limits its input while its handlers continue
# (W9).
_WORKERS_OWN = frozenset(
    {
        "worker:backpressure",
        "worker:retry",
        "worker:drain",
        "worker:floor",
        "worker:unreadable",
    }
)


@define(eq=False)
class _Violations:
    """
    Violations under the same holds; a later entry may show that these had ended.

    Attributes:
        what: the action in the first violation, with its offset.
        when: the time of each violation, with the number of its entry.
    """

    check: str
    holds: list[Placed]
    what: str
    offset: int | None
    when: Moments = field(factory=Moments)

    def without(self, lift: Lift, holds: Holds) -> "Iterator[_Violations]":
        """Yield the violations that remain when an entry reports the end of a hold."""
        key: Key = lift.scope, lift.owner or ""
        others = [one for one in self.holds if one.key != key]
        # Several holds with one key are a plain pause and the strict hold beneath it.
        named = [one for one in self.holds if one.key == key]
        if not named:
            yield self
            return
        ends = (
            all(holds.is_over(one, lift, n, at) for one in named) for at, n in self.when
        )
        count = next((number for number, over in enumerate(ends) if over), None)
        before, after = self.when.split(len(self.when) if count is None else count)
        if before:
            yield evolve(self, when=before)
        if after and others:
            what, *_ = self.what.split() if before else [self.what]
            offset = None if before else self.offset
            yield _Violations(self.check, others, what, offset, after)


class WhileHeld:
    """
    Finds what one member did on one partition while it was held.

    Args:
        tp: the partition.
        holds: the holds of the member.
    """

    def __init__(self, tp: TopicPartition, holds: Holds) -> None:
        self._tp = tp
        self._name = tp_text(self._tp)
        self._holds = holds
        self._violations: list[_Violations] = []
        self._last: dict[str, _Violations] = {}  # the newest violations of each check
        self._started: set[tuple[int, int]] = set()

    def note_delivery(self, entry: Deliver, called: int) -> None:
        """Check a delivery; its poll began before the entry with the number ``called``."""
        held = self._holds.standing(self._tp, entry.at, called)
        if held:
            what = f"delivered {entry.count}"
            self._note_violation(_Violations("A1", held, what, entry.first), entry)

    def note_hold(self, hold: Placed, at_work: Iterable[int]) -> None:
        """Record that handlers had begun these offsets before a hold was placed."""
        self._started.update((hold.number, offset) for offset in at_work)

    def note_start(self, entry: Handle) -> None:
        """Check the start of a handler."""
        held = [
            one
            for one in self._holds.standing(self._tp, entry.at)
            if one.owner not in _WORKERS_OWN and not self._ran(one, entry)
        ]
        if held:
            what = f"began {entry.offset}"
            self._note_violation(_Violations("W10", held, what, entry.offset), entry)

    def _note_violation(self, new: _Violations, entry: Deliver | Handle) -> None:
        last = self._last.get(new.check)
        if last is None or last.holds != new.holds:
            last = self._last[new.check] = new
            self._violations.append(new)
        last.when.add(entry.at, entry.n)

    def _ran(self, hold: Placed, entry: Handle) -> bool:
        offsets = offsets_of(entry)
        starts = {(hold.number, offset) for offset in offsets}
        running = hold.running.get(self._name, ())
        if starts & self._started or not all(one in running for one in offsets):
            return False
        self._started |= starts
        return True

    def note_lift(self, entry: Lift) -> None:
        """Withdraw the findings after the end of a hold, which an entry reports now."""
        self._violations = [
            left for one in self._violations for left in one.without(entry, self._holds)
        ]
        self._last.clear()

    def _sorted(
        self, holds: Iterable[Placed]
    ) -> tuple[list[Placed], list[Placed], list[Placed]]:
        # Return the holds that were certainly in force, the holds of the group that no
        # entry ended (the process may have been killed before it wrote their end), and
        # the doubtful holds.
        sure, of_group, unsure = list[Placed](), list[Placed](), list[Placed]()
        for one in holds:
            if one.doubt:
                unsure.append(one)
            elif one.kind is Kind.ELSEWHERE and self._holds.is_left(one):
                of_group.append(one)
            else:
                sure.append(one)
        return sure, of_group, unsure

    def facts(self) -> Iterator[UnderHold]:
        """Yield the findings that were not withdrawn; call this after the last entry."""
        for one in self._violations:
            sure, of_group, unsure = self._sorted(one.holds)
            hold, *_ = (*sure, *of_group, *unsure)
            doubt = next((hold.doubt for hold in unsure), "")
            first, more = one.when.split(1)
            ((at, number),) = first
            yield UnderHold(
                n=number,
                at=at,
                check=one.check,
                what=one.what,
                offset=one.offset,
                scope=hold.scope,
                owner=hold.owner,
                doubt="" if sure else doubt,
                group_holds=[] if sure else [hold.key for hold in of_group],
                again=list(more),
            )
