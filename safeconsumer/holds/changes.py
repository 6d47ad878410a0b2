"""Defines the changes of the ledger: each is one value that waits in its inbox."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from attrs import define, field, frozen

from safeconsumer.holds import state as ledger
from safeconsumer.holds.gates import CallGates
from safeconsumer.holds.hold import Hold, HoldKey
from safeconsumer.holds.ownership import Ownership, Reassignment
from safeconsumer.holds.patterns import Question, in_force
from safeconsumer.holds.scope import Partition, Pattern, Scope, Topic, TopicPartition
from safeconsumer.holds.state import LedgerState
from safeconsumer.holds.view import PauseView, with_assignment, with_state


@frozen
class Place:
    """
    Place holds.

    Attributes:
        holds: the holds to place.
        topics: known topics that they cover; None if no pattern is among them.
        nothing: the patterns among them that no known topic matches.
    """

    holds: tuple[Hold, ...]
    topics: tuple[str, ...] | None = None
    nothing: tuple[Scope, ...] = ()

    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes that the change concerns."""
        return tuple(hold.scope for hold in self.holds)


@frozen
class TakeOver:
    """
    Place what previous owners left, unless the application has spoken since.

    Attributes:
        holds: the holds to place, each of one partition.
        epochs: the ownerships that they are for.
    """

    holds: tuple[Hold, ...]
    epochs: Mapping[TopicPartition, int]

    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes that the change concerns."""
        return tuple(hold.scope for hold in self.holds)


@frozen
class Move:
    """
    Give holds other deadlines.

    Attributes:
        holds: the holds with their new deadlines; each is found by being equal in
            everything else.
    """

    holds: tuple[Hold, ...]


@frozen
class Remove:
    """
    Lift holds.

    Attributes:
        keys: the holds to lift, whether they exist or not.
    """

    keys: tuple[HoldKey, ...]

    def scopes(self) -> tuple[Scope, ...]:
        """Return the scopes that the change concerns."""
        return tuple(scope for scope, _ in self.keys)


@frozen
class RemoveOwner:
    """Lift every hold that an owner has when this is applied."""

    owner: str

    def on(self, state: LedgerState) -> Remove:
        """Return the removals that this means in a given state."""
        return Remove(tuple(hold.key for hold in state if hold.owner == self.owner))


@define(eq=False)
class Assign:
    """
    Take over a new assignment.

    Attributes:
        assigned: what is owned from now on.
        is_final: whether nothing will be assigned here again.
        is_left: whether the caller gave up before the change was applied.
        outcome: what it changed, and the ownership since; None until it is applied.
    """

    assigned: tuple[TopicPartition, ...]
    is_final: bool = False
    is_left: bool = False
    outcome: tuple[Reassignment, Ownership] | None = None


@frozen
class OpenGates:
    """Open the control topics' gates of partitions whose ownership is still the same."""

    epochs: Mapping[TopicPartition, int] = field(factory=dict)


@frozen
class OpenCallGates:
    """Open the gates of the ``poll`` that has ended."""


Change: TypeAlias = (
    Place | TakeOver | Move | Remove | RemoveOwner | Assign | OpenGates | OpenCallGates
)


def remaining_after(state: LedgerState, scopes: Iterable[Scope]) -> tuple[Hold, ...]:
    """Return the holds that still cover what was to be lifted, as far as is known."""
    found = {hold.key: hold for scope in scopes for hold in state.overlapping(scope)}
    return tuple(found.values())


def previewed(
    view: PauseView, gates: CallGates, change: Change
) -> tuple[PauseView, CallGates]:
    """
    Return what will be held, quiet and gated by a call once the change is applied.

    Gates are not in the view yet; those of control topics are left out. If the change
    is applied already, the result is the same.
    """
    match change:
        case Place():
            state, _ = ledger.place(view.state, change.holds)
        case Remove():
            gates = gates.lifted(change.keys, view)
            state, _ = ledger.remove(view.state, change.keys)
        case RemoveOwner():
            gates = gates.given_up(change.owner)
            change = change.on(view.state)
            state, _ = ledger.remove(view.state, change.keys)
        case Assign():
            owned, now = set(view.partitions()), set(change.assigned)
            gates = gates.reassign(now - owned, owned - now)
            return with_assignment(view, change.assigned, view.gates)[0], gates
        case OpenCallGates():
            return view, gates.all_open()
        case _:
            return view, gates
    return with_state(view, state, change.scopes())[0], gates


def open_questions(
    view: PauseView, scopes: Collection[Scope], topics: Iterable[str] = ()
) -> list[Question]:
    """
    List the patterns to ask, and about which topics, before the ledger changes.

    Every pattern in force has already been asked about every assigned topic, by the
    caller who changed one or the other. So only new patterns and new names need asking.

    Args:
        view: the view that is changed.
        scopes: the scopes that are placed or lifted.
        topics: further names that will be looked up.
    """
    fresh = [scope for scope in scopes if isinstance(scope, Pattern)]
    if not fresh and not len(view.state.patterns):
        return []
    named = (scope.topic for scope in scopes if isinstance(scope, Partition | Topic))
    names = {*topics, *named}
    if fresh:  # what remains of a pattern that is lifted may be held by name
        names |= view.state.named_topics()
    found = [(one, name) for one in in_force(view.state) for name in names]
    found += [(one, name) for one in fresh for name in (*view.assigned, *names)]
    return [(one, name) for one, name in found if not one.knows(name)]
