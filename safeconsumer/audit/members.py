"""
What a journal tells of all partitions alike: polls, and holds with their ends.
"""

import math
from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from safeconsumer.audit.journal import ENDED, EXPIRED, Entry
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP


@frozen
class Placed:
    """
    A hold as a journal tells of it.

    Attributes:
        number: of the entry that placed it.
        until: when it ends at the latest, seconds since the epoch.
        since: ends that were earlier are those of another hold, of the same scope and
            owner; of a hold that was told of itself each later line is about it.
        never: how it cannot end, whatever its own process says.
        running: what handlers were at when it was in force, offsets by partition.
    """

    number: int
    until: float
    since: float = 0.0
    never: frozenset[str] = frozenset()
    running: Mapping[str, Sequence[int]] = field(factory=dict)

    def is_ended_by(self, lift: Entry) -> bool:
        """
        Tell whether an entry about an end is about this one.
        """
        is_late = float(lift["since"] or lift.at) >= self.since
        return is_late and lift["why"] not in self.never


class Member:
    """
    What concerns all partitions of a member alike.

    Args:
        lifts: when holds from elsewhere ended.

    Attributes:
        polling: the entry of the poll under way; None between polls.
        polls: how many have returned.
        is_working: whether a worker's handlers get the records.
    """

    def __init__(self, lifts: Sequence[Entry] = ()) -> None:
        self._lifts: dict[tuple[str, str], list[Entry]] = {}
        for one in lifts:
            self._lifts.setdefault((one["scope"], one["owner"] or ""), []).append(one)
        self._called: tuple[object, int] = (None, 0)
        self.polling: int | None = None
        self.polls = 0
        self.is_working = False
        self._running: Mapping[str, Sequence[int]] = {}

    def take(self, entry: Entry) -> None:
        """
        Follow what a worker says of all partitions; other entries are not about them.
        """
        if entry.event == "working":
            self.is_working = True
        elif entry.event == "running":  # for the hold that is told of next
            self._running = entry["records"]

    def take_poll(self, entry: Entry) -> None:
        """
        Follow a call or return of poll.
        """
        if entry.event == "call":
            self._called = entry["id"], entry.number
            self.polling = entry.number
        else:
            self.polling = None
            self.polls += entry["ok"] is not False

    def called_at(self, entry: Entry) -> int:
        """
        Return the entry before which a hold must stand to forbid a delivery.
        """
        after = entry["after"]  # a step of an iteration, which writes no call
        if after is not None:
            return int(after) + 1
        call, number = self._called
        return number if call == entry["poll"] else entry.number

    def placed(self, entry: Entry, key: tuple[str, str]) -> Placed:
        """
        Return the hold that an entry tells of, with its end if that is known.

        That it ended may be written down after the delivery that it allowed, and after
        the call that placed the next one.
        """
        until = entry["until"] or math.inf
        hold = Placed(entry.number, until, running=self._running)
        if entry.event == "return":
            hold = evolve(hold, since=entry.at, never=_never(entry, key))
        ends = (
            float(one["since"] or one.at)
            for one in self._lifts.get(key, ())
            if one.number > entry.number and hold.is_ended_by(one)
        )
        return evolve(hold, until=min(until, *ends, math.inf))


def _never(entry: Entry, key: tuple[str, str]) -> frozenset[str]:
    # When it expires stands with the call. It ends with an ownership if it was placed
    # for one, or goes along with the partition (hand-over).
    is_for_good = entry["lifetime"] == "until_resumed"
    is_carried = key[1] == APP and isinstance(scopes.parse(key[0]), scopes.Partition)
    return frozenset({EXPIRED, ENDED} if is_for_good and not is_carried else {EXPIRED})
