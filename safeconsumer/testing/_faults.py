"""Injects faults: errors, late answers, answers held back, connections cut."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from safeconsumer.testing._cluster import Cluster
    from safeconsumer.testing._connections import Connection
    from safeconsumer.testing._protocol import Message

ANY = "*"


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
    _cluster: "Cluster | None" = field(default=None, init=False)

    @property
    def is_early(self) -> bool:
        """Whether requests that meet it are not carried out."""
        return bool(self.error) or self.is_cut

    def takes(self, connection: "Connection", message: "Message") -> bool:
        """Whether a request meets it; each that does lowers ``count``."""
        cluster = self._cluster
        is_meant = (
            cluster is not None
            and self.count > 0
            and self.api in (ANY, message.api)
            and self.origin in (None, connection.origin)
            and self.client_id in (None, message.client_id)
            and self.node in (None, connection.node)
        )
        if not is_meant or cluster is None:
            return False
        self.count -= 1
        if not self.count and not self.is_held:
            self.end()
        return True

    def begin(self, cluster: "Cluster") -> None:
        """Put it into force."""
        self._cluster = cluster
        cluster.faults.active.append(self)

    def end(self) -> None:
        """End it, and send the answers that it kept back; a second call does nothing."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.faults.active.remove(self)
        kept, self.kept = self.kept, []
        for send in kept:
            send()


class Faults:
    """The faults of a cluster, in the order in which they began."""

    def __init__(self, cluster: "Cluster") -> None:
        self.active: list[Fault] = []
        self._cluster = cluster

    def of_request(self, connection: "Connection", message: "Message") -> Fault | None:
        """Return the fault that keeps a request from being carried out, or None."""
        for fault in tuple(self.active):
            if fault.is_early and fault.takes(connection, message):
                return fault
        return None

    def send(
        self, connection: "Connection", message: "Message", send: Callable[[], None]
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
            self._cluster.call_later(delay, send)
        else:
            send()

    def clear(self) -> None:
        """End all faults."""
        for fault in tuple(self.active):
            fault.end()
