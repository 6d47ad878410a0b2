"""
What callers ask of the ledger, and what patterns must be asked before it is done.
"""

from collections.abc import Collection

from attrs import frozen

from safeconsumer.holds.hold import Hold, HoldKey
from safeconsumer.holds.patterns import Question, in_force
from safeconsumer.holds.scope import Partition, Pattern, Scope, Topic
from safeconsumer.holds.state import LedgerState
from safeconsumer.holds.view import PauseView


@frozen
class Place:
    """
    Place holds.

    Attributes:
        holds: those to be placed.
        topics: known topics that they cover; None if no pattern is among them.
        has_patterns: whether a pattern is among what it is about.
    """

    holds: tuple[Hold, ...]
    topics: tuple[str, ...] | None = None
    has_patterns: bool = False

    def scopes(self) -> tuple[Scope, ...]:
        """
        Return what the change is about.
        """
        return tuple(hold.scope for hold in self.holds)


@frozen
class Remove:
    """
    Lift holds.

    Attributes:
        keys: those to be lifted, there or not.
        has_patterns: whether a pattern is among what it is about.
    """

    keys: tuple[HoldKey, ...]
    has_patterns: bool = False

    def scopes(self) -> tuple[Scope, ...]:
        """
        Return what the change is about.
        """
        return tuple(scope for scope, _ in self.keys)


def remaining_after(state: LedgerState, change: Remove) -> tuple[Hold, ...]:
    """
    Return the holds that cover what was to be lifted, as far as is known.
    """
    found = {
        hold.key: hold for scope in change.scopes() for hold in state.overlapping(scope)
    }
    return tuple(found.values())


def open_questions(
    view: PauseView,
    changes: Collection[Place | Remove],
    topics: Collection[str] = (),
) -> list[Question]:
    """
    List what is still to be asked before changes and an assignment can be applied.

    Whoever applies them has asked it: so every pattern in force knows every assigned
    topic, always, and only new patterns and new names make questions.

    Args:
        view: what they are applied to.
        changes: to be applied.
        topics: to be assigned.
    """
    scopes = [scope for change in changes for scope in change.scopes()]
    fresh = [scope for scope in scopes if isinstance(scope, Pattern)]
    if not fresh and not len(view.state.patterns):
        return []
    named = (scope.topic for scope in scopes if isinstance(scope, Partition | Topic))
    names = {*topics, *named}
    found = [(one, name) for one in in_force(view.state) for name in names]
    found += [(one, name) for one in fresh for name in (*view.assigned, *names)]
    return [(one, name) for one, name in found if not one.knows(name)]
