"""Injects faults: errors, late answers, withheld answers and closed connections."""

from collections.abc import Callable
from typing import Protocol

from attrs import define, field

from safeconsumer.testing._members import Schedule
from safeconsumer.testing._protocol import Message

ANY = "*"


class Connection(Protocol):
    """The part of a connection that faults use."""

    node: int
    origin: object

    def cut(self) -> None:
        """Close the connection from the broker's side."""


@define(kw_only=True, eq=False)
class Fault:
    """
    A fault that affects matching requests until :meth:`end`.

    Attributes:
        api: the name of the affected requests, or ``"*"`` for all.
        error: the error code with which the requests are refused.
        delay: the delay of the answers, in seconds.
        is_held: whether the answers are withheld until the fault ends.
        is_cut: whether the connection is closed before the request is processed.
        is_lost: whether the connection is closed without an answer after the request is
            processed.
        origin: limits the fault to connections with this origin.
        client_id: limits the fault to this client.
        node: limits the fault to this broker.
        count: the number of requests that the fault will still affect.
        on_keep: called when an answer is withheld.
    """

    api: str
    error: int = 0
    delay: float = 0.0
    is_held: bool = False
    is_cut: bool = False
    is_lost: bool = False
    origin: object = None
    client_id: str | None = None
    node: int | None = None
    count: float = float("inf")
    on_keep: Callable[[], None] = lambda: None
    kept: list[Callable[[], None]] = field(factory=list, init=False)
    _faults: "Faults | None" = field(default=None, init=False)

    @property
    def is_early(self) -> bool:
        """Whether the fault prevents the processing of requests."""
        return bool(self.error) or self.is_cut

    def takes(self, connection: Connection, message: Message) -> bool:
        """Return whether the fault affects a request; if so, decrement ``count``."""
        is_meant = (
            self._faults is not None
            and self.count > 0
            and self.api in (ANY, message.api)
            and self.origin in (None, connection.origin)
            and self.client_id in (None, message.client_id)
            and self.node in (None, connection.node)
        )
        if not is_meant:
            return False
        self.count -= 1
        if not self.count and not self.is_held:
            self.end()
        return True

    def begin(self, faults: "Faults") -> None:
        """Start the fault."""
        self._faults = faults
        faults.active.append(self)

    def end(self) -> None:
        """End the fault, and send the withheld answers; a second call has no effect."""
        faults, self._faults = self._faults, None
        if faults is not None:
            faults.active.remove(self)
        kept, self.kept = self.kept, []
        for send in kept:
            send()


class Faults:
    """The active faults of a cluster, in the order in which they started."""

    def __init__(self, call_later: Schedule) -> None:
        self.active: list[Fault] = []
        self._call_later = call_later

    def of_request(self, connection: Connection, message: Message) -> Fault | None:
        """Return the fault that prevents the processing of a request, or None."""
        for fault in tuple(self.active):
            if fault.is_early and fault.takes(connection, message):
                return fault
        return None

    def send(
        self, connection: Connection, message: Message, send: Callable[[], None]
    ) -> None:
        """Send an answer now, later or never, depending on the active faults."""
        delay = 0.0
        for fault in tuple(self.active):
            if fault.is_early or not fault.takes(connection, message):
                continue
            if fault.is_lost:
                connection.cut()
                return
            if fault.is_held:
                fault.kept.append(send)
                fault.on_keep()
                return
            delay += fault.delay
        if delay:
            self._call_later(delay, send)
        else:
            send()

    def clear(self) -> None:
        """End all faults."""
        for fault in tuple(self.active):
            fault.end()
