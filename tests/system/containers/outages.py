"""Takes the broker in the container away for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from tests.harness.brokers.container import ContainerBroker


class How(StrEnum):
    """How the broker goes away."""

    FREEZE = "freeze"  # connections stay, nothing answers
    KILL = "kill"  # connections break, and nobody takes new ones
    STUCK = "stuck"  # it freezes, and is killed for that before it comes back


@frozen
class Outage:
    """One outage of one broker."""

    broker: "ContainerBroker"
    how: How

    def begin(self) -> None:
        """Freeze the broker, or kill it; no word of it comes from now on."""
        if self.how == How.KILL:
            self.broker.kill()
        else:
            self.broker.freeze()

    def end(self) -> None:
        """Have the broker back, at the same address and with the data it had."""
        if self.how == How.FREEZE:
            self.broker.unfreeze()
            return
        if self.how == How.STUCK:
            self.broker.kill()
        self.broker.restart()

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Keep it away in this block; it is back afterwards whatever happened."""
        self.begin()
        try:
            yield
        finally:
            self.end()
