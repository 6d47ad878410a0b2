"""
Finds what a member did with a partition while it was held: A1 and W10.

A1: no record is delivered by a poll that was called while its partition was held. A
pause that returns on another thread while a poll is on its way stops the next one.

W10: no handler begins on a record of a held partition. A handler that had begun when
the hold came into force may write its start later: with the hold stand the offsets that
handlers were working on. Each of these may begin once, and nothing else may.

Both compare numbers of entries of one process, without clocks. An entry that a hold was
lifted or expired may be written late, and then withdraws what was found because of it.
"""

from collections.abc import Iterable, Iterator

from attrs import define

from safeconsumer.audit.entries import Deliver, Handle, Lift
from safeconsumer.audit.findings import Finding, Subject
from safeconsumer.audit.handled import offsets_of
from safeconsumer.audit.holding import Departure, Holds, Key, Placed
from safeconsumer.journal.format import tp_text

# Holds with which a worker limits its input; its handlers go on (W9).
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
class _Doubt:
    """A violation, unless a later entry shows that the holds had ended before."""

    check: str
    entry: Deliver | Handle
    offset: int
    what: str
    holds: list[Placed]


class WhileHeld:
    """
    Judges one member and one partition.

    Args:
        subject: the member and the partition.
        holds: the holds of the member.
    """

    def __init__(self, subject: Subject, holds: Holds) -> None:
        self._subject = subject
        self._tp = subject.case.tp
        self._name = tp_text(self._tp)
        self._holds = holds
        self._doubts: list[_Doubt] = []
        self._started: set[tuple[int, int]] = set()

    def delivered(self, entry: Deliver, called: int) -> None:
        """Judge a delivery (A1); ``called`` is the entry at which its poll began."""
        held = self._holds.standing(self._tp, entry.at, called)
        if held:
            what = f"delivered {entry.count}"
            self._doubts.append(_Doubt("A1", entry, entry.first, what, held))

    def placed(self, hold: Placed, at_work: Iterable[int]) -> None:
        """Note handlers of which the begin is known already when a hold is placed."""
        self._started.update((hold.number, offset) for offset in at_work)

    def began(self, entry: Handle) -> None:
        """Judge the start of a handler (W10)."""
        held = [
            one
            for one in self._holds.standing(self._tp, entry.at)
            if one.owner not in _WORKERS_OWN and not self._ran(one, entry)
        ]
        if held:
            what = f"began {entry.offset}"
            self._doubts.append(_Doubt("W10", entry, entry.offset, what, held))

    def _ran(self, hold: Placed, entry: Handle) -> bool:
        offsets = offsets_of(entry)
        starts = {(hold.number, offset) for offset in offsets}
        running = hold.running.get(self._name, ())
        if starts & self._started or not all(one in running for one in offsets):
            return False
        self._started |= starts
        return True

    def lifted(self, entry: Lift, gone: Departure | None) -> None:
        """Withdraw what was allowed because a hold had ended by then."""
        key: Key = entry.scope, entry.owner or ""
        for one in self._doubts:
            done = one.entry
            one.holds = [
                hold
                for hold in one.holds
                if hold.key != key or not hold.is_over(entry, gone, done.n, done.at)
            ]
        self._doubts = [one for one in self._doubts if one.holds]

    def findings(self) -> Iterator[Finding]:
        """Yield what was not withdrawn, once the journal has ended."""
        for one in self._doubts:
            hold = one.holds[0]
            evidence = f"{one.what} while {hold.scope} was held by {hold.owner}"
            yield self._subject.finding(one.check, one.entry, one.offset, evidence)
