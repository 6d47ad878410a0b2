"""
The judge's reading of holds: which stand over one partition, and when each ended.

This is the one source of it; the checks and the picture both ask here. It is read from
what was called and when that returned, and from what was heard of holds placed
elsewhere, never from what the consumer says of its own state.
"""

import math
from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.journal import ENDED, EXPIRED
from safeconsumer.audit.reading import is_partition

# Who places holds by plain calls, which may go along with a partition (hand-over).
_APP = "app"

Key = tuple[str, str]
"""
A hold's scope and owner.
"""


@frozen(kw_only=True)
class Placed:
    """
    A hold over the partition.

    Attributes:
        scope: what it covers, as it was written.
        owner: whose it is.
        number: of the entry that placed it.
        at: when it was in force, seconds since the epoch, by the member's clock.
        until: when it ends at the latest.
        since: ends that were earlier are those of another hold, of the same scope and
            owner; of a hold that was heard of each later entry is about it.
        never: how it cannot end, whatever its own process says.
        running: offsets that handlers were at when it was in force.
        is_remote: whether it was placed elsewhere and heard of.
    """

    scope: str
    owner: str
    number: int
    at: float
    until: float = math.inf
    since: float = 0.0
    never: frozenset[str] = frozenset()
    running: Sequence[int] = ()
    is_remote: bool = False

    @property
    def key(self) -> Key:
        """
        Its scope and owner.
        """
        return self.scope, self.owner

    def is_ended_by(self, lift: Fact) -> bool:
        """
        Tell whether what is told of an end is about this hold.
        """
        is_late = ended_at(lift) >= self.since
        return is_late and lift["why"] not in self.never


class Holds:
    """
    Follows the holds of one member over one partition.
    """

    def __init__(self) -> None:
        self._standing: dict[Key, Placed] = {}

    def take(self, fact: Fact) -> tuple[Placed, ...]:
        """
        Follow a fact; returns the holds that it placed.

        That a hold from elsewhere was lifted, or that one expired, may be written
        later than it was: until then :meth:`standing` has it.
        """
        placed: tuple[Placed, ...] = ()
        match fact.event, fact["op"]:
            case ("hold", _) | ("return", "pause") if fact["ok"] is not False:
                placed = tuple(_placed(fact))
                self._standing.update((one.key, one) for one in placed)
            case "call", "resume":
                for key in keys(fact):
                    self._standing.pop(key, None)
            case "lift", _:
                for key in keys(fact):
                    known = self._standing.get(key)
                    if known is not None and known.is_ended_by(fact):
                        del self._standing[key]
        return placed

    def standing(self, at: float, before: float = math.inf) -> list[Placed]:
        """
        Return what holds the partition at a moment, placed before an entry.
        """
        return [
            one
            for one in self._standing.values()
            if one.number < before and at < one.until
        ]


def keys(fact: Fact) -> Iterator[Key]:
    """
    Yield the scopes that a fact names and the owner, of those that cover the partition.
    """
    for scope in fact["scopes"] or ():
        yield scope, fact["owner"] or ""


def ended_at(lift: Fact) -> float:
    """
    Return when a hold ended of which that is told.
    """
    return float(lift["since"] or lift.at)


def _placed(fact: Fact) -> Iterator[Placed]:
    for scope, owner in keys(fact):
        hold = Placed(
            scope=scope,
            owner=owner,
            number=fact.number,
            at=fact.at,
            until=fact["until"] or math.inf,
            running=fact["running"] or (),
            is_remote=fact.event == "hold",
        )
        if fact.event == "return":
            hold = evolve(hold, since=fact.at, never=_never(fact, hold))
        yield hold


def _never(fact: Fact, hold: Placed) -> frozenset[str]:
    # When it expires stands with the call. It ends with an ownership if it was placed
    # for one, or goes along with the partition (hand-over).
    is_for_good = fact["lifetime"] == "until_resumed"
    is_carried = hold.owner == _APP and is_partition(hold.scope)
    return frozenset({EXPIRED, ENDED} if is_for_good and not is_carried else {EXPIRED})
