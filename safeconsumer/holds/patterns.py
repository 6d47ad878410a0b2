"""Asks patterns about topic names, never under the ledger's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from safeconsumer import events
from safeconsumer.holds.hold import HoldKey
from safeconsumer.holds.scope import Pattern, Scope
from safeconsumer.holds.state import LedgerState

# A match that takes longer than this many seconds is reported: it stopped every thread
# for as long, since ``re`` does not release the interpreter lock. Heartbeats are due
# every few seconds.
SLOW_MATCH_SECONDS = 0.1

# Applications pause with a handful of expressions, again and again. Beyond this number
# all are forgotten; those of holds in force keep their answers themselves.
MOST_KEPT = 64

Question = tuple[Pattern, str]


class Patterns:
    """
    Asks each expression once about each name, and reports those that are slow or fail.

    An expression is the user's code: it may take its time, raise, or call this package.

    Args:
        clock: returns seconds on the monotonic clock.
        emit: takes an event's class and its fields.

    Thread rules: any thread, signal handlers too; never under the ledger's lock. It
    takes no lock itself.
    """

    def __init__(self, clock: Callable[[], float], emit: Callable[..., object]) -> None:
        self._clock = clock
        self._emit = emit
        self._kept: dict[tuple[type, str], Pattern] = {}

    def shared(self, scope: Scope) -> Scope:
        """Return the earlier pattern with the same expression, and with it its answers."""
        if not isinstance(scope, Pattern):
            return scope
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        return self._kept.setdefault((type(scope.compiled), scope.text), scope)

    def shared_keys(self, keys: Iterable[HoldKey]) -> tuple[HoldKey, ...]:
        """Return the keys of holds with their patterns shared, as :meth:`shared` does."""
        return tuple((self.shared(scope), owner) for scope, owner in keys)

    def asked(
        self, scopes: Iterable[Scope], topics: Iterable[str]
    ) -> tuple[Scope, ...]:
        """
        Return the scopes, their patterns shared and asked about the topics.

        Raises:
            Exception: what an expression raised.
        """
        found = tuple(scopes)
        if any(isinstance(scope, Pattern) for scope in found):
            found = tuple(map(self.shared, found))
            self.topics_of(found, topics)
        return found

    def topics_of(
        self, scopes: Iterable[Scope], names: Iterable[str]
    ) -> tuple[str, ...]:
        """
        Return those of the names that any of the patterns among the scopes matches.

        Raises:
            Exception: what an expression raised.
        """
        patterns = [scope for scope in scopes if isinstance(scope, Pattern)]
        names = tuple(names)
        self.ask((one, name) for one in patterns for name in names)
        return tuple(
            sorted(name for name in names if any(one.matches(name) for one in patterns))
        )

    def ask(self, questions: Iterable[Question]) -> None:
        """
        Ask the questions whose answers are not known yet.

        Raises:
            Exception: what an expression raised.
        """
        for pattern, topic in questions:
            if not pattern.knows(topic):
                self._ask(pattern, topic)

    def ask_safely(self, questions: Iterable[Question]) -> None:
        """
        Ask what is not known yet.

        A name about which an expression raises counts as covered.
        """
        for pattern, topic in questions:
            try:
                self.ask([(pattern, topic)])
            except Exception as error:  # noqa: BLE001 - whatever it raises
                pattern.assume_match(topic)
                # The next ``pause`` with this expression shall raise its error.
                self._kept.pop((type(pattern.compiled), pattern.text), None)
                self._emit(
                    events.PatternFailed,
                    pattern=str(pattern),
                    topic=topic,
                    error=repr(error),
                )

    def _ask(self, pattern: Pattern, topic: str) -> None:
        start = self._clock()
        pattern.ask(topic)
        seconds = self._clock() - start
        if seconds >= SLOW_MATCH_SECONDS:
            self._emit(
                events.PatternIsSlow,
                pattern=str(pattern),
                topic=topic,
                seconds=seconds,
            )


def in_force(state: LedgerState) -> Iterator[Pattern]:
    """Yield the patterns of all holds, those with one text from each owner."""
    for holds in state.patterns.values():
        for hold in holds:
            if isinstance(hold.scope, Pattern):
                yield hold.scope
