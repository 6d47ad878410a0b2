"""
What the consumer asks of group control, so that it need not import it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger


class Attached(Protocol):
    """
    Group control of one consumer, running.
    """

    def pause(
        self,
        targets: Iterable[object],
        *,
        owner: str,
        reason: str | None,
        for_: object,
    ) -> None:
        """
        Hold the targets for the whole group.
        """

    def resume(self, targets: Iterable[object], *, owner: str) -> tuple[Hold, ...]:
        """
        Lift group holds; return what still covers the targets.
        """

    def close(self) -> None:
        """
        End it.
        """


class Attachable(Protocol):
    """
    Settings that can begin to control a consumer; :class:`safeconsumer.Control` is it.
    """

    def attach(self, ledger: PauseLedger, configs: Mapping[str, Any]) -> Attached:
        """
        Begin, before anything is assigned.
        """
