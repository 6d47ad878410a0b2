"""
Follows which holds are in force over one partition, and when each ended.

Both the checks and the picture use this module. It reads calls, their returns, and the
entries about holds that were placed elsewhere, never what the consumer reports of its
own state:

- a hold that the process placed itself is in force from the return of ``pause`` to the
  call of ``resume``, or to the moment that its call named (``until``); from the return
  of a failed ``resume`` it is in force again;
- an entry that such a hold ended with an ownership is accepted if the hold was placed
  for as long as something is owned, or may move with its partition (hand-over), and if
  an ownership that it covers has really ended since the hold was asked for; of a plain
  pause it is accepted, since a resume of anything ends it while it is not owned;
- a hold that was placed elsewhere is in force from the entry that reports it to the
  moment at which, by a later entry, it was lifted or expired.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

from attrs import evolve, frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.reading import is_partition
from safeconsumer.journal.format import EXPIRED

# The owner of holds by plain calls, which may move with a partition (hand-over).
_APP = "app"
_UNTIL_RESUMED, _PLAIN = "until_resumed", "plain"

Key = tuple[str, str]
"""
A hold's scope and owner.
"""


@frozen(kw_only=True)
class Placed:
    """
    A hold over the partition.

    Attributes:
        scope: its scope, as it was written.
        owner: its owner.
        asked: the entry in which it was asked for, or reported.
        number: the number of the entry from which on it is in force.
        at: the time of that entry, seconds since the epoch, by the member's clock.
        until: when it ends at the latest.
        is_for_good: whether no end of an ownership ends it.
        is_plain: whether a join that leaves it out ends it, and, while it is not owned,
            any resume of the application.
        is_remote: whether it was placed elsewhere.
        running: offsets that handlers were working on when it came into force.
    """

    scope: str
    owner: str
    asked: int
    number: int
    at: float
    until: float = math.inf
    is_for_good: bool = False
    is_plain: bool = False
    is_remote: bool = False
    running: Sequence[int] = ()

    @property
    def key(self) -> Key:
        """Its scope and owner."""
        return self.scope, self.owner

    def is_ended_by(self, lift: Fact) -> bool:
        """Return whether an entry about an end concerns this hold, and is plausible."""
        if self.is_remote:
            return True
        if lift["why"] == EXPIRED or self.is_for_good:  # when it expires is known
            return False
        if self.is_plain:  # any resume may end it, and the join that leaves it out
            return ended_at(lift) >= self.at
        return lift["departed"] is not None and lift["departed"] > self.asked

    def ended(self, fact: Fact) -> "Placed":
        """Return it with the moment at which a resume or a reported end ended it."""
        end = fact.at
        if fact.event == "lift":
            departed = None if self.is_remote else fact["departed_at"]
            end = ended_at(fact) if departed is None else float(departed)
        return evolve(self, until=min(self.until, end))

    def is_over(self, lift: Fact, fact: Fact) -> bool:
        """Return whether an earlier fact comes after the end that is reported now."""
        if not self.is_ended_by(lift):
            return False
        if self.is_remote or lift["departed"] is None:
            return fact.at >= ended_at(lift)
        return fact.number > int(lift["departed"])


@frozen(kw_only=True)
class Change:
    """
    The holds that a fact changed.

    Attributes:
        placed: holds that are in force from now on; each replaces an earlier one with
            the same scope and owner.
        ended: holds that are over; ``until`` is when they ended.
    """

    placed: tuple[Placed, ...] = ()
    ended: tuple[Placed, ...] = ()


class Holds:
    """Follows the holds of one member over one partition."""

    def __init__(self) -> None:
        self._standing: dict[Key, Placed] = {}
        # The hold that was in force when it was placed again, and how many polls had
        # returned by then. A poll that was already running must obey that hold.
        self._before: dict[Key, tuple[int, Placed]] = {}
        self._asked: dict[object, int] = {}
        self._resuming: dict[object, tuple[Placed, ...]] = {}

    def take(self, fact: Fact) -> Change:
        """
        Follow a fact, and return what it changed.

        The entry that a hold from elsewhere was lifted, or that a hold ended with an
        ownership, may be written late: until then :meth:`standing` includes the hold.
        """
        match fact.event, fact["op"]:
            case "call", "pause":
                self._asked[fact["id"]] = fact.number
            case ("hold", _) | ("return", "pause"):
                return self._place(fact)
            case "call", "resume":
                over = [self._standing.get(key) for key in keys(fact)]
                self._resuming[fact["id"]] = tuple(one for one in over if one)
                return self._end(fact, keys(fact))
            case "return", "resume":
                return self._resumed(fact)
            case "lift", _:
                for key in keys(fact):
                    _, before = self._before.get(key, (0, None))
                    if before is not None and before.is_ended_by(fact):
                        del self._before[key]
                known = (self._standing.get(key) for key in keys(fact))
                ended = [one for one in known if one and one.is_ended_by(fact)]
                return self._end(fact, [one.key for one in ended])
        return Change()

    def standing(self, at: float, before: float = math.inf) -> list[Placed]:
        """Return the holds over the partition at a moment, if placed before an entry."""
        found = []
        for key, one in self._standing.items():
            if at >= one.until:
                continue
            if one.number >= before and key in self._before:
                _, one = self._before[key]  # noqa: PLW2901 - the earlier one
            if one.number < before:
                found.append(one)
        return found

    def _place(self, fact: Fact) -> Change:
        asked = self._asked.pop(fact["id"], fact.number)
        if fact["ok"] is False:
            return Change()
        placed = tuple(_placed(fact, asked))
        before = dict(self._stood(fact, [one.key for one in placed]))
        change = self._end(fact, [one.key for one in placed])
        self._standing.update((one.key, one) for one in placed)
        self._before.update(before)
        return evolve(change, placed=placed)

    def _stood(
        self, fact: Fact, again: Iterable[Key]
    ) -> Iterator[tuple[Key, tuple[int, Placed]]]:
        # If one poll sees several, the first counts: it was in force at the call.
        for key in again:
            one = self._standing.get(key)
            if one is not None and fact.at < one.until:
                polls, before = self._before.get(key, (-1, one))
                yield key, (fact.polls, before if polls == fact.polls else one)

    def _resumed(self, fact: Fact) -> Change:
        over = self._resuming.pop(fact["id"], ())
        if fact["ok"] is not False:
            return Change()
        # Meanwhile it may have ended, or another thread may have placed it again.
        again = tuple(
            evolve(one, number=fact.number, at=fact.at)
            for one in over
            if one.key not in self._standing
        )
        self._standing.update((one.key, one) for one in again)
        return Change(placed=again)

    def _end(self, fact: Fact, over: Iterable[Key]) -> Change:
        over = list(over)
        for key in over:
            self._before.pop(key, None)
        known = [self._standing.pop(key, None) for key in over]
        return Change(ended=tuple(one.ended(fact) for one in known if one is not None))


def keys(fact: Fact) -> Iterator[Key]:
    """Yield the scopes of a fact that cover the partition, each with the owner."""
    for scope in fact["scopes"] or ():
        yield scope, fact["owner"] or ""


def ended_at(lift: Fact) -> float:
    """Return when a hold from elsewhere ended, by the fact that reports it."""
    return min(lift.at, float(lift["since"] or lift.at))


def _placed(fact: Fact, asked: int) -> Iterator[Placed]:
    for scope, owner in keys(fact):
        is_carried = owner == _APP and is_partition(scope)
        is_plain = fact["lifetime"] == _PLAIN and is_partition(scope)
        is_strict = fact["lifetime"] in {_UNTIL_RESUMED, _PLAIN} and not is_plain
        yield Placed(
            scope=scope,
            owner=owner,
            asked=asked,
            number=fact.number,
            at=fact.at,
            until=fact["until"] or math.inf,
            is_for_good=is_strict and not is_carried,
            is_plain=is_plain,
            is_remote=fact.event == "hold",
            running=fact["running"] or (),
        )
