"""Notes what a test asked a consumer to hold, whatever the client knows of it."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from attrs import define, field, frozen

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP, Hold, HoldKey, Lifetime
from safeconsumer.holds.scope import Scope


@frozen(kw_only=True)
class Wish:
    """
    How long a scope shall be silent for one owner.

    Attributes:
        until: seconds on the monotonic clock, or None for no limit.
        is_bound: whether it may end by itself; only the client knows when.
    """

    until: float | None = None
    is_bound: bool = False


Wishes = dict[HoldKey, Wish]


@define
class Intent:
    """
    The scopes that shall be silent, each for its owner, as the test asked for them.

    A stock consumer's pauses belong to the owner of plain calls.

    Args:
        holds: returns the client's holds; used only for holds that may end by
            themselves, plain pauses too.

    Attributes:
        is_any: whether anything was to be silent at any time.

    Thread rules: any thread; a call changes single entries of one dictionary.
    """

    _holds: Callable[[], Iterable[Hold]]
    _wishes: Wishes = field(factory=dict, init=False)
    is_any: bool = field(default=False, init=False)

    def add(
        self,
        targets: Iterable[Any],
        *,
        since: float | None = None,
        owner: str = APP,
        for_: float | timedelta | None = None,
        **_: object,
    ) -> None:
        """
        Note a pause of the test's.

        Args:
            targets: partitions, topic names, compiled patterns, scopes.
            since: when the test asked for it, before the client noted it, so that it
                cannot end here later than there.
            owner: as for ``pause()``.
            for_: as for ``pause()``.
        """
        seconds = for_.total_seconds() if isinstance(for_, timedelta) else for_
        start = time.monotonic() if since is None else since
        bound = {one.key for one in self._holds() if _may_end(one)}
        for scope in map(_scope, targets):
            self.is_any = True
            self._wishes[scope, owner] = Wish(
                until=None if seconds is None else start + seconds,
                is_bound=(scope, owner) in bound,
            )

    def add_holds(self) -> None:
        """Note the client's present holds, also those that cover nothing assigned."""
        for hold in self._holds():
            bound = _may_end(hold)
            self.is_any = True
            self._wishes[hold.key] = Wish(until=hold.deadline, is_bound=bound)

    def lift(self, targets: Iterable[Any], *, owner: str = APP) -> Wishes:
        """Forget one owner's wishes for the targets, and return them."""
        keys = [(scope, owner) for scope in map(_scope, targets)]
        return {key: self._wishes.pop(key) for key in keys if key in self._wishes}

    def restore(self, lifted: Wishes) -> None:
        """Restore what :meth:`lift` returned."""
        self._wishes.update(lifted)

    def covers(self, tp: scopes.TopicPartition) -> bool:
        """Tell whether this partition shall be silent for some owner at this moment."""
        now = time.monotonic()
        return any(
            key[0].covers(tp)
            and (wish.until is None or now < wish.until)
            and not (wish.is_bound and self._has_ended(key))
            for key, wish in tuple(self._wishes.items())
        )

    def _has_ended(self, key: HoldKey) -> bool:
        return all(hold.key != key for hold in self._holds())


def _may_end(hold: Hold) -> bool:
    # By itself, or with a resume that names something else.
    return hold.lifetime is not Lifetime.UNTIL_RESUMED


def _scope(target: Any) -> Scope:  # noqa: ANN401 - whatever pause() takes
    # No more is checked than the client does: a stock one takes other flags, say.
    if isinstance(target, Scope):
        return target
    if isinstance(target, str):
        return scopes.parse(target)
    if hasattr(target, "fullmatch"):
        return scopes.Pattern(target.pattern, target)
    return scopes.Partition(*target)
