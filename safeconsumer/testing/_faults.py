"""Injects faults: errors, late answers, answers held back, connections cut."""

from collections.abc import Callable
from typing import Protocol

from attrs import define, field

from safeconsumer.testing._members import Schedule
from safeconsumer.testing._protocol import Message

ANY = "*"


class Connection(Protocol):
    """The parts of a connection that faults use."""

    node: int
    origin: object

    def cut(self) -> None:
        """Close it from the broker's side."""


@define(kw_only=True, eq=False)
class Fault:
    """
    A fault that some requests meet, until :meth:`end`.

    Attributes:
        api: the name of the requests, ``"*"`` for all.
        error: the code with which they are refused.
        delay: seconds by which their answers are late.
        is_held: whether their answers are kept back until the end.
        is_cut: whether the connection is closed before the request is carried out.
        is_lost: whether the connection is closed after that, instead of an answer.
        origin: limits the fault to connections of this origin.
        client_id: limits it to this client.
        node: limits it to this broker.
        count: how many requests will still meet it.
        on_keep: called when an answer is kept back.
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
        """Whether requests that meet it are not carried out."""
        return bool(self.error) or self.is_cut

    def takes(self, connection: Connection, message: Message) -> bool:
        """Whether a request meets it; each that does lowers ``count``."""
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
        """Put it into force."""
        self._faults = faults
        faults.active.append(self)

    def end(self) -> None:
        """End it, and send the answers that it kept back; a second call does nothing."""
        faults, self._faults = self._faults, None
        if faults is not None:
            faults.active.remove(self)
        kept, self.kept = self.kept, []
        for send in kept:
            send()


class Faults:
    """The faults of a cluster, in the order in which they began."""

    def __init__(self, call_later: Schedule) -> None:
        self.active: list[Fault] = []
        self._call_later = call_later

    def of_request(self, connection: Connection, message: Message) -> Fault | None:
        """Return the fault that keeps a request from being carried out, or None."""
        for fault in tuple(self.active):
            if fault.is_early and fault.takes(connection, message):
                return fault
        return None

    def send(
        self, connection: Connection, message: Message, send: Callable[[], None]
    ) -> None:
        """Send an answer now, later or never, by the faults that it meets."""
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
